"""Pages of a search and its counts over steps, in bounded time however often the words occur.

Rare words: the index names the completions, which are few. Common ones, and searches without words: groups
are gone through in the order of the page, part by part, until the page is full or the time is over; the next
page continues there. Counts are then those of evenly chosen groups.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from backend.http.paging import read_cursor
from backend.rollouts.search.hits import WHOLE, CompletionPlace, GroupRange, is_rare, plan_terms
from backend.rollouts.search.matches import Page, count_in_index, find_matches, is_decided_by_index
from backend.rollouts.search.query import Term
from backend.rollouts.search.scope import Scope
from backend.storage.models import GroupTally, RolloutGroup

RARE = 5_000
"""Completions of all runs that the index is asked for at once."""
MAX_COUNTED = 20_000
"""Completions that are counted of a search whose words are common."""
PROBED = 16
"""One of so many groups of a count is read first, for its pace."""
FIRST_PART, LARGEST_PART = 256, 4_096
"""Groups that are gone through at a time."""
SECONDS = 0.5
"""After so long no further part is begun."""

ORDERS = ("step", "-step")

PLACE_KINDS = (int, str, int)
LAST_POSITION = 2**15 - 1


class FoundPage(NamedTuple):
    """A page of places."""

    rows: Sequence[CompletionPlace]
    next: CompletionPlace | None
    """Behind which the next page begins; None: there is none."""
    searched_to: int | None
    """Step at which the time was over; None if it was not."""


class Counts(NamedTuple):
    """Counts of completions over steps."""

    items: list[dict[str, int]]
    """schemas.StepCount"""
    every: int
    """One of so many groups was counted; 1: all."""


def find(
    session: Session, scope: Scope, terms: Sequence[Term], *, sort: str, limit: int, cursor: str
) -> FoundPage:
    """Return one page of completions, in the order of step, group and position."""
    is_descending = sort.startswith("-")
    after = _parse_cursor(read_cursor(cursor, *PLACE_KINDS, order=sort))
    rows: list[CompletionPlace] = []
    terms = plan_terms(session, terms)
    if is_rare(session, terms, RARE):
        rows += find_matches(session, scope, terms, WHOLE, Page(after, is_descending, limit + 1))
    else:
        until = time.monotonic() + SECONDS
        for groups, is_last in _group_ranges(session, scope, after, is_descending, until):
            page = Page(after, is_descending, limit + 1 - len(rows))
            rows += find_matches(session, scope, terms, groups, page)
            if len(rows) > limit:
                break
            if not is_last and time.monotonic() > until:
                step, group = groups.first if is_descending else groups.last  # type: ignore[misc]
                return FoundPage(rows, (step, group, -1 if is_descending else LAST_POSITION), step)
    if len(rows) <= limit:
        return FoundPage(rows, None, None)
    return FoundPage(rows[:limit], rows[limit - 1], None)


def _parse_cursor(cursor: Sequence[Any] | None) -> CompletionPlace | None:
    return None if cursor is None else (cursor[0], cursor[1], cursor[2])


def _group_ranges(
    session: Session,
    scope: Scope,
    after: CompletionPlace | None,
    is_descending: bool,  # noqa: FBT001
    until: float,
) -> Iterator[tuple[GroupRange, bool]]:
    """Yield the groups of a scope from a place on, in order, and whether these are the last ones."""
    columns = (RolloutGroup.step, RolloutGroup.id)
    ways = [column.desc() if is_descending else column.asc() for column in columns]
    query = select(*columns, RolloutGroup.search_number).order_by(*ways)
    size, sort_key = FIRST_PART, tuple_(*columns)
    if after is not None:
        scope = scope.narrow(session)
        step, group = after[:2]  # the rest of this group comes, too
        query = query.where(sort_key <= (step, group) if is_descending else sort_key >= (step, group))
    began = time.monotonic()
    while rows := session.execute(query.where(*scope.of_groups(session)).limit(size)).all():
        ends = [(row.step, row.id) for row in (rows[0], rows[-1])]
        numbers = sorted(row.search_number for row in rows if row.search_number is not None)
        first, last = sorted(ends)
        is_last = len(rows) < size
        yield GroupRange(first, last, numbers or [0]), is_last
        if is_last:
            return
        query = query.where(sort_key < ends[1] if is_descending else sort_key > ends[1])
        scope = scope.narrow(session)
        now = time.monotonic()
        size, began = _next_size(size, now - began, until - now), now


def _next_size(size: int, took: float, left: float) -> int:
    """Four times as many groups, but for what the time that is left allows at the pace of the last ones."""
    return int(max(FIRST_PART, min(4 * size, LARGEST_PART, size * left / max(took, 1e-6))))


def counts_by_step(session: Session, scope: Scope, terms: Sequence[Term]) -> Counts:
    """Counts of completions that match at each step, of all that are stored there."""
    count = func.sum(GroupTally.completions)
    query = select(GroupTally.step, count).where(*scope.of_tallies(session)).group_by(GroupTally.step)
    stored: dict[int, int] = {row[0]: int(row[1]) for row in session.execute(query)}
    sampled = WHOLE
    terms = plan_terms(session, terms)
    if not is_rare(session, terms, RARE):
        sampled = replace(WHOLE, every=math.ceil(sum(stored.values()) / MAX_COUNTED) or 1)
        groups = _read_counted_groups(session, scope, sampled)
        sampled = replace(sampled, numbers=sorted(group.number for group in groups) or [0])
        if scope.filter.is_of_completions or any(term.is_exact or term.is_read for term in terms):
            sampled = _affordable_groups(session, scope, terms, sampled)
        if sampled.every > 1:
            stored = Counter()
            for group in (counted for counted in groups if counted.number % sampled.every == 0):
                stored[group.step] += group.completions
    matched = Counter(
        completion_place[0] for completion_place in find_matches(session, scope, terms, sampled)
    )
    items = [{"step": step, "matched": matched.get(step, 0), "of": stored[step]} for step in sorted(stored)]
    return Counts(items, sampled.every)


class _CountedGroup(NamedTuple):
    """A group that is counted."""

    number: int
    """Group's number in the index."""
    step: int
    completions: int


