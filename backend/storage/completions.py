"""Read completions from the encoded groups in the database."""

import logging
import threading
from collections.abc import Iterator, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.storage.completion import ID_PATTERN, NUMBER_DIGITS, Completion
from backend.storage.completion_codec import ALL_COMPLETIONS, CompletionsDamaged, CompletionSelection, decode
from backend.storage.models import RolloutGroup

MAX_GROUPS_PER_STATEMENT = 500
"""Maximum number of groups that one statement reads."""

GROUPS_IN_MEMORY = 64
"""Number of groups whose completions `iterate_completions` holds in memory at a time."""

logger = logging.getLogger(__name__)

_damage_by_group: dict[str, str] = {}
_lock = threading.Lock()


def load_completions(
    session: Session, group_ids: Sequence[str], selection: CompletionSelection = ALL_COMPLETIONS
) -> dict[str, list[Completion]]:
    """Return the completions of each group, in the order of positions, or none for a damaged group."""
    completions: dict[str, list[Completion]] = {}
    for start in range(0, len(group_ids), MAX_GROUPS_PER_STATEMENT):
        ids = group_ids[start : start + MAX_GROUPS_PER_STATEMENT]
        query = select(RolloutGroup.id, RolloutGroup.completions).where(RolloutGroup.id.in_(ids))
        for group_id, block in session.execute(query):
            completions[group_id] = decode_block(group_id, block, selection)
    return completions


def iterate_completions(
    session: Session, group_ids: Sequence[str], selection: CompletionSelection = ALL_COMPLETIONS
) -> Iterator[tuple[str, list[Completion]]]:
    """Yield each group's id and completions, in the order of `group_ids`, with little memory."""
    for start in range(0, len(group_ids), GROUPS_IN_MEMORY):
        ids = group_ids[start : start + GROUPS_IN_MEMORY]
        completions = load_completions(session, ids, selection)
        yield from ((group_id, completions.get(group_id, [])) for group_id in ids)


def decode_block(
    group_id: str, block: bytes, selection: CompletionSelection = ALL_COMPLETIONS
) -> list[Completion]:
    """Return the completions of a block. If it is damaged, return none and record the damage."""
    try:
        completions = decode(group_id, block, selection)
    except CompletionsDamaged as error:
        _record_damage(group_id, str(error))
        return []
    if group_id in _damage_by_group:
        with _lock:
            _damage_by_group.pop(group_id, None)
    return completions


def damage_reason(group_id: str) -> str:
    """Return the reason why a group's last decoding failed, or "" if it succeeded."""
    return _damage_by_group.get(group_id, "")


def _record_damage(group_id: str, reason: str) -> None:
    with _lock:
        is_new = group_id not in _damage_by_group
        _damage_by_group[group_id] = reason
    if is_new:
        logger.error("the completions of group %s are damaged: %s", group_id, reason)


def find_completion(session: Session, completion_id: str) -> Completion | None:
    """Return the completion with this id, or None if it does not exist or its group is damaged."""
    if not ID_PATTERN.fullmatch(completion_id):
        return None
    group_id = _group_before(session, completion_id)
    completions = load_completions(session, [group_id]).get(group_id, []) if group_id else []
    return next((completion for completion in completions if completion.id == completion_id), None)


def _group_before(session: Session, completion_id: str) -> str | None:
    """Return the id of the group that may contain a completion: the last one that is not above its id."""
    ids = select(RolloutGroup.id).where(
        RolloutGroup.id.between(completion_id[:-NUMBER_DIGITS], completion_id)
    )
    return session.scalar(ids.order_by(RolloutGroup.id.desc()).limit(1))


def find_completions(session: Session, ids: Sequence[str]) -> dict[str, Completion]:
    """Return the completions with these ids, by id. Missing and damaged completions are omitted."""
    completions = (find_completion(session, completion_id) for completion_id in ids)
    return {completion.id: completion for completion in completions if completion is not None}
