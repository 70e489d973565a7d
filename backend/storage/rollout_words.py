"""The full-text index over completions: FTS5 on SQLite, tsvector with GIN on Postgres.

The reconciler fills it, group by group; a trainer that writes rollouts pays nothing for it. A group has a
number in the index (`RolloutGroup.search_number`), and its completions have that number and their position:

    SQLite      rollout_words(words), FTS5 without content; rowid = number << 16 | position
    Postgres    rollout_words(number, position, words, is_long); rows go with their group by a foreign key

Whatever removes groups calls `forget` before: SQLite refuses virtual tables in triggers of a schema that may
be a stranger's. The index is not part of what a backup promises: a restore empties it, and it fills again.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, column, func, select, table, text, update
from sqlalchemy.orm import Session

from backend.storage.completions import load_completions
from backend.storage.engine import Sessions, is_postgres, reading
from backend.storage.models import RolloutGroup

TABLE = "rollout_words"
SHIFT = 16
"""Number of bits for a completion's position in a rowid of SQLite."""

GROUPS_AT_ONCE = 64
"""Maximum number of groups that one transaction indexes; fewer if their texts are long."""
MAX_BYTES_PACKED = 1_000_000
"""Maximum packed size of the groups in one transaction, in bytes; a single larger group is still indexed."""

WORD = re.compile(r"[^\W_]+")
"""A word: letters and digits. All other characters separate words."""

LAST_POSITION = 16_383
"""Last position of a word that Postgres can store."""
MAX_POSITIONS = 255
"""Most positions of one word that Postgres stores; phrases in longer completions are searched in the text."""
LONGEST_WORD = 500
"""Longest word that Postgres indexes, in characters; a longer word is cut."""
MAX_BYTES = 900_000
"""Maximum size of one tsvector, in bytes; additional words are not indexed."""

words_table = table(TABLE, column("number"), column("position"), column("words"), column("is_long"))

FILL_SQLITE = text("INSERT INTO rollout_words (rowid, words) VALUES (:number << 16 | :position, :text)")
FILL_POSTGRES = text(
    "INSERT INTO rollout_words (number, position, words, is_long) "
    "VALUES (:number, :position, CAST(:words AS tsvector), :is_long)"
)
CREATE_SQLITE = text(
    "CREATE VIRTUAL TABLE rollout_words USING fts5"
    "(words, content='', tokenize='unicode61 remove_diacritics 0')"
)
READ_TERMS = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.rollout_terms "
    "USING fts5vocab('main', 'rollout_words', 'instance')"
)
"""Statement that creates a view of SQLite's index by word, for this connection only."""


def is_index(name: str) -> bool:
    """Return whether a table belongs to the index and so has no class in storage/models.py."""
    return name == TABLE or name.startswith(f"{TABLE}_")


def split_words(content: str) -> list[str]:
    """Return the words of a text in lower case, as they are compared."""
    return WORD.findall(content.lower())


def is_common_prefix(session: Session, beginning: str, limit: int) -> bool:
    """Return whether words with this prefix occur more than `limit` times in all texts; only on SQLite.

    FTS5 would collect every occurrence of every such word before it returns the first one.
    """
    if is_postgres(session):
        return False
    session.execute(text(READ_TERMS))
    query = text(
        "SELECT count(*) FROM (SELECT 1 FROM temp.rollout_terms "
        "WHERE term >= :first AND term < :behind LIMIT :most)"
    )
    bounds = {"first": beginning, "behind": f"{beginning}\U0010ffff", "most": limit + 1}
    return (session.scalar(query, bounds) or 0) > limit


_UNINDEXED = select(RolloutGroup.id).where(RolloutGroup.search_number.is_(None)).limit(1)


def has_unindexed_groups(session: Session) -> bool:
    """Return whether some groups are not in the index."""
    return session.scalar(_UNINDEXED) is not None


def index_groups(sessions: Sessions) -> Iterator[None]:
    """Index the remaining groups, one transaction after another; a killed process loses only the last one."""
    while True:
        with reading(sessions) as session:
            groups = _next_groups(session)
        if not groups:
            return
        with sessions.begin() as session:
            _index(session, groups)
        yield


