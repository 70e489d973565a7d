"""Export the completions that a search finds, with prompts and labels, as JSONL or Parquet."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import orjson

from backend.base.errors import FieldError, InvalidRequest
from backend.base.text import clean_text
from backend.http.paging import write_cursor
from backend.rollouts.labels import load_labels
from backend.rollouts.packing import try_unpack_text
from backend.rollouts.search.hits import load_hits
from backend.rollouts.search.pages import find, has_more_than
from backend.rollouts.search.query import Term
from backend.rollouts.search.scope import Scope
from backend.storage.completion import Completion
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import RolloutGroup

MAX_EXPORTED = 100_000
ROWS_AT_ONCE = 500

FORMATS: Mapping[str, str] = {"jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}

Row = dict[str, Any]


def export_selection(
    sessions: Sessions, scope: Scope, terms: Sequence[Term], file: Literal["jsonl", "parquet"]
) -> Iterator[bytes]:
    """Return the bytes of the file, which are generated while they are sent; raise InvalidRequest for too
    many rows.
    """
    with open_read_session(sessions) as session:
        is_too_much = has_more_than(session, scope, terms, MAX_EXPORTED)
    if is_too_much:
        reason = (
            f"finds more than {MAX_EXPORTED:,} completions, which is the most that is exported: narrow it"
        )
        raise InvalidRequest([FieldError("q", reason)])
    pages = _pages(sessions, scope, terms)
    return _write_parquet(pages) if file == "parquet" else _write_jsonl(pages)


def _pages(sessions: Sessions, scope: Scope, terms: Sequence[Term]) -> Iterator[list[Row]]:
    cursor, count = "", 0
    while count < MAX_EXPORTED:
        with open_read_session(sessions) as session:
            page = find(session, scope, terms, sort="step", limit=ROWS_AT_ONCE, cursor=cursor)
            completions = load_hits(session, page.rows)
            labels = load_labels(session, [completion.id for _, completion in completions])
            rows = [
                _row(completion, group, labels.get(completion.id, [])) for group, completion in completions
            ]
        yield rows
        count += len(page.rows)
        if page.next is None:
            return
        cursor = write_cursor(page.next, order="step")


def _row(rollout: Completion, group: RolloutGroup, labels: list[dict[str, Any]]) -> Row:
    group_fields = {
        name: getattr(group, name) for name in ("step", "kind", "prompt_index", "prompt_id", "problem")
    }
    completion_fields = {
        name: getattr(rollout, name) for name in ("position", "tokens", "finish_reason", "correct")
    }
    (prompt, prompt_damage), (answer, answer_damage) = map(try_unpack_text, (group.prompt, group.answer))
    return {
        "rollout": rollout.id,
        "run": group.run_id,
        **group_fields,
        **completion_fields,
        "prompt": clean_text(prompt),
        "answer": clean_text(answer),
        "text": rollout.clean_text,
        "reward": rollout.spell("reward"),
        "advantage": rollout.spell("advantage"),
        "rewards": rollout.rewards,
        "flags": rollout.flags,
        "damage": "; ".join(filter(None, (prompt_damage, answer_damage))),
        "labels": [{"label": row["label"], "note": row["note"], "by": row["role"]} for row in labels],
    }


def _write_jsonl(pages: Iterator[list[Row]]) -> Iterator[bytes]:
    for page in pages:
        yield b"".join(orjson.dumps(row) + b"\n" for row in page)


class _Sink:
    """A write-only file whose content is read in pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.closed = False

    def write(self, chunk: Any) -> int:
        content = bytes(chunk)
        self._pieces.append(content)
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing, because no bytes are buffered elsewhere."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


def _write_parquet(pages: Iterator[list[Row]]) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("rollout", "run", "kind", "prompt_id", "problem", "finish_reason", "prompt", "answer", "text")
    columns = [(name, pa.string()) for name in (*texts, "rewards", "flags", "damage", "labels")]
    columns += [(name, pa.int32()) for name in ("step", "prompt_index", "position", "tokens")]
    columns += [("reward", pa.float64()), ("advantage", pa.float64()), ("correct", pa.bool_())]
    schema, sink = pa.schema(columns), _Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        for page in pages:
            writer.write_table(pa.Table.from_pylist([_flatten_row(row) for row in page], schema=schema))
            yield sink.take()
    yield sink.take()


def _flatten_row(row: Row) -> Row:
    """Return the row with documents as JSON text and spelled numbers as floats."""
    documents = {name: orjson.dumps(row[name]).decode() for name in ("rewards", "flags", "labels")}
    numbers = {name: None if row[name] is None else float(row[name]) for name in ("reward", "advantage")}
    return row | documents | numbers
