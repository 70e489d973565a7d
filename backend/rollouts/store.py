"""Store rollouts in the database; groups are packed before the transaction, so that it is short."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from backend.base.text import clean_text
from backend.rollouts.packing import Tokens, pack_text, pack_tokens
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.tallies import prompt_row, tally_rows
from backend.storage.completion import NUMBER_DIGITS, Completion, base32
from backend.storage.completion_codec import encode
from backend.storage.engine import insert_into
from backend.storage.models import GroupTally, RolloutGroup, RolloutTokens, RunPrompt
from backend.storage.numbers import FINITE, spell, spell_all, to_stored

MAX_SQUARABLE_REWARD = 1e150
"""Absolute reward above which squares may overflow, so that slower exact arithmetic is used."""


@dataclass(frozen=True, slots=True)
class PackedGroups:
    """Rows that are ready to be inserted."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    rollouts: list[tuple[str, str]] = field(default_factory=list)
    """Ids of the completions, which are stored in the rows of their groups, and ids of these groups."""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    tallies: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)

    def extend(self, packed_groups: "PackedGroups") -> None:
        """Append the rows of other groups."""
        for column in fields(self):
            getattr(self, column.name).extend(getattr(packed_groups, column.name))


def pack_groups(
    run_id: str,
    step: int,
    attempt: int,
    groups: Iterable[GroupRecord],
    *,
    counted_groups: Iterable[GroupRecord] = (),
    with_tokens: bool = True,
) -> PackedGroups:
    """Return the rows for the groups of a step. Ids are derived from the run, the step and the group.

    Only tallies and prompts are stored for the groups in `counted_groups`.
    """
    packed_groups = PackedGroups()
    ids_of_row = {"run_id": run_id, "step": step, "attempt": attempt}
    for group in counted_groups:
        packed_groups.tallies.extend(tally_rows(group, is_stored=False, **ids_of_row))
        packed_groups.prompts.append(prompt_row(group, run_id))
    for group in groups:
        number = _group_number(run_id, attempt, group.kind, group.prompt_index)
        group_id = _group_id(run_id, step, number)
        completions = [
            _stored_completion(completion, group_id, position)
            for position, completion in enumerate(group.completions)
        ]
        row = _group_row(group, id=group_id, completions=encode(completions), **ids_of_row)
        packed_groups.groups.append(row)
        packed_groups.rollouts.extend((completion.id, group_id) for completion in completions)
        packed_groups.tallies.extend(tally_rows(group, is_stored=True, **ids_of_row))
        packed_groups.prompts.append(prompt_row(group, run_id))
        if with_tokens and any(len(completion.token_strings) for completion in group.completions):
            packed_groups.tokens.append({"group_id": group_id, "data": pack_tokens(_group_tokens(group))})
    return packed_groups


def write_groups(session: Session, packed_groups: PackedGroups) -> None:
    """Store packed groups, except those that are already stored."""
    connection = session.connection()  # without the ORM, because plain rows do not need objects
    for table, rows in (
        (RolloutGroup, packed_groups.groups),
        (RolloutTokens, packed_groups.tokens),
        (GroupTally, packed_groups.tallies),
        (RunPrompt, packed_groups.prompts),
    ):
        if rows:
            connection.execute(insert_into(session, table.__table__).on_conflict_do_nothing(), rows)


def _group_row(group: GroupRecord, **ids_of_row: Any) -> dict[str, Any]:
    mean, deviation = _mean_and_std([c.reward for c in group.completions if c.reward is not None])
    return {
        **ids_of_row,
        "kind": group.kind,
        "prompt_index": group.prompt_index,
        "prompt_id": clean_text(group.prompt_id),
        "problem": clean_text(group.problem),
        "domain": clean_text(group.domain),
        "prompt": pack_text(group.prompt),
        "answer": pack_text(group.answer),
        "reward_mean": mean,
        "reward_std": deviation,
        "left_out": group.left_out,
    }


def _mean_and_std(rewards: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and population standard deviation of the finite rewards; None if there are none."""
    finite = [float(reward) for reward in rewards if math.isfinite(reward)]
    if not finite:
        return None, None
    if max(map(abs, finite)) > MAX_SQUARABLE_REWARD:
        return statistics.mean(finite), statistics.pstdev(finite)
    mean = math.fsum(finite) / len(finite)
    return mean, math.sqrt(math.fsum((reward - mean) ** 2 for reward in finite) / len(finite))


def _stored_completion(completion: CompletionRecord, group_id: str, position: int) -> Completion:
    numbers = {"reward": completion.reward, "advantage": completion.advantage}
    known_numbers = {name: float(value) for name, value in numbers.items() if value is not None}
    stored_numbers = {name: to_stored(value) for name, value in known_numbers.items()}
    return Completion(
        group_id,
        position,
        completion.text,
        reward=stored_numbers["reward"].value if "reward" in stored_numbers else None,
        advantage=stored_numbers["advantage"].value if "advantage" in stored_numbers else None,
        tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        correct=completion.correct,
        rewards=spell_all({name: _plain_number(value) for name, value in completion.rewards.items()}),
        flags=list(completion.flags),
        turns=list(completion.turns),
        non_finite={
            name: spell(known_numbers[name]) for name, (kind, _) in stored_numbers.items() if kind != FINITE
        },
    )


def _plain_number(value: float | None) -> float | None:
    """Return a value as a Python float, because JSON encoders do not support NumPy types."""
    return None if value is None else float(value)


def _group_tokens(group: GroupRecord) -> list[Tokens]:
    """Return the tokens of each completion; empty if its token strings were not recorded."""
    return [
        Tokens(completion.token_strings, np.asarray(completion.token_ids, np.int32), completion.arrays)
        if len(completion.token_strings)
        else Tokens((), np.empty(0, np.int32))
        for completion in group.completions
    ]


def _group_number(*group_key: Any) -> int:
    """Return a number of 50 bits that is derived from the position of a group."""
    return int.from_bytes(sha256(repr(group_key).encode()).digest()[:7], "big") >> 6


def _group_id(run_id: str, step: int, number: int) -> str:
    """Return an id of 26 characters from run, step and number; the ids of a step are adjacent."""
    return run_id[:10] + base32(step, 3) + base32(number, NUMBER_DIGITS // 2)
