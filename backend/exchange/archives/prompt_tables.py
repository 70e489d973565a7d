"""Write the tables of an archive about prompts: tallies of groups that are not stored, and the prompts of the
run.

The tallies of stored groups can be derived from their completions.
"""

from collections.abc import Iterator, Sequence
from typing import IO, Any

from sqlalchemy import select, tuple_

from backend.exchange.archives.tables import exact_name, with_exact
from backend.metrics.attempts import load_limits, valid_row_condition
from backend.rollouts.marks import BIT_BY_MARK
from backend.rollouts.packing import try_unpack_text
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import GroupTally, RunPrompt

ROWS_AT_ONCE = 10_000
PROMPTS_AT_ONCE = 500

TALLY_TEXTS = ("kind", "prompt_id")
TALLY_PLACE = ("step", "prompt_index", "attempt", "number")
TALLY_COUNTS = ("marks", "completions", "tokens")
PROMPT_TEXTS = ("id", "problem", "domain")
PROMPT_EXACT = ("prompt", "answer")


def write_tallies(sessions: Sessions, run_id: str, file: IO[bytes]) -> None:
    """Write the valid tallies of groups that are not stored, in key order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [(name, pa.string()) for name in TALLY_TEXTS]
    columns += [(name, pa.int32()) for name in TALLY_PLACE]
    columns += [(name, pa.int64()) for name in TALLY_COUNTS] + [("reward", pa.float64())]
    schema = pa.schema(columns)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _tallies(sessions, run_id):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _tallies(sessions: Sessions, run_id: str) -> Iterator[list[dict[str, Any]]]:
    key = tuple(getattr(GroupTally, name) for name in ("kind", *TALLY_PLACE))
    names = (*TALLY_TEXTS, *TALLY_PLACE, *TALLY_COUNTS, "reward")
    query = select(*(getattr(GroupTally, name) for name in names)).order_by(*key).limit(ROWS_AT_ONCE)
    is_stored = GroupTally.marks.bitwise_and(BIT_BY_MARK["stored"])
    last_key: Sequence[Any] = ("", -1, -1, -1, -1)
    while True:
        with open_read_session(sessions) as session:
            limits = load_limits(session, [run_id]).get(run_id, ())
            conditions = (
                GroupTally.run_id == run_id,
                valid_row_condition(GroupTally, limits),
                is_stored == 0,
            )
            rows = session.execute(query.where(*conditions, tuple_(*key) > last_key)).all()
        yield [row._asdict() for row in rows]
        if len(rows) < ROWS_AT_ONCE:
            return
        last_key = tuple(getattr(rows[-1], name) for name in ("kind", *TALLY_PLACE))


def write_prompts(sessions: Sessions, run_id: str, file: IO[bytes]) -> list[str]:
    """Write the prompts of the run by id; return sentences about damaged texts, which are left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [(name, pa.string()) for name in (*PROMPT_TEXTS, *PROMPT_EXACT)]
    columns += [(exact_name(name), pa.binary()) for name in PROMPT_EXACT]
    schema = pa.schema(columns)
    query = select(RunPrompt).where(RunPrompt.run_id == run_id).order_by(RunPrompt.id).limit(PROMPTS_AT_ONCE)
    last_id: str | None = None
    missing_texts: list[str] = []
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while True:
            with open_read_session(sessions) as session:
                next_page = query if last_id is None else query.where(RunPrompt.id > last_id)
                rows = session.scalars(next_page).all()
            prompts = []
            for row in rows:
                texts = {name: try_unpack_text(getattr(row, name)) for name in PROMPT_EXACT}
                prompts.append(_prompt(row, {name: text for name, (text, _) in texts.items()}))
                missing_texts += [
                    f"prompt {row.id[:200]}, {name}: damaged, and left out ({reason})"
                    for name, (_, reason) in texts.items()
                    if reason
                ]
            writer.write_table(pa.Table.from_pylist(prompts, schema=schema))
            if len(rows) < PROMPTS_AT_ONCE:
                return missing_texts
            last_id = rows[-1].id


def _prompt(row: RunPrompt, texts: dict[str, str]) -> dict[str, Any]:
    return {**{name: getattr(row, name) for name in PROMPT_TEXTS}, **with_exact(texts)}
