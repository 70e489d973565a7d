"""Tallies of groups: numbers of completions by marks and reward, even if no completions are stored.

Counts over all steps of a run, and pass rates of prompts over time, read these few small rows and no texts.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import tuple_
from sqlalchemy.sql.elements import ColumnElement

from backend.base.text import clean_text
from backend.rollouts.marks import completion_marks, group_marks
from backend.rollouts.packing import pack_text
from backend.rollouts.records import GroupRecord
from backend.storage.models import GroupTally
from backend.storage.numbers import to_stored


def tally_rows(group: GroupRecord, *, is_stored: bool, **ids_of_row: Any) -> list[dict[str, Any]]:
    """Return one row for each combination of marks and reward in a group."""
    shared_marks = group_marks(
        [completion.reward for completion in group.completions], group.left_out, is_stored=is_stored
    )
    tallies: dict[tuple[int, float | None], list[int]] = {}
    for completion in group.completions:
        reward = None if completion.reward is None else to_stored(completion.reward).value
        counts = tallies.setdefault((completion_marks(completion) | shared_marks, reward), [0, 0])
        counts[0] += 1
        counts[1] += len(completion.token_ids)
    return [
        {
            **ids_of_row,
            "kind": group.kind,
            "prompt_index": group.prompt_index,
            "number": number,
            "prompt_id": clean_text(group.prompt_id),
            "marks": marks,
            "reward": reward,
            "completions": completions,
            "tokens": tokens,
        }
        for number, ((marks, reward), (completions, tokens)) in enumerate(tallies.items())
    ]


def prompt_row(group: GroupRecord, run_id: str) -> dict[str, Any]:
    """Return the row for the prompt of a group, which is stored once per run."""
    return {
        "run_id": run_id,
        "id": clean_text(group.prompt_id),
        "problem": clean_text(group.problem),
        "domain": clean_text(group.domain),
        "prompt": pack_text(group.prompt),
        "answer": pack_text(group.answer),
    }


def group_condition(rows: Iterable[dict[str, Any]]) -> ColumnElement[bool]:
    """Return the SQL condition that a tally belongs to one of these groups, which are given as rows."""
    table = GroupTally
    columns = tuple_(table.run_id, table.kind, table.step, table.prompt_index, table.attempt)
    names = ("run_id", "kind", "step", "prompt_index", "attempt")
    return columns.in_([tuple(row[name] for name in names) for row in rows])
