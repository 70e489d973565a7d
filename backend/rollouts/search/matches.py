"""Find the completions that match a search, in order.

The index returns candidates, whose texts are then read if necessary. Without filters and exact strings, the
index is sufficient and no texts are read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, case, func, select, tuple_
from sqlalchemy.orm import Session

from backend.rollouts.reading import has_tally
from backend.rollouts.search.hits import (
    ALL_GROUPS,
    CompletionPlace,
    GroupRange,
    index_terms,
    is_phrase,
    select_hits,
)
from backend.rollouts.search.query import Term
from backend.rollouts.search.scope import Scope
from backend.storage.completion import Completion
from backend.storage.completion_codec import CompletionSelection
from backend.storage.completions import load_completions
from backend.storage.engine import is_postgres
from backend.storage.models import RolloutGroup
from backend.storage.rollout_words import POSITION_BITS

INITIAL_GROUPS, MAX_GROUPS = 16, 256
"""Initial and maximum number of groups read at a time; the first groups may already fill the page."""

Test = Callable[[Completion], bool]


@dataclass(frozen=True, slots=True)
class Page:
    """The requested part of the matches: start position, direction and maximum number."""

    behind: CompletionPlace | None = None
    is_descending: bool = False
    limit: int | None = None

    def is_in(self, completion_place: CompletionPlace) -> bool:
        """Return whether a place is after the start position."""
        return self.behind is None or (
            completion_place < self.behind if self.is_descending else completion_place > self.behind
        )


ALL_MATCHES = Page()


def find_matches(
    session: Session,
    scope: Scope,
    terms: Sequence[Term],
    groups: GroupRange = ALL_GROUPS,
    page: Page = ALL_MATCHES,
) -> Iterator[CompletionPlace]:
    """Yield the places of the matching completions, in page order; `terms` must come from `plan_terms`."""
    required_terms, _ = index_terms(terms)
    completion_places = (_matches_by_words if required_terms else _matches_by_groups)(
        session, scope, terms, groups, page
    )
    for count, completion_place in enumerate(completion_places):
        if count == page.limit:
            return
        yield completion_place


def is_decided_by_index(session: Session, scope: Scope, terms: Sequence[Term]) -> bool:
    """Return whether the index is sufficient, so that no texts have to be read."""
    return bool(index_terms(terms)[0]) and not (
        make_test(session, scope, terms) or _make_long_test(session, terms)
    )


def count_in_index(session: Session, scope: Scope, terms: Sequence[Term], limit: int) -> int:
    """Return the number of matching completions, up to `limit`; requires that the index is sufficient."""
    hits = _indexed_matches(session, scope, terms, ALL_GROUPS, ALL_MATCHES).limit(limit).subquery()
    return session.scalar(select(func.count()).select_from(hits)) or 0


def _indexed_matches(
    session: Session, scope: Scope, terms: Sequence[Term], groups: GroupRange, page: Page
) -> Select[Any]:
    """Return the query for step, group, position and `is_long` of the completions that the index finds."""
    hits = select_hits(session, *index_terms(terms), groups).cte(nesting=True).prefix_with("MATERIALIZED")
    query = select(RolloutGroup.step, RolloutGroup.id, hits.c.position, hits.c.is_long).select_from(hits)
    query = query.join(RolloutGroup, RolloutGroup.search_number == hits.c.number)
    conditions = [*scope.group_conditions(session), *groups.group_conditions()]
    if page.behind is not None:
        sort_key = tuple_(RolloutGroup.step, RolloutGroup.id, hits.c.position)
        conditions.append(sort_key < page.behind if page.is_descending else sort_key > page.behind)
    # A condition that no index covers makes databases start with the hits instead of reading them per group.
    return query.where(case((and_(*conditions), 1), else_=0) == 1)


def _matches_by_words(
    session: Session, scope: Scope, terms: Sequence[Term], groups: GroupRange, page: Page
) -> Iterator[CompletionPlace]:
    test, test_long = make_test(session, scope, terms), _make_long_test(session, terms)
    selection = _make_selection(terms, reads_text=test_long is not None)
    query = _indexed_matches(session, scope, terms, groups, page)
    if page is not ALL_MATCHES or test is not None or test_long is not None:
        columns = list(query.selected_columns)[:3]
        query = query.order_by(*(column.desc() if page.is_descending else column.asc() for column in columns))
    if test is None and test_long is None:
        query = query.limit(page.limit) if page.limit is not None else query
        yield from ((row[0], row[1], row[2]) for row in session.execute(query))
        return
    for rows in _pieces(session.execute(query).all()):
        group_ids = {row.id for row in rows if test is not None or row.is_long}
        by_group = load_completions(session, list(group_ids), selection)
        for step, group, position, is_long in rows:
            if group not in group_ids:
                yield step, group, position
                continue
            completion = _completion_at(by_group.get(group, ()), position)
            if completion is None or (test is not None and not test(completion)):
                continue
            if not is_long or test_long is None or test_long(completion):
                yield step, group, position


def _completion_at(completions: Sequence[Completion], position: int) -> Completion | None:
    if position < len(completions) and completions[position].position == position:
        return completions[position]
    return next((completion for completion in completions if completion.position == position), None)


def _pieces(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    start, size = 0, INITIAL_GROUPS
    while start < len(rows):
        yield rows[start : start + size]
        start, size = start + size, min(2 * size, MAX_GROUPS)


def _matches_by_groups(
    session: Session, scope: Scope, terms: Sequence[Term], groups: GroupRange, page: Page
) -> Iterator[CompletionPlace]:
    """Match completions without index words: read all completions except those with an unwanted word."""
    test = make_test(session, scope, terms)
    excluded_patterns = [
        (term.pattern(), _find_keys(session, term, groups)) for term in index_terms(terms)[1]
    ]
    selection = _make_selection(terms, reads_text=bool(excluded_patterns))
    for rows in _pieces(_select_groups(session, scope, groups, page)):
        by_group = load_completions(session, [row.id for row in rows], selection)
        for step, group, number in rows:
            if excluded_patterns and number is None:
                continue
            completions = by_group.get(group, [])
            for completion in reversed(completions) if page.is_descending else completions:
                completion_place = (step, group, completion.position)
                key = (number or 0) << POSITION_BITS | completion.position
                if not page.is_in(completion_place) or (test is not None and not test(completion)):
                    continue
                if not any(
                    _contains_unwanted(completion, pattern, keys.get(key))
                    for pattern, keys in excluded_patterns
                ):
                    yield completion_place


def _contains_unwanted(completion: Completion, pattern: Any, is_long: bool | None) -> bool:  # noqa: FBT001 - of the index
    """Return whether a completion contains an unwanted term; `is_long` is None if it is not a hit."""
    return is_long is not None and (not is_long or bool(pattern.search(completion.clean_text)))


def _find_keys(session: Session, term: Term, groups: GroupRange) -> dict[int, bool]:
    """Return the completions with a term as keys, and whether their text must be checked."""
    rows = session.execute(select_hits(session, [term], [], groups))
    needs_text = is_phrase(term)
    return {
        number << POSITION_BITS | position: needs_text and bool(is_long) for number, position, is_long in rows
    }


def _make_selection(terms: Sequence[Term], *, reads_text: bool) -> CompletionSelection:
    strings = tuple(term.text for term in terms if term.is_exact and not term.is_not)
    return CompletionSelection(reads_text or any(term.is_exact or term.is_read for term in terms), strings)


def _select_groups(session: Session, scope: Scope, groups: GroupRange, page: Page) -> Sequence[Any]:
    """Return step, id and number of the groups in which a completion may match."""
    columns = (RolloutGroup.step, RolloutGroup.id)
    conditions = [
        *scope.group_conditions(session),
        *groups.group_conditions(),
        *has_tally(scope.filter.tally_conditions()),
    ]
    if page.behind is not None:
        sort_key = tuple_(*columns)
        conditions.append(sort_key <= page.behind[:2] if page.is_descending else sort_key >= page.behind[:2])
    query = select(*columns, RolloutGroup.search_number).where(*conditions)
    order = [column.desc() if page.is_descending else column.asc() for column in columns]
    return session.execute(query.order_by(*order)).all()


def make_test(session: Session, scope: Scope, terms: Sequence[Term]) -> Test | None:
    """Return a function that tests a completion, or None if all completions pass."""
    labelled_ids = scope.load_labelled_ids(session) if scope.label else None
    exact_terms = [term for term in terms if term.is_exact]
    read_patterns = [(term.pattern(), term.is_not) for term in terms if term.is_read]
    if labelled_ids is None and not exact_terms and not read_patterns and not scope.filter.is_of_completions:
        return None

    def test(completion: Completion) -> bool:
        if not scope.filter.passes(completion) or (
            labelled_ids is not None and completion.id not in labelled_ids
        ):
            return False
        text = completion.clean_text if exact_terms or read_patterns else ""
        return all((term.text in text) != term.is_not for term in exact_terms) and all(
            (pattern.search(text) is not None) != is_not for pattern, is_not in read_patterns
        )

    return test


def _make_long_test(session: Session, terms: Sequence[Term]) -> Test | None:
    """Return a function that tests a text whose word positions are not all indexed, or None."""
    required_terms, excluded_terms = index_terms(terms)
    phrases = [
        (term.pattern(), term.is_not) for term in (*required_terms, *excluded_terms) if is_phrase(term)
    ]
    if not phrases or not is_postgres(session):
        return None

    def test(completion: Completion) -> bool:
        return all(
            (pattern.search(completion.clean_text) is not None) != is_not for pattern, is_not in phrases
        )

    return test
