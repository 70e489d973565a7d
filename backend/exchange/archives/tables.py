"""Write the tables of an archive as Parquet, in parts: metrics, rollouts and tokens."""

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import orjson
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from backend.base.text import clean_text
from backend.metrics.lineage import load_lineages
from backend.metrics.reading import read_points
from backend.metrics.windows import load_metric_names
from backend.rollouts.packing import (
    PackedDamaged,
    Tokens,
    try_unpack_arrays,
    try_unpack_text,
    unpack_tokens,
)
from backend.rollouts.reading import valid_group_conditions
from backend.storage.completion import Completion
from backend.storage.completions import damage_reason, load_completions
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import RolloutGroup, RolloutLabel, RolloutTokens

GROUPS_AT_ONCE = 100
METRICS_AT_ONCE = 20

TEXT_COLUMNS = (
    "kind",
    "prompt_id",
    "problem",
    "domain",
    "finish_reason",
    "rewards",
    "flags",
    "left_out",
    "turns",
)
EXACT_COLUMNS = ("prompt", "answer", "text")
"""Texts of models and data, which may not be valid UTF-8."""
NUMBER_COLUMNS = ("step", "attempt", "prompt_index", "position", "tokens")
VALUE_COLUMNS = ("reward", "advantage", "correct")
VALUE_PREFIX = "value/"
"""Prefix of the column names of token values."""


def exact_name(name: str) -> str:
    """Return the name of the column with the bytes of texts that are not valid UTF-8."""
    return f"{name}_exact"


def write_metrics(sessions: Sessions, run_id: str, file: IO[bytes]) -> None:
    """Write the valid values, ordered by metric and step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [("metric", pa.dictionary(pa.int32(), pa.string())), ("step", pa.int32()), ("value", pa.float64())]
    )
    with open_read_session(sessions) as session:
        names = load_metric_names(
            session, [segment.run for segment in load_lineages(session, [run_id])[run_id]]
        )
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for start in range(0, len(names), METRICS_AT_ONCE):
            chunk = names[start : start + METRICS_AT_ONCE]
            with open_read_session(sessions) as session:
                by_metric = read_points(session, [run_id], chunk)
            for name in chunk:
                if (points := by_metric.get((run_id, name))) is not None and len(points):
                    metric = pa.DictionaryArray.from_arrays(
                        pa.array(np.zeros(len(points), np.int32)), pa.array([name])
                    )
                    columns = [
                        metric,
                        pa.array(points.steps, pa.int32()),
                        pa.array(points.values, pa.float64()),
                    ]
                    writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def write_rollouts(
    sessions: Sessions, run_id: str, rollouts: IO[bytes], tokens: IO[bytes], labels: IO[bytes]
) -> list[str]:
    """Write the valid groups by step, kind and position, with their tokens and labels.

    Return a sentence about each damaged part, which is left out.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = _array_names(sessions, run_id)
    rollout_schema, token_schema = _schemas(arrays)
    row = 0
    missing_data: list[str] = []
    with (
        pq.ParquetWriter(rollouts, rollout_schema, compression="zstd") as rows_writer,
        pq.ParquetWriter(tokens, token_schema, compression="zstd") as tokens_writer,
    ):
        for groups, completions, packed_tokens, labelled in _pages(sessions, run_id):
            rows: list[dict[str, Any]] = []
            batches = []
            for group in groups:
                group_completions = _without_gaps(completions.get(group.id, []))
                group_tokens, token_damage = _tokens(packed_tokens.get(group.id), len(group_completions))
                texts, damage = _texts(group)
                damage |= {"completions": damage_reason(group.id), "tokens": token_damage}
                missing_data += _sentences(group, damage)
                for completion in group_completions:
                    rows.append(_row(group, completion, texts))
                    for label in labelled.get(completion.id, ()):
                        labels.write(_label_line(row, label))
                    if group_tokens:
                        batches.append(
                            _token_batch(row, group_tokens[completion.position], arrays, token_schema)
                        )
                    row += 1
            rows_writer.write_table(pa.Table.from_pylist(rows, schema=rollout_schema))
            tokens_writer.write_table(pa.Table.from_batches(batches, schema=token_schema).combine_chunks())
    return missing_data


def _without_gaps(completions: Sequence[Completion]) -> list[Completion]:
    """Return the completions before the first unreadable one; an import needs them from position 0."""
    return [completion for position, completion in enumerate(completions) if completion.position == position]


def _tokens(data: bytes | None, completions: int) -> tuple[list[Tokens], str]:
    """Return the tokens of a group and an empty reason, or none and the reason why they cannot be read."""
    if data is None or not completions:
        return [], ""
    try:
        unpacked_tokens = unpack_tokens(data)
    except PackedDamaged as error:
        return [], str(error)
    if len(unpacked_tokens) < completions:
        return [], f"it holds tokens of {len(unpacked_tokens)} completions, expected {completions}"
    return unpacked_tokens, ""


def _texts(group: RolloutGroup) -> tuple[dict[str, str], dict[str, str]]:
    """Return prompt and answer of a group, and the reasons why they are empty if they are damaged."""
    texts = {name: try_unpack_text(getattr(group, name)) for name in ("prompt", "answer")}
    return {name: text for name, (text, _) in texts.items()}, {
        name: reason for name, (_, reason) in texts.items()
    }


