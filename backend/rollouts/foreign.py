"""Store completions of other trainers as rollouts: texts, rewards and advantages, without tokens."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from backend.rollouts.records import GroupRecord
from backend.rollouts.store import PackedGroups, pack_groups, write_groups
from backend.rollouts.tallies import group_condition
from backend.storage.completion_codec import decode
from backend.storage.completions import load_completions
from backend.storage.models import GroupTally, RolloutGroup, RolloutLabel
from backend.storage.rollout_words import remove_from_index

Split = Literal["train", "eval"]

MAX_COMPLETIONS = 1_024
"""Maximum number of completions in a group."""

ATTEMPT = 1
"""Attempt number of all rows: a repeated step replaces its values, even if the trainer has restarted."""


FINISH_REASON_PATTERN = r"^\w{0,16}$"
"""Pattern of the reason why a completion ended, in the sampler's term; archives accept stored values."""


def clean_finish_reason(text: str) -> str:
    """Return the finish reason in the form in which it is stored."""
    return re.sub(r"\W", "_", text)


def pack_foreign(run_id: str, step: int, groups: Sequence[GroupRecord]) -> PackedGroups:
    """Return the rows for the groups of a step."""
    return pack_groups(run_id, step, ATTEMPT, groups, with_tokens=False)


def replace_groups(session: Session, packed_groups: PackedGroups) -> None:
    """Store packed groups; if a group is already stored, the new completions replace it.

    A completion with unchanged text keeps its labels.
    """
    ids = [row["id"] for row in packed_groups.groups]
    blocks = {row["id"]: row["completions"] for row in packed_groups.groups}
    labels: list[dict[str, Any]] = []
    for start in range(0, len(ids), 500):
        is_replaced = RolloutGroup.id.in_(ids[start : start + 500])
        labels += _kept_labels(session, ids[start : start + 500], blocks)
        remove_from_index(session, is_replaced)
        session.execute(delete(RolloutGroup).where(is_replaced))
        session.execute(delete(GroupTally).where(group_condition(packed_groups.groups[start : start + 500])))
    write_groups(session, packed_groups)
    if labels:
        session.execute(insert(RolloutLabel), labels)


def _kept_labels(
    session: Session, groups: Sequence[str], blocks: Mapping[str, bytes]
) -> list[dict[str, Any]]:
    """Return the labels of completions whose text is unchanged."""
    stored_ids = select(RolloutGroup.id).where(RolloutGroup.id.in_(groups))
    session.execute(stored_ids.with_for_update())  # locked, so that no labels can be added meanwhile
    query = select(RolloutLabel.__table__).where(RolloutLabel.group_id.in_(groups))
    rows = [dict(row._mapping) for row in session.execute(query)]  # noqa: SLF001
    labelled_ids = sorted({row["group_id"] for row in rows})
    old_texts = {
        completion.id: completion.text
        for completions in load_completions(session, labelled_ids).values()
        for completion in completions
    }
    new_texts = {
        completion.id: completion.text
        for group in labelled_ids
        for completion in decode(group, blocks[group])
    }
    unchanged_ids = {
        rollout_id for rollout_id, text in old_texts.items() if new_texts.get(rollout_id) == text
    }
    return [row for row in rows if row["rollout_id"] in unchanged_ids]
