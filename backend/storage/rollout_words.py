"""The full-text index of completions: FTS5 on SQLite, tsvector with GIN on Postgres.

The reconciler fills it, group by group, so that it does not slow down trainers. Each group has a number in
the index (`RolloutGroup.search_number`), and its completions are identified by that number and their
position:

    SQLite      rollout_words(words), FTS5 without content; rowid = number << 16 | position
    Postgres    rollout_words(number, position, words, is_long); a foreign key deletes rows with their group

Code that deletes groups must call `remove_from_index` first, because SQLite refuses virtual tables in the
triggers of an untrusted schema. The index is not part of a backup: a restore empties it, and the reconciler
fills it again.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, column, func, select, table, text, update
from sqlalchemy.orm import Session

from backend.storage.completions import load_completions
from backend.storage.engine import Sessions, is_postgres, open_read_session
from backend.storage.models import RolloutGroup

INDEX_TABLE = "rollout_words"
POSITION_BITS = 16
"""Number of bits of an SQLite rowid that hold the completion's position."""

MAX_GROUPS_PER_TRANSACTION = 64
"""Maximum number of groups that one transaction indexes. It indexes fewer if their texts are long."""
MAX_PACKED_BYTES = 1_000_000
"""Maximum packed size of the groups in one transaction, in bytes. A single larger group is still indexed."""

WORD_PATTERN = re.compile(r"[^\W_]+")
"""Pattern of a word, which consists of letters and digits. All other characters separate words."""

MAX_WORD_POSITION = 16_383
"""Largest position of a word that Postgres can store."""
MAX_POSITIONS_PER_WORD = 255
"""Maximum number of positions of a word that Postgres stores. Phrases in completions
that exceed a limit are searched in the text.
"""
MAX_WORD_CHARACTERS = 500
"""Maximum length of a word that Postgres indexes, in characters. A longer word is truncated."""
MAX_TSVECTOR_BYTES = 900_000
"""Maximum size of a tsvector, in bytes. Words that exceed it are not indexed."""

words_table = table(INDEX_TABLE, column("number"), column("position"), column("words"), column("is_long"))

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
"""Statement that creates a temporary table of the occurrences of each word in SQLite's index."""


def is_index(name: str) -> bool:
    """Return whether a table belongs to the index and therefore has no class in storage/models.py."""
    return name == INDEX_TABLE or name.startswith(f"{INDEX_TABLE}_")


def split_words(content: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD_PATTERN.findall(content.lower())


def is_common_prefix(session: Session, prefix: str, limit: int) -> bool:
    """Return whether words with this prefix occur more than `limit` times in all texts. False on Postgres.

    FTS5 would collect every occurrence of all these words before it returns the first one.
    """
    if is_postgres(session):
        return False
    session.execute(text(READ_TERMS))
    query = text(
        "SELECT count(*) FROM (SELECT 1 FROM temp.rollout_terms "
        "WHERE term >= :first AND term < :behind LIMIT :most)"
    )
    bounds = {"first": prefix, "behind": f"{prefix}\U0010ffff", "most": limit + 1}
    return (session.scalar(query, bounds) or 0) > limit


_UNINDEXED = select(RolloutGroup.id).where(RolloutGroup.search_number.is_(None)).limit(1)


def has_unindexed_groups(session: Session) -> bool:
    """Return whether some groups are not in the index."""
    return session.scalar(_UNINDEXED) is not None


def index_groups(sessions: Sessions) -> Iterator[None]:
    """Index the remaining groups, and yield after each transaction, which keeps its groups indexed."""
    while True:
        with open_read_session(sessions) as session:
            groups = _next_groups(session)
        if not groups:
            return
        with sessions.begin() as session:
            _index(session, groups)
        yield


def _next_groups(session: Session) -> Sequence[str]:
    """Return the ids of the next groups to index in one transaction, at least one if any remain."""
    query = (
        select(RolloutGroup.id).where(RolloutGroup.search_number.is_(None)).limit(MAX_GROUPS_PER_TRANSACTION)
    )
    ids = sorted(session.scalars(query))
    size = func.coalesce(func.length(RolloutGroup.completions), 0)
    lengths = select(RolloutGroup.id, size).where(RolloutGroup.id.in_(ids))
    sizes: dict[str, int] = {row[0]: row[1] for row in session.execute(lengths)}
    total = 0
    fitting_ids: list[str] = []
    for group_id in ids:
        total += sizes.get(group_id, 0)
        if fitting_ids and total > MAX_PACKED_BYTES:
            break
        fitting_ids.append(group_id)
    return fitting_ids


def _index(session: Session, ids: Sequence[str]) -> None:
    query = select(RolloutGroup.id).where(RolloutGroup.id.in_(ids), RolloutGroup.search_number.is_(None))
    unnumbered_ids = sorted(session.scalars(query.with_for_update()))
    if not unnumbered_ids:
        return
    first_number = (
        _newest_number(session) + 1
    )  # read after the row locks, because another process may have numbered groups
    numbers = {group: first_number + index for index, group in enumerate(unnumbered_ids)}
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
    return max(newest, int(rowid) >> POSITION_BITS)


def _index_row(session: Session, content: str) -> dict[str, Any]:
    return make_tsvector(content) if is_postgres(session) else {"text": content}


def make_tsvector(content: str) -> dict[str, Any]:
    """Return the words of a text in the syntax of a tsvector, and whether positions were lost (`is_long`).

    Postgres's parser is not used because it would drop `<think>` as a tag and parse `+1` as a number.
    """
    positions: dict[str, list[int]] = defaultdict(list)
    is_long, size = False, 0
    for position, word in enumerate(split_words(content), 1):
        word_positions = positions[word[:MAX_WORD_CHARACTERS]]
        size += 2 if word_positions else 2 * len(word[:MAX_WORD_CHARACTERS].encode()) + 8
        if size > MAX_TSVECTOR_BYTES:
            is_long = True
            break
        if (
            position > MAX_WORD_POSITION
            or len(word_positions) >= MAX_POSITIONS_PER_WORD
            or len(word) > MAX_WORD_CHARACTERS
        ):
            is_long = True
        word_positions.append(min(position, MAX_WORD_POSITION))
        del word_positions[MAX_POSITIONS_PER_WORD:]
    tsvector = " ".join(
        f"'{word}':{','.join(map(str, position_list))}"
        for word, position_list in positions.items()
        if position_list
    )
    return {"words": tsvector, "is_long": is_long}


def remove_from_index(session: Session, groups: ColumnElement[bool]) -> None:
    """Remove groups from SQLite's index before they are deleted. On Postgres a foreign key removes them."""
    if is_postgres(session):
        return
    query = select(RolloutGroup.id, RolloutGroup.search_number)
    indexed_rows = session.execute(query.where(groups, RolloutGroup.search_number.is_not(None)))
    numbers = {row[0]: row[1] or 0 for row in indexed_rows}
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


def empty_index(connection: Connection) -> None:
    """Empty the index. The reconciler then fills it again."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("TRUNCATE rollout_words"))
    else:
        connection.execute(text("DROP TABLE rollout_words"))
        connection.execute(CREATE_SQLITE)
    connection.execute(
        update(RolloutGroup).where(RolloutGroup.search_number.is_not(None)).values(search_number=None)
    )