def _sentences(group: RolloutGroup, damage: Mapping[str, str]) -> Iterator[str]:
    group_name = f"step {group.step}, {group.kind}, prompt {group.prompt_index}"
    for name, reason in damage.items():
        if reason:
            yield f"{group_name}, {name}: damaged, and left out ({reason})"


def _schemas(arrays: Sequence[str]) -> tuple[Any, Any]:
    import pyarrow as pa

    rollouts = [(name, pa.int32()) for name in NUMBER_COLUMNS]
    rollouts += [(name, pa.string()) for name in (*TEXT_COLUMNS, *EXACT_COLUMNS)]
    rollouts += [(name, pa.float64()) for name in ("reward", "advantage")] + [("correct", pa.bool_())]
    rollouts += [(exact_name(name), pa.binary()) for name in EXACT_COLUMNS]
    tokens = [
        ("rollout", pa.int32()),
        ("id", pa.int32()),
        ("token", pa.string()),
        ("token_exact", pa.binary()),
    ]
    return pa.schema(rollouts), pa.schema(
        [*tokens, *((VALUE_PREFIX + name, pa.float32()) for name in arrays)]
    )


Page = tuple[list[RolloutGroup], dict[str, list[Completion]], dict[str, bytes], dict[str, list[RolloutLabel]]]
"""Groups; their completions and packed tokens by group; labels by completion."""


def _pages(sessions: Sessions, run_id: str) -> Iterator[Page]:
    columns = (RolloutGroup.step, RolloutGroup.kind, RolloutGroup.prompt_index, RolloutGroup.id)
    last_key: tuple[Any, ...] = (-2, "", 0, "")
    while True:
        with open_read_session(sessions) as session:
            query = select(RolloutGroup).where(
                *valid_group_conditions(session, run_id), tuple_(*columns) > last_key
            )
            groups = list(session.scalars(query.order_by(*columns).limit(GROUPS_AT_ONCE)))
            ids = [group.id for group in groups]
            token_query = select(RolloutTokens.group_id, RolloutTokens.data).where(
                RolloutTokens.group_id.in_(ids)
            )
            packed_tokens = {row.group_id: row.data for row in session.execute(token_query)}
            completions = load_completions(session, ids)
            labels = _labels(session, ids)
        if not groups:
            return
        yield groups, completions, packed_tokens, labels
        last = groups[-1]
        last_key = (last.step, last.kind, last.prompt_index, last.id)


def _labels(session: Session, groups: Sequence[str]) -> dict[str, list[RolloutLabel]]:
    query = select(RolloutLabel).where(RolloutLabel.group_id.in_(groups))
    by_rollout: dict[str, list[RolloutLabel]] = {}
    for label in session.scalars(query.order_by(RolloutLabel.label)):
        by_rollout.setdefault(label.rollout_id, []).append(label)
    return by_rollout


def _label_line(row: int, label: RolloutLabel) -> bytes:
    fields = {name: getattr(label, name) for name in ("label", "note", "role", "version", "changed_at")}
    return orjson.dumps({"rollout": row, **fields}) + b"\n"


def _array_names(sessions: Sessions, run_id: str) -> list[str]:
    """Return the names of all values that the tokens of any completion have."""
    names: set[str] = set()
    for _, _, packed_tokens, _ in _pages(sessions, run_id):
        for data in packed_tokens.values():
            names.update(name for arrays in try_unpack_arrays(data)[0] for name in arrays)
    return sorted(names)


def _row(group: RolloutGroup, completion: Completion, texts: Mapping[str, str]) -> dict[str, Any]:
    values = {name: _number(completion, name) for name in ("reward", "advantage")}
    return {
        **{name: getattr(group, name) for name in ("step", "attempt", "kind", "prompt_index", "prompt_id")},
        **{name: getattr(group, name) for name in ("problem", "domain", "left_out")},
        **{name: getattr(completion, name) for name in ("position", "tokens", "finish_reason", "correct")},
        "rewards": orjson.dumps(completion.rewards).decode(),
        "flags": orjson.dumps(completion.flags).decode(),
        "turns": orjson.dumps(completion.turns).decode(),
        **values,
        **with_exact({**texts, "text": completion.text}),
    }


def _number(completion: Completion, name: str) -> float | None:
    value = completion.spell(name)
    return None if value is None else float(value)


def with_exact(texts: dict[str, str]) -> dict[str, Any]:
    """Return texts as UTF-8 columns, and the bytes of texts that are not valid UTF-8."""
    clean_texts = {name: clean_text(text) for name, text in texts.items()}
    exact_bytes = {
        exact_name(name): text.encode("utf-8", "surrogatepass") if clean_texts[name] != text else None
        for name, text in texts.items()
    }
    return clean_texts | exact_bytes


def _token_batch(row: int, tokens: Tokens, arrays: Sequence[str], schema: Any) -> Any:
    import pyarrow as pa

    count = len(tokens.strings)
    clean_texts = [clean_text(text) for text in tokens.strings]
    exact_texts = [
        text.encode("utf-8", "surrogatepass") if text != clear else None
        for text, clear in zip(tokens.strings, clean_texts, strict=True)
    ]
    columns = [
        pa.array(np.full(count, row, np.int32)),
        pa.array(np.asarray(tokens.ids, np.int32)),
        pa.array(clean_texts, pa.string()),
        pa.array(exact_texts, pa.binary()),
        *(
            pa.array(np.asarray(tokens.arrays[name], np.float32))
            if name in tokens.arrays
            else pa.nulls(count, pa.float32())
            for name in arrays
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
