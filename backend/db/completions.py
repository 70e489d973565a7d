"""Completions out of SQL: from the block of their group, or from rows that no one has converted yet."""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import zstandard
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.db.completion import DIGITS, ID, Completion
from backend.db.completion_codec import LIMIT_TEXT_BYTES, WHOLE, CompletionsDamaged, Want, decode
from backend.db.models import Rollout, RolloutAlias, RolloutGroup

GROUPS_AT_ONCE = 500
"""Named in one statement."""

PIECE = 64
"""Groups whose completions are in memory at a time where many are looked through."""

logger = logging.getLogger(__name__)

_damage: dict[str, str] = {}
_lock = threading.Lock()


def completions_of(
    session: Session, group_ids: Sequence[str], want: Want = WHOLE
) -> dict[str, list[Completion]]:
    """The completions of some groups, in order; none of a group whose block is damaged: see `damage_of`."""
    found: dict[str, list[Completion]] = {}
    for start in range(0, len(group_ids), GROUPS_AT_ONCE):
        blocks, rest = _blocks(session, group_ids[start : start + GROUPS_AT_ONCE])
        if rest:
            rows = of_rows(session, rest)
            found |= rows
            if gone := [each for each in rest if each not in rows]:  # converted between the two statements
                blocks |= _blocks(session, gone)[0]
        found |= {group: completions_in(group, block, want) for group, block in blocks.items()}
    return found


def in_pieces(
    session: Session, group_ids: Sequence[str], want: Want = WHOLE
) -> Iterator[tuple[str, list[Completion]]]:
    """The same group by group, in the order of the ids: some at a time are in memory."""
    for start in range(0, len(group_ids), PIECE):
        piece = group_ids[start : start + PIECE]
        found = completions_of(session, piece, want)
        yield from ((group, found.get(group, [])) for group in piece)


def _blocks(session: Session, group_ids: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
    """The blocks of some groups, and the groups that have none."""
    query = select(RolloutGroup.id, RolloutGroup.completions).where(RolloutGroup.id.in_(group_ids))
    rows = session.execute(query).all()
    return {row[0]: row[1] for row in rows if row[1] is not None}, [row[0] for row in rows if row[1] is None]


def completions_in(group_id: str, block: bytes, want: Want = WHOLE) -> list[Completion]:
    """The completions of a block; none where it is damaged, and a note is left."""
    try:
        found = decode(group_id, block, want)
    except CompletionsDamaged as error:
        _notice(group_id, str(error))
        return []
    if group_id in _damage:
        with _lock:
            _damage.pop(group_id, None)
    return found


def damage_of(group_id: str) -> str:
    """The reason why a group's completions could not be read the last time; "" where they could."""
    return _damage.get(group_id, "")


def _notice(group_id: str, reason: str) -> None:
    with _lock:
        is_new = group_id not in _damage
        _damage[group_id] = reason
    if is_new:
        logger.error("the completions of group %s are damaged: %s", group_id, reason)


def of_rows(session: Session, group_ids: Sequence[str]) -> dict[str, list[Completion]]:
    """The completions of groups that earlier versions stored, as rows."""
    columns: Any = Rollout.__table__.columns
    query = select(*columns).where(Rollout.group_id.in_(group_ids))
    found: dict[str, list[Completion]] = {}
    for row in session.execute(query.order_by(Rollout.group_id, Rollout.position)):
        try:
            found.setdefault(row.group_id, []).append(_of_row(row))
        except (zstandard.ZstdError, ValueError) as error:
            _notice(row.group_id, f"completion {row.id}: {error}")
    return found


def _of_row(row: Any) -> Completion:
    size = zstandard.frame_content_size(row.text)  # the library believes it, whatever most it is given
    if not 0 <= size <= LIMIT_TEXT_BYTES:
        raise CompletionsDamaged(
            f"its text says that it holds {size} bytes, expected at most {LIMIT_TEXT_BYTES}"
        )
    raw = zstandard.ZstdDecompressor().decompress(row.text)
    made = Completion(
        row.group_id,
        row.position,
        raw.decode("utf-8", "surrogatepass"),
        row.reward,
        row.advantage,
        row.tokens,
        row.finish_reason,
        row.correct,
        row.rewards,
        row.flags,
        row.turns,
        row.non_finite,
    )
    is_derived = ID.fullmatch(row.group_id) and made.id == row.id
    return made if is_derived else made._replace(own_id=row.id)


def completion_named(session: Session, each_id: str) -> Completion | None:
    """The completion with an id; None where there is none, or its group's block is damaged."""
    if not ID.fullmatch(each_id):
        return None
    group = session.scalar(select(RolloutAlias.group_id).where(RolloutAlias.id == each_id))
    group = group or session.scalar(select(Rollout.group_id).where(Rollout.id == each_id))
    group = group or _group_before(session, each_id)
    found = completions_of(session, [group]).get(group, []) if group else []
    return next((each for each in found if each.id == each_id), None)


def _group_before(session: Session, each_id: str) -> str | None:
    """The group of a step from whose number on the id may be counted."""
    ids = select(RolloutGroup.id).where(RolloutGroup.id.between(each_id[:-DIGITS], each_id))
    return session.scalar(ids.order_by(RolloutGroup.id.desc()).limit(1))


def completions_named(session: Session, ids: Sequence[str]) -> dict[str, Completion]:
    """The completions with some ids."""
    found = {each_id: completion_named(session, each_id) for each_id in ids}
    return {each_id: one for each_id, one in found.items() if one is not None}
