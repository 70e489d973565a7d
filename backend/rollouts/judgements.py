"""Import judgements, which are labels of completions, from JSON lines, and report the refused rows."""

import tempfile
from collections.abc import Iterator
from typing import IO, Any

import orjson
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field, ValidationError
from sqlalchemy import select

from backend.http.upload import receive
from backend.rollouts.labels import MAX_LABELS, LabelRequest
from backend.storage.completions import find_completions
from backend.storage.engine import Sessions, insert_into
from backend.storage.models import RolloutGroup, RolloutLabel

MAX_BYTES = 8_000_000
MAX_ROWS = 50_000
MAX_LINE_BYTES = 20_000
"""Maximum length of a line, in bytes."""
MAX_SHOWN = 100
"""Maximum number of refused rows that the report lists."""
ROWS_AT_ONCE = 500
ROLE = "import"


class Judgement(LabelRequest):
    """A line of the imported file."""

    rollout: str = Field(min_length=1, max_length=26)
    """Id of the completion."""


async def import_judgements(request: Request, sessions: Sessions, *, max_bytes: int) -> dict[str, Any]:
    """Store the judgements in the body of a request, and return a `schemas.ImportedJudgements`."""
    with tempfile.SpooledTemporaryFile(max_bytes) as draft:
        await receive(request, draft, max_bytes)
        return await run_in_threadpool(_store, draft, sessions)


def _store(file: IO[bytes], sessions: Sessions) -> dict[str, Any]:
    """Store the valid rows; importing the same file again changes nothing."""
    report = _Report()
    batch: list[tuple[int, Judgement]] = []
    for number, judgement in _rows(file, report):
        batch.append((number, judgement))
        if len(batch) == ROWS_AT_ONCE:
            _store_block(sessions, batch, report)
            batch = []
    _store_block(sessions, batch, report)
    return report.as_json()


class _Report:
    def __init__(self) -> None:
        self.rows = self.stored = self.unchanged = self._refused_rows = 0
        self._refused: list[dict[str, Any]] = []

    def refuse(self, row: int, reason: str) -> None:
        self._refused_rows += 1
        if len(self._refused) < MAX_SHOWN:
            self._refused.append({"row": row, "reason": reason})

    def as_json(self) -> dict[str, Any]:
        """Return the report as `schemas.ImportedJudgements`."""
        rejected_rows = sorted(self._refused, key=lambda refusal: refusal["row"])
        counts = {"rows": self.rows, "stored": self.stored, "unchanged": self.unchanged}
        return {**counts, "refused": rejected_rows, "refused_rows": self._refused_rows}


def _rows(file: IO[bytes], report: _Report) -> Iterator[tuple[int, Judgement]]:
    file.seek(0)
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number > MAX_ROWS:
            report.refuse(number, f"and all after it: at most {MAX_ROWS:,} rows are read")
            return
        if len(line) > MAX_LINE_BYTES:
            report.refuse(
                number, f"has more than {MAX_LINE_BYTES:,} bytes; it and all after it were not read"
            )
            return
        if not line.strip():
            continue
        report.rows += 1
        try:
            yield number, Judgement.model_validate(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            report.refuse(number, f"is not JSON: {error}"[:300])
        except ValidationError as error:
            first = error.errors()[0]
            report.refuse(number, f"{'.'.join(map(str, first['loc']))}: {first['msg']}".strip(": ")[:300])


def _store_block(sessions: Sessions, block: list[tuple[int, Judgement]], report: _Report) -> None:
    if not block:
        return
    ids = {judgement.rollout for _, judgement in block}
    with sessions.begin() as session:
        group_by_completion = {
            rollout_id: completion.group_id
            for rollout_id, completion in find_completions(session, sorted(ids)).items()
        }
        runs = select(RolloutGroup.id, RolloutGroup.run_id)
        groups = runs.where(RolloutGroup.id.in_(set(group_by_completion.values()))).order_by(RolloutGroup.id)
        run_by_group: dict[str, str] = {row[0]: row[1] for row in session.execute(groups)}
        notes: dict[str, dict[str, str]] = {rollout_id: {} for rollout_id in group_by_completion}
        query = select(RolloutLabel.rollout_id, RolloutLabel.label, RolloutLabel.note)
        for rollout_id, label, note in session.execute(query.where(RolloutLabel.rollout_id.in_(ids))):
            notes[rollout_id][label] = note
        for number, judgement in block:
            notes_by_label = notes.get(judgement.rollout)
            if notes_by_label is None:
                report.refuse(number, f"there is no completion {judgement.rollout!r}")
            elif judgement.label in notes_by_label:
                if notes_by_label[judgement.label] == judgement.note:
                    report.unchanged += 1
                else:
                    report.refuse(
                        number, f"the completion has the label {judgement.label!r} with another note"
                    )
            elif len(notes_by_label) >= MAX_LABELS:
                report.refuse(number, f"the completion has {MAX_LABELS} labels already")
            else:
                group = group_by_completion[judgement.rollout]
                ids_of_row = {
                    "rollout_id": judgement.rollout,
                    "group_id": group,
                    "run_id": run_by_group[group],
                }
                row = {**ids_of_row, "label": judgement.label, "note": judgement.note, "role": ROLE}
                statement = insert_into(session, RolloutLabel).values(**row)
                session.execute(statement.on_conflict_do_nothing())
                notes_by_label[judgement.label] = judgement.note
                report.stored += 1