def _read_counted_groups(session: Session, scope: Scope, sampled: GroupRange) -> Sequence[_CountedGroup]:
    """Return the groups of the part that are in the index."""
    names = ("run_id", "kind", "step", "prompt_index", "attempt")
    same = [getattr(GroupTally, name) == getattr(RolloutGroup, name) for name in names]
    # Not joined: SQLite would then look for the tallies of a group by the bounds of the scope's steps.
    completions = (
        select(func.sum(GroupTally.completions)).where(*same).correlate(RolloutGroup).scalar_subquery()
    )
    query = select(RolloutGroup.search_number, RolloutGroup.step, completions)
    query = query.where(
        *scope.of_groups(session), *sampled.of_groups(), RolloutGroup.search_number.is_not(None)
    )
    return [_CountedGroup(number, step, int(count or 0)) for number, step, count in session.execute(query)]


def _affordable_groups(
    session: Session, scope: Scope, terms: Sequence[Term], sampled: GroupRange
) -> GroupRange:
    """Return the part, or fewer of its groups where reading their texts would take too long at the pace of
    some.
    """
    probe = replace(sampled, every=sampled.every * PROBED)
    began = time.monotonic()
    deque(find_matches(session, scope, terms, probe), maxlen=0)
    expected = (time.monotonic() - began) * PROBED
    if expected <= SECONDS:
        return sampled
    return replace(sampled, every=sampled.every * math.ceil(min(PROBED, expected / max(SECONDS, 1e-9))))


def has_more_than(session: Session, scope: Scope, terms: Sequence[Term], limit: int) -> bool:
    """Return whether more completions match than so many."""
    terms = plan_terms(session, terms)
    if is_decided_by_index(session, scope, terms):
        return count_in_index(session, scope, terms, limit + 1) > limit
    all_groups = [(WHOLE, True)] if is_rare(session, terms, RARE) else None
    count = 0
    for groups, _ in all_groups or _group_ranges(session, scope, None, is_descending=False, until=math.inf):
        count += sum(1 for _ in find_matches(session, scope, terms, groups))
        if count > limit:
            return True
    return False
