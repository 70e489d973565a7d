"""Pages of search results and counts by step, in bounded time even for frequent words.

If the words are rare, the index returns the few matching completions. Otherwise groups are read in batches,
in the order of the page, until the page is full or the time budget is used up; the next page continues from
there. Counts are then based on an evenly spaced sample of the groups.
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
from backend.rollouts.search.hits import ALL_GROUPS, CompletionPlace, GroupRange, is_rare, plan_terms
from backend.rollouts.search.matches import Page, count_in_index, find_matches, is_decided_by_index
from backend.rollouts.search.query import Term
from backend.rollouts.search.scope import Scope
from backend.storage.models import GroupTally, RolloutGroup

RARE_MATCH_LIMIT = 5_000
"""Maximum number of matching completions for which only the index is used."""
MAX_COUNTED = 20_000
"""Maximum number of completions that are read to count the matches of common words."""
PROBE_INTERVAL = 16
"""Sampling interval of the timing probe: every 16th group is read first to estimate the total time."""
INITIAL_BATCH_SIZE, MAX_BATCH_SIZE = 256, 4_096
"""Initial and maximum number of groups read at a time."""
TIME_BUDGET_SECONDS = 0.5
"""Number of seconds after which no new batch of groups is started."""

ORDERS = ("step", "-step")

PLACE_KINDS = (int, str, int)
LAST_POSITION = 2**15 - 1


class MatchPage(NamedTuple):
    """A page of search results."""

    rows: Sequence[CompletionPlace]
    next: CompletionPlace | None
    """Last position of this page, after which the next page starts; None on the last page."""
    searched_to: int | None
    """Step at which the time budget was used up; None if the page is full."""


class Counts(NamedTuple):
    """Counts of completions by step."""

    items: list[dict[str, int]]
    """Items as described by `schemas.StepCount`."""
    every: int
    """Sampling interval of the counted groups; 1 if all were counted."""


def find(
    session: Session, scope: Scope, terms: Sequence[Term], *, sort: str, limit: int, cursor: str
) -> MatchPage:
    """Return a page of completions, ordered by step, group and position."""
    is_descending = sort.startswith("-")
    last_place = _parse_cursor(read_cursor(cursor, *PLACE_KINDS, order=sort))
    rows: list[CompletionPlace] = []
    terms = plan_terms(session, terms)
    if is_rare(session, terms, RARE_MATCH_LIMIT):
        rows += find_matches(session, scope, terms, ALL_GROUPS, Page(last_place, is_descending, limit + 1))
    else:
        deadline = time.monotonic() + TIME_BUDGET_SECONDS
        for groups, is_last in _group_ranges(session, scope, last_place, is_descending, deadline):
            page = Page(last_place, is_descending, limit + 1 - len(rows))
            rows += find_matches(session, scope, terms, groups, page)
            if len(rows) > limit:
                break
            if not is_last and time.monotonic() > deadline:
                step, group = groups.first if is_descending else groups.last  # type: ignore[misc]
                return MatchPage(rows, (step, group, -1 if is_descending else LAST_POSITION), step)
    if len(rows) <= limit:
        return MatchPage(rows, None, None)
    return MatchPage(rows[:limit], rows[limit - 1], None)


def _parse_cursor(cursor: Sequence[Any] | None) -> CompletionPlace | None:
    return None if cursor is None else (cursor[0], cursor[1], cursor[2])


def _group_ranges(
    session: Session,
    scope: Scope,
    last_place: CompletionPlace | None,
    is_descending: bool,  # noqa: FBT001
    deadline: float,
) -> Iterator[tuple[GroupRange, bool]]:
    """Yield batches of the groups after a position, in order, and whether the batch is the last one."""
    columns = (RolloutGroup.step, RolloutGroup.id)
    order = [column.desc() if is_descending else column.asc() for column in columns]
    query = select(*columns, RolloutGroup.search_number).order_by(*order)
    size, sort_key = INITIAL_BATCH_SIZE, tuple_(*columns)
    if last_place is not None:
        scope = scope.narrow(session)
        step, group = last_place[:2]  # the remaining completions of this group belong to the page, too
        query = query.where(sort_key <= (step, group) if is_descending else sort_key >= (step, group))
    started_at = time.monotonic()
    while rows := session.execute(query.where(*scope.group_conditions(session)).limit(size)).all():
        boundary_keys = [(row.step, row.id) for row in (rows[0], rows[-1])]
        numbers = sorted(row.search_number for row in rows if row.search_number is not None)
        first, last = sorted(boundary_keys)
        is_last = len(rows) < size
        yield GroupRange(first, last, numbers or [0]), is_last
        if is_last:
            return
        query = query.where(sort_key < boundary_keys[1] if is_descending else sort_key > boundary_keys[1])
        scope = scope.narrow(session)
        now = time.monotonic()
        size, started_at = _next_size(size, now - started_at, deadline - now), now


def _next_size(size: int, elapsed_seconds: float, remaining_seconds: float) -> int:
    """Return four times the batch size, or the size that the remaining time allows at the current speed."""
    return int(
        max(
            INITIAL_BATCH_SIZE,
            min(4 * size, MAX_BATCH_SIZE, size * remaining_seconds / max(elapsed_seconds, 1e-6)),
        )
    )


def counts_by_step(session: Session, scope: Scope, terms: Sequence[Term]) -> Counts:
    """Return the number of matching and of stored completions at each step."""
    count = func.sum(GroupTally.completions)
    query = select(GroupTally.step, count).where(*scope.tally_conditions(session)).group_by(GroupTally.step)
    stored_counts: dict[int, int] = {row[0]: int(row[1]) for row in session.execute(query)}
    sampled_groups = ALL_GROUPS
    terms = plan_terms(session, terms)
    if not is_rare(session, terms, RARE_MATCH_LIMIT):
        sampled_groups = replace(ALL_GROUPS, every=math.ceil(sum(stored_counts.values()) / MAX_COUNTED) or 1)
        groups = _read_counted_groups(session, scope, sampled_groups)
        sampled_groups = replace(sampled_groups, numbers=sorted(group.number for group in groups) or [0])
        if scope.filter.is_of_completions or any(term.is_exact or term.is_read for term in terms):
            sampled_groups = _affordable_groups(session, scope, terms, sampled_groups)
        if sampled_groups.every > 1:
            stored_counts = Counter()
            for group in (candidate for candidate in groups if candidate.number % sampled_groups.every == 0):
                stored_counts[group.step] += group.completions
    matched_counts = Counter(
        completion_place[0] for completion_place in find_matches(session, scope, terms, sampled_groups)
    )
    items = [
        {"step": step, "matched": matched_counts.get(step, 0), "of": stored_counts[step]}
        for step in sorted(stored_counts)
    ]
    return Counts(items, sampled_groups.every)


class _CountedGroup(NamedTuple):
    """A group whose completions are counted."""

    number: int
    """Number of the group in the index."""
    step: int
    completions: int


def _read_counted_groups(
    session: Session, scope: Scope, sampled_groups: GroupRange
) -> Sequence[_CountedGroup]:
    """Return the groups of a range that are in the index."""
    names = ("run_id", "kind", "step", "prompt_index", "attempt")
    same_group = [getattr(GroupTally, name) == getattr(RolloutGroup, name) for name in names]
    # A subquery, because SQLite would join the tallies of a group by the range of the scope's steps.
    completions = (
        select(func.sum(GroupTally.completions)).where(*same_group).correlate(RolloutGroup).scalar_subquery()
    )
    query = select(RolloutGroup.search_number, RolloutGroup.step, completions)
    query = query.where(
        *scope.group_conditions(session),
        *sampled_groups.group_conditions(),
        RolloutGroup.search_number.is_not(None),
    )
    return [_CountedGroup(number, step, int(count or 0)) for number, step, count in session.execute(query)]


def _affordable_groups(
    session: Session, scope: Scope, terms: Sequence[Term], sampled_groups: GroupRange
) -> GroupRange:
    """Return the range, or a sample of it if a probe shows that reading all texts would take too long."""
    probe_range = replace(sampled_groups, every=sampled_groups.every * PROBE_INTERVAL)
    started_at = time.monotonic()
    deque(find_matches(session, scope, terms, probe_range), maxlen=0)
    expected = (time.monotonic() - started_at) * PROBE_INTERVAL
    if expected <= TIME_BUDGET_SECONDS:
        return sampled_groups
    return replace(
        sampled_groups,
        every=sampled_groups.every
        * math.ceil(min(PROBE_INTERVAL, expected / max(TIME_BUDGET_SECONDS, 1e-9))),
    )


def has_more_than(session: Session, scope: Scope, terms: Sequence[Term], limit: int) -> bool:
    """Return whether more than `limit` completions match."""
    terms = plan_terms(session, terms)
    if is_decided_by_index(session, scope, terms):
        return count_in_index(session, scope, terms, limit + 1) > limit
    all_groups = [(ALL_GROUPS, True)] if is_rare(session, terms, RARE_MATCH_LIMIT) else None
    count = 0
    for groups, _ in all_groups or _group_ranges(
        session, scope, None, is_descending=False, deadline=math.inf
    ):
        count += sum(1 for _ in find_matches(session, scope, terms, groups))
        if count > limit:
            return True
    return False