def _next_groups(session: Session) -> Sequence[str]:
    """Return the groups that fit into one transaction, at least one."""
    query = select(RolloutGroup.id).where(RolloutGroup.search_number.is_(None)).limit(GROUPS_AT_ONCE)
    ids = sorted(session.scalars(query))
    size = func.coalesce(func.length(RolloutGroup.completions), 0)
    lengths = select(RolloutGroup.id, size).where(RolloutGroup.id.in_(ids))
    sizes: dict[str, int] = {row[0]: row[1] for row in session.execute(lengths)}
    total = 0
    fitting: list[str] = []
    for group_id in ids:
        total += sizes.get(group_id, 0)
        if fitting and total > MAX_BYTES_PACKED:
            break
        fitting.append(group_id)
    return fitting


def _index(session: Session, ids: Sequence[str]) -> None:
    query = select(RolloutGroup.id).where(RolloutGroup.id.in_(ids), RolloutGroup.search_number.is_(None))
    unnumbered = sorted(session.scalars(query.with_for_update()))
    if not unnumbered:
        return
    first = _newest_number(session) + 1  # after the wait for another process that numbers the same groups
    numbers = {group: first + at for at, group in enumerate(unnumbered)}
    connection = session.connection()
    connection.execute(
        update(RolloutGroup.__table__)  # type: ignore[arg-type]
        .where(RolloutGroup.__table__.c.id == bindparam("group"))
        .values(search_number=bindparam("place")),
        [{"group": group, "place": number} for group, number in numbers.items()],
    )
    rows = [
        {
            "number": numbers[group],
            "position": completion.position,
            **_index_row(session, completion.clean_text),
        }
        for group, completions in load_completions(session, list(numbers)).items()
        for completion in completions
    ]
    if rows:
        connection.execute(FILL_POSTGRES if is_postgres(session) else FILL_SQLITE, rows)


def _newest_number(session: Session) -> int:
    """Return the largest number still in use, so that no number is assigned twice."""
    newest = session.scalar(select(func.max(RolloutGroup.search_number))) or 0
    if is_postgres(session):
        return newest
    rowid = session.scalar(text("SELECT rowid FROM rollout_words ORDER BY rowid DESC LIMIT 1")) or 0
    return max(newest, int(rowid) >> SHIFT)


def _index_row(session: Session, content: str) -> dict[str, Any]:
    return make_tsvector(content) if is_postgres(session) else {"text": content}


def make_tsvector(content: str) -> dict[str, Any]:
    """Return the words of a text in the notation of a tsvector, and whether positions were lost (`is_long`).

    Postgres's parser is not used because it would drop `<think>` as a tag and parse `+1` as a number.
    """
    positions: dict[str, list[int]] = defaultdict(list)
    is_long, size = False, 0
    for position, word in enumerate(split_words(content), 1):
        positions_of_word = positions[word[:LONGEST_WORD]]
        size += 2 if positions_of_word else 2 * len(word[:LONGEST_WORD].encode()) + 8
        if size > MAX_BYTES:
            is_long = True
            break
        if position > LAST_POSITION or len(positions_of_word) >= MAX_POSITIONS or len(word) > LONGEST_WORD:
            is_long = True
        positions_of_word.append(min(position, LAST_POSITION))
        del positions_of_word[MAX_POSITIONS:]
    words = " ".join(f"'{word}':{','.join(map(str, places))}" for word, places in positions.items() if places)
    return {"words": words, "is_long": is_long}


def forget(session: Session, groups: ColumnElement[bool]) -> None:
    """Remove groups from the index before they are deleted; on Postgres a foreign key does so."""
    if is_postgres(session):
        return
    query = select(RolloutGroup.id, RolloutGroup.search_number)
    indexed = session.execute(query.where(groups, RolloutGroup.search_number.is_not(None)))
    numbers = {row[0]: row[1] or 0 for row in indexed}
    rows = [
        {"number": numbers[group], "position": completion.position, "text": completion.clean_text}
        for group, completions in load_completions(session, list(numbers)).items()
        for completion in completions
    ]
    if rows:
        session.connection().execute(
            text(
                "INSERT INTO rollout_words (rollout_words, rowid, words) "
                "VALUES ('delete', :number << 16 | :position, :text)"
            ),
            rows,
        )


def reset(connection: Connection) -> None:
    """Empty the index, which is then filled again from the start."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("TRUNCATE rollout_words"))
    else:
        connection.execute(text("DROP TABLE rollout_words"))
        connection.execute(CREATE_SQLITE)
    connection.execute(
        update(RolloutGroup).where(RolloutGroup.search_number.is_not(None)).values(search_number=None)
    )
