"""Search in completions: the query of those that match, and the place in their text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    and_,
    case,
    cast,
    exists,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import TSQUERY, array
from sqlalchemy.orm import Session

from backend.db.engine import is_postgres
from backend.db.models import Rollout, RolloutGroup
from backend.db.rollout_words import LONGEST_WORD, SHIFT, TABLE, is_common_beginning, words_table
from backend.rollouts.labels import labels_of
from backend.rollouts.search_query import Term
from backend.rollouts.search_scope import Scope

BEFORE, BEHIND = 80, 160
"""Characters of a snippet around the first place that matches."""
MOST_MARKS = 50

MOST_OF_BEGINNING = 50_000
"""Places of the words with a beginning up to which SQLite's index is asked for them."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some groups of a scope, which are searched at a time: by place, or one of every so many."""

    first: tuple[int, str] | None = None
    last: tuple[int, str] | None = None
    """Step and id, both included; None: no bound."""
    numbers: Sequence[int] | None = None
    """Their numbers in the index, in order."""
    every: int = 1

    def of_groups(self) -> list[ColumnElement[bool]]:
        """SQL conditions on groups."""
        place = tuple_(RolloutGroup.step, RolloutGroup.id)
        found: list[ColumnElement[bool]] = []
        if self.first is not None and self.last is not None:
            steps = RolloutGroup.step.between(self.first[0], self.last[0])
            found += [steps, place >= self.first, place <= self.last]
        if self.every > 1:
            found.append(RolloutGroup.search_number % self.every == 0)
        return found

    def of_numbers(self, number: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """SQL conditions on numbers in Postgres's index."""
        found: list[ColumnElement[bool]] = []
        if self.numbers is not None:  # by name: groups of neighbouring steps may be far apart
            found.append(number == func.any(array(self.numbers, type_=BigInteger)))
        if self.every > 1:  # by name: else each row of the table is looked at
            own = select(RolloutGroup.search_number).where(RolloutGroup.search_number % self.every == 0)
            found.append(number == func.any(func.array(own.scalar_subquery())))
        return found


WHOLE = Part()


def waiting(session: Session, scope: Scope) -> int:
    """Groups of the scope that are not in the index yet."""
    query = select(func.count()).where(*scope.of_groups(session), RolloutGroup.search_number.is_(None))
    return session.scalar(query) or 0


def matching(
    session: Session, scope: Scope, terms: Sequence[Term], *columns: Any, part: Part = WHOLE
) -> Select[Any]:
    """Columns of the completions that match, with their groups; `terms` as `planned`."""
    conditions = [*scope.of_groups(session), *part.of_groups(), *scope.of_completions()]
    conditions += [_exact(session, term) for term in terms if term.is_exact]
    conditions += [_read(term) for term in terms if term.is_read]
    wanted, unwanted = _of_index(terms)
    in_group = Rollout.group_id == RolloutGroup.id
    if wanted:
        hits = _hits(session, wanted, unwanted, part).cte(nesting=True).prefix_with("MATERIALIZED")
        query = select(*columns).select_from(hits)
        query = query.join(RolloutGroup, RolloutGroup.search_number == hits.c.number)
        query = query.join(Rollout, and_(in_group, Rollout.position == hits.c.position))
        # Without an index to use, databases begin with the hits instead of reading them all for each group.
        return query.where(case((and_(*conditions), 1), else_=0) == 1)
    query = select(*columns).select_from(RolloutGroup).join(Rollout, in_group)
    for term in unwanted:
        hits = _hits(session, [term], [], part).cte(nesting=True).prefix_with("MATERIALIZED")
        place = tuple_(RolloutGroup.search_number, Rollout.position)
        conditions.append(place.not_in(select(hits.c.number, hits.c.position)))
    return query.where(*conditions)


def is_rare(session: Session, terms: Sequence[Term], most: int) -> bool:
    """Whether the words alone leave at most so many completions of all runs."""
    wanted, unwanted = _of_index(terms)
    if not wanted:
        return False
    some = _hits(session, wanted, unwanted, WHOLE).limit(most + 1).subquery()
    return (session.scalar(select(func.count()).select_from(some)) or 0) <= most


def planned(session: Session, terms: Sequence[Term]) -> Sequence[Term]:
    """The terms, those marked for which texts are read in place of the index."""
    return [
        replace(term, is_read=True)
        if term.is_prefix and is_common_beginning(session, term.words[-1], MOST_OF_BEGINNING)
        else term
        for term in terms
    ]


def _of_index(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """The terms that the index is asked for: wanted and unwanted ones."""
    wanted = [term for term in terms if term.whole_words and not term.is_not]
    return wanted, [term for term in terms if term.is_not and not term.is_exact and not term.is_read]


def _read(term: Term) -> ColumnElement[bool]:
    is_there = Rollout.clean_text.regexp_match(f"(?i){term.pattern().pattern}")
    return not_(is_there) if term.is_not else is_there


def _exact(session: Session, term: Term) -> ColumnElement[bool]:
    find_text = func.strpos if is_postgres(session) else func.instr
    is_there: ColumnElement[bool] = find_text(Rollout.clean_text, term.text) > 0
    return not_(is_there) if term.is_not else is_there


def _hits(session: Session, wanted: Sequence[Term], unwanted: Sequence[Term], part: Part) -> Select[Any]:
    """Number and position of the completions in which every wanted and no unwanted term is."""
    if is_postgres(session):
        found = select(words_table.c.number, words_table.c.position).where(
            *map(_on_postgres, wanted), *(not_(_on_postgres(term)) for term in unwanted)
        )
        return found.where(*part.of_numbers(words_table.c.number))
    rowid: ColumnElement[int] = literal_column(f"{TABLE}.rowid", Integer)
    number = rowid.bitwise_rshift(SHIFT)
    found = (
        select(number.label("number"), rowid.bitwise_and((1 << SHIFT) - 1).label("position"))
        .select_from(words_table)
        .where(literal_column(TABLE).op("MATCH")(_fts5(wanted, unwanted)))
    )
    if part.numbers is not None:  # of the row's id, which FTS5 goes to at once
        first, last = part.numbers[0], part.numbers[-1]
        found = found.where(rowid.between(first << SHIFT, ((last + 1) << SHIFT) - 1))
    return found.where(number % part.every == 0) if part.every > 1 else found


def _fts5(wanted: Sequence[Term], unwanted: Sequence[Term]) -> str:
    """The expression for FTS5, which takes the words out of a term as it took them out of the texts."""
    found = " AND ".join(map(_of_fts5, wanted))
    return f"({found}) NOT ({' OR '.join(map(_of_fts5, unwanted))})" if unwanted else found


def _of_fts5(term: Term) -> str:
    if term.is_exact:
        return "(" + " AND ".join(f'"{word}"' for word in term.words) + ")"
    if term.is_read:
        return f'"{" ".join(term.whole_words)}"'
    inner = term.text.replace('"', " ")
    return f'"{inner}"{" *" if term.is_prefix else ""}'


def _on_postgres(term: Term) -> ColumnElement[bool]:
    words = [f"'{word[:LONGEST_WORD]}'" for word in term.words]
    if term.is_prefix:
        words[-1] += ":*"
    column: Any = words_table.c.words
    has_all: ColumnElement[bool] = column.op("@@")(cast(" & ".join(words), TSQUERY))
    if len(words) == 1 or term.is_exact:
        return has_all
    # Positions of a long text are not all known: it is read itself.
    inner = "[^[:alnum:]]+".join(term.words) + ("" if term.is_prefix else "($|[^[:alnum:]])")
    in_text = exists().where(
        RolloutGroup.search_number == words_table.c.number,
        Rollout.group_id == RolloutGroup.id,
        Rollout.position == words_table.c.position,
        Rollout.clean_text.op("~*")(f"(^|[^[:alnum:]]){inner}"),
    )
    near = column.op("@@")(cast(" <-> ".join(words), TSQUERY))
    return or_(near, and_(has_all, words_table.c.is_long == true(), in_text))


def shown(session: Session, rows: Sequence[Any], terms: Sequence[Term]) -> list[dict[str, Any]]:
    """Completions as the HTTP interface shows them: schemas.FoundItem."""
    ids = [row.rollout_id for row in rows]
    query = select(Rollout, RolloutGroup).join(RolloutGroup, Rollout.group_id == RolloutGroup.id)
    found = {row[0].id: row for row in session.execute(query.where(Rollout.id.in_(ids)))}
    labels = labels_of(session, ids)
    patterns = [term.pattern() for term in terms if not term.is_not]
    return [_shown(*found[each], labels.get(each, []), patterns) for each in ids if each in found]


def _shown(
    rollout: Rollout, group: RolloutGroup, labels: list[dict[str, Any]], patterns: Sequence[re.Pattern[str]]
) -> dict[str, Any]:
    return {
        "id": rollout.id,
        "group": group.id,
        "run": group.run_id,
        "step": group.step,
        "kind": group.kind,
        "prompt_index": group.prompt_index,
        "prompt_id": group.prompt_id,
        "position": rollout.position,
        "reward": rollout.non_finite.get("reward", rollout.reward),
        "correct": rollout.correct,
        "tokens": rollout.tokens,
        "finish_reason": rollout.finish_reason,
        "flags": rollout.flags,
        "labels": labels,
        "snippet": snippet_of(rollout.clean_text, patterns),
    }


def snippet_of(content: str, patterns: Sequence[re.Pattern[str]]) -> dict[str, Any]:
    """A piece of a text around the first place that matches: schemas.Snippet."""
    firsts = [found.start() for pattern in patterns if (found := pattern.search(content))]
    at = min(firsts, default=0)
    start, end = max(0, at - BEFORE), min(len(content), at + BEHIND)
    piece = content[start:end]
    places = [found.span() for pattern in patterns for found in islice(pattern.finditer(piece), MOST_MARKS)]
    return {
        "text": piece,
        "marks": [list(each) for each in _joined(places)],
        "is_start": start == 0,
        "is_end": end == len(content),
    }


def _joined(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places in order, those that touch in one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found
