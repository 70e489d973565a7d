"""Search in completions: which match, how many at each step, and the place in their text."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Select,
    and_,
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
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.orm import Session

from backend.db.engine import is_postgres
from backend.db.models import Rollout, RolloutGroup
from backend.db.rollout_words import LONGEST_WORD, SHIFT, TABLE, words_table
from backend.http.paging import read_cursor
from backend.rollouts.labels import labels_of
from backend.rollouts.search_query import Term
from backend.rollouts.search_scope import Scope

BEFORE, BEHIND = 80, 160
"""Characters of a snippet around the first place that matches."""
MOST_MARKS = 50

ORDERS = ("step", "-step")

PLACE = (RolloutGroup.step, RolloutGroup.id, Rollout.position)
PLACE_KINDS = (int, str, int)


def find(
    session: Session, scope: Scope, terms: Sequence[Term], *, sort: str, limit: int, cursor: str
) -> Sequence[Any]:
    """One page of (RolloutGroup.id, Rollout.id, step, position) and one more."""
    query = matching(session, scope, terms, *PLACE, Rollout.id.label("rollout_id"), needs_rollout=True)
    is_descending = sort.startswith("-")
    if place := read_cursor(cursor, *PLACE_KINDS, order=sort):
        here = tuple_(*PLACE)
        query = query.where(here < tuple(place) if is_descending else here > tuple(place))
    ways = [each.desc() if is_descending else each.asc() for each in PLACE]
    return session.execute(query.order_by(*ways).limit(limit + 1)).all()


def counts_by_step(session: Session, scope: Scope, terms: Sequence[Term]) -> list[dict[str, Any]]:
    """Counts of completions that match at each step, of how many: schemas.StepCount."""
    step, count = RolloutGroup.step, func.count()
    everything = matching(session, scope, (), step, count).group_by(step)
    total = dict(map(tuple, session.execute(everything)))
    if not terms:
        return [{"step": each, "matched": total[each], "of": total[each]} for each in sorted(total)]
    found = matching(session, scope, terms, step, count).group_by(step)
    matched = dict(map(tuple, session.execute(found)))
    return [{"step": each, "matched": matched.get(each, 0), "of": total[each]} for each in sorted(total)]


def waiting(session: Session, scope: Scope) -> int:
    """Groups of the scope that are not in the index yet."""
    query = select(func.count()).where(*scope.of_groups(session), RolloutGroup.search_number.is_(None))
    return session.scalar(query) or 0


def matching(
    session: Session, scope: Scope, terms: Sequence[Term], *columns: Any, needs_rollout: bool = False
) -> Select[Any]:
    """Columns of the completions that match, with their groups."""
    conditions = [*scope.of_groups(session), *scope.of_completions()]
    conditions += [_exact(session, term) for term in terms if term.is_exact]
    wanted = [term for term in terms if term.words and not term.is_not]
    unwanted = [term for term in terms if term.is_not and not term.is_exact]
    in_group = Rollout.group_id == RolloutGroup.id
    if wanted:
        hits = _hits(session, wanted, unwanted)
        query = select(*columns).select_from(hits)
        query = query.join(RolloutGroup, RolloutGroup.search_number == hits.c.number)
        if needs_rollout or scope.of_completions() or any(term.is_exact for term in terms):
            query = query.join(Rollout, and_(in_group, Rollout.position == hits.c.position))
        return query.where(*conditions)
    query = select(*columns).select_from(RolloutGroup).join(Rollout, in_group)
    for term in unwanted:
        hits = _hits(session, [term], [])
        place = tuple_(RolloutGroup.search_number, Rollout.position)
        conditions.append(place.not_in(select(hits.c.number, hits.c.position)))
    return query.where(*conditions)


def _exact(session: Session, term: Term) -> ColumnElement[bool]:
    find_text = func.strpos if is_postgres(session) else func.instr
    is_there: ColumnElement[bool] = find_text(Rollout.clean_text, term.text) > 0
    return not_(is_there) if term.is_not else is_there


def _hits(session: Session, wanted: Sequence[Term], unwanted: Sequence[Term]) -> CTE:
    """Number and position of the completions in which every wanted and no unwanted term is."""
    if is_postgres(session):
        found = select(words_table.c.number, words_table.c.position).where(
            *map(_on_postgres, wanted), *(not_(_on_postgres(term)) for term in unwanted)
        )
    else:
        rowid = f"{TABLE}.rowid"
        found = (
            select(
                literal_column(f"{rowid} >> {SHIFT}").label("number"),
                literal_column(f"{rowid} & {(1 << SHIFT) - 1}").label("position"),
            )
            .select_from(words_table)
            .where(literal_column(TABLE).op("MATCH")(_fts5(wanted, unwanted)))
        )
    return found.cte(nesting=True).prefix_with("MATERIALIZED")


def _fts5(wanted: Sequence[Term], unwanted: Sequence[Term]) -> str:
    """The expression for FTS5, which takes the words out of a term as it took them out of the texts."""
    found = " AND ".join(map(_of_fts5, wanted))
    return f"({found}) NOT ({' OR '.join(map(_of_fts5, unwanted))})" if unwanted else found


def _of_fts5(term: Term) -> str:
    if term.is_exact:
        return "(" + " AND ".join(f'"{word}"' for word in term.words) + ")"
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
