"""The packing of completions that earlier versions stored as rows: each group's into its block, bit by bit.

A transaction packs some groups and removes their rows: whatever kills it, a completion is in a row or in a
block. What was packed is unpacked and compared before the rows go.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.db.completion import Completion
from backend.db.completion_codec import CompletionsDamaged, decode, encode
from backend.db.completions import of_rows
from backend.db.engine import Sessions, reading
from backend.db.models import Rollout, RolloutAlias, RolloutGroup

GROUPS_AT_ONCE = 64
"""Groups that one transaction packs."""
MOST_BYTES = 8_000_000
"""Of one transaction's texts, but for a single group that has more."""

logger = logging.getLogger(__name__)


def is_unconverted(session: Session) -> bool:
    """Whether there are completions in rows."""
    return session.scalar(select(Rollout.id).limit(1)) is not None


def convert(sessions: Sessions) -> Iterator[None]:
    """Pack what is in rows, one transaction after another; a process that is killed loses the last one.

    A group that cannot be packed stays as it is; when the database is away or full, all others do.
    """
    last = ""
    while True:
        try:
            with reading(sessions) as session:
                groups = _next_groups(session, last)
            if not groups:
                return
            with sessions.begin() as session:
                _convert(session, groups)
        except SQLAlchemyError as error:
            logger.warning("completions cannot be packed: %s", str(error).splitlines()[0])
            return
        last = groups[-1]
        yield


def _next_groups(session: Session, last: str) -> Sequence[str]:
    """Groups behind the last one that fit into one transaction, at least one."""
    size = func.sum(func.length(Rollout.clean_text))
    query = select(Rollout.group_id, size).where(Rollout.group_id > last).group_by(Rollout.group_id)
    rows = session.execute(query.order_by(Rollout.group_id).limit(GROUPS_AT_ONCE)).all()
    total = 0
    fitting: list[str] = []
    for group, characters in rows:
        total += characters or 0
        if fitting and total > MOST_BYTES:
            break
        fitting.append(group)
    return fitting


def _convert(session: Session, groups: Sequence[str]) -> None:
    own = select(RolloutGroup.id).where(RolloutGroup.id.in_(groups), RolloutGroup.completions.is_(None))
    locked = session.scalars(own.with_for_update()).all()  # nobody deletes or packs them meanwhile
    counts = _rows_of(session, locked)
    packed = {}
    for group, completions in of_rows(session, locked).items():
        try:
            packed[group] = _packed(group, completions, counts[group])
        except ValueError as error:
            logger.warning("the completions of group %s stay in rows: %s", group, error)
    if not packed:
        return
    connection = session.connection()
    table: Any = RolloutGroup.__table__
    connection.execute(
        update(table).where(table.c.id == bindparam("group")).values(completions=bindparam("block")),
        [{"group": group, "block": block} for group, (block, _) in packed.items()],
    )
    if aliases := [row for _, rows in packed.values() for row in rows]:
        connection.execute(insert(RolloutAlias), aliases)
    rows = delete(Rollout).where(Rollout.group_id.in_(list(packed)))
    session.execute(rows, execution_options={"synchronize_session": False})


def _rows_of(session: Session, groups: Sequence[str]) -> dict[str, int]:
    """The number of rows that each group has, those that cannot be read among them."""
    query = select(Rollout.group_id, func.count()).where(Rollout.group_id.in_(groups))
    return {row[0]: row[1] for row in session.execute(query.group_by(Rollout.group_id))}


def _packed(group: str, completions: Sequence[Completion], rows: int) -> tuple[bytes, list[dict[str, str]]]:
    """The block of a group, and the ids that do not follow from it; raises ValueError."""
    if len(completions) != rows:
        raise CompletionsDamaged(f"{rows - len(completions)} of its {rows} rows cannot be read")
    block = encode(completions)
    if decode(group, block) != list(completions):
        raise CompletionsDamaged("what was packed is not what was read")
    return block, [{"id": each.own_id, "group_id": group} for each in completions if each.own_id]
