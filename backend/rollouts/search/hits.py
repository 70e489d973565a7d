"""Search completions with the index, and locate the matches in their texts."""

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
    cast,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import TSQUERY, array
from sqlalchemy.orm import Session

from backend.rollouts.labels import load_labels
from backend.rollouts.packing import try_unpack_text
from backend.rollouts.search.query import Term
from backend.rollouts.search.scope import Scope
from backend.storage.completion import Completion
from backend.storage.completions import load_completions
from backend.storage.engine import is_postgres
from backend.storage.models import RolloutGroup
from backend.storage.rollout_words import (
    INDEX_TABLE,
    MAX_WORD_CHARACTERS,
    POSITION_BITS,
    is_common_prefix,
    words_table,
)

CHARACTERS_BEFORE, CHARACTERS_AFTER = 80, 160
"""Number of characters of a snippet before and after the start of the first match."""
MAX_MARKS = 50
EXCERPT_CHARS = 1_000
"""Maximum number of characters shown of the prompt and of the expected answer."""

CompletionPlace = tuple[int, str, int]
"""Step, group and position of a completion."""

MAX_OF_BEGINNING = 50_000
"""Maximum number of positions of words with a prefix for which SQLite's index is queried."""


@dataclass(frozen=True, slots=True)
class GroupRange:
    """A part of a scope's groups that is searched at a time: a range, or an evenly spaced sample."""

    first: tuple[int, str] | None = None
    last: tuple[int, str] | None = None
    """Step and id of the first and last group; None for no limit."""
    numbers: Sequence[int] | None = None
    """Index numbers of the groups, in order; None for no restriction."""
    every: int = 1

    def group_conditions(self) -> list[ColumnElement[bool]]:
        """Return SQL conditions on groups."""
        sort_key = tuple_(RolloutGroup.step, RolloutGroup.id)
        conditions: list[ColumnElement[bool]] = []
        if self.first is not None and self.last is not None:
            steps = RolloutGroup.step.between(self.first[0], self.last[0])
            conditions += [steps, sort_key >= self.first, sort_key <= self.last]
        if self.every > 1:
            conditions.append(RolloutGroup.search_number % self.every == 0)
        return conditions

    def number_conditions(self, number: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """Return SQL conditions on numbers in the index of Postgres."""
        if self.numbers is not None:  # numbers of neighbouring steps may be far apart
            sampled_numbers = [
                group_number for group_number in self.numbers if group_number % self.every == 0
            ]
            return [number == func.any(array(sampled_numbers, type_=BigInteger))]
        if self.every > 1:  # listed, because otherwise every row of the table is read
            sampled_query = select(RolloutGroup.search_number).where(
                RolloutGroup.search_number % self.every == 0
            )
            return [number == func.any(func.array(sampled_query.scalar_subquery()))]
        return []


ALL_GROUPS = GroupRange()


def count_waiting(session: Session, scope: Scope) -> int:
    """Return the number of groups of the scope that are not indexed yet."""
    query = select(func.count()).where(*scope.group_conditions(session), RolloutGroup.search_number.is_(None))
    return session.scalar(query) or 0


def is_rare(session: Session, terms: Sequence[Term], limit: int) -> bool:
    """Return whether the words match at most `limit` completions of all runs."""
    required_terms, excluded_terms = index_terms(terms)
    if not required_terms:
        return False
    hits = select_hits(session, required_terms, excluded_terms, ALL_GROUPS).limit(limit + 1).subquery()
    return (session.scalar(select(func.count()).select_from(hits)) or 0) <= limit


def plan_terms(session: Session, terms: Sequence[Term]) -> Sequence[Term]:
    """Return the terms, marking those for which texts are read instead of using the index."""
    return [
        replace(term, is_read=True)
        if term.is_prefix and is_common_prefix(session, term.words[-1], MAX_OF_BEGINNING)
        else term
        for term in terms
    ]


def index_terms(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """Return the terms that are looked up in the index: the required and the unwanted ones."""
    required_terms = [term for term in terms if term.whole_words and not term.is_not]
    return required_terms, [term for term in terms if term.is_not and not term.is_exact and not term.is_read]


def is_phrase(term: Term) -> bool:
    """Return whether the order of the term's words matters."""
    return len(term.words) > 1 and not term.is_exact


def select_hits(
    session: Session,
    required_terms: Sequence[Term],
    excluded_terms: Sequence[Term],
    groups: "GroupRange" = ALL_GROUPS,
) -> Select[Any]:
    """Return the query for completions, by number and position, with all required and no unwanted terms.

    If `is_long` is true, phrases still have to be checked, because Postgres does not store all positions of a
    long text.
    """
    if is_postgres(session):
        columns = (words_table.c.number, words_table.c.position, words_table.c.is_long)
        hits = select(*columns).where(
            *map(_may_match, required_terms), *(not_(_surely_matches(term)) for term in excluded_terms)
        )
        return hits.where(*groups.number_conditions(words_table.c.number))
    rowid: ColumnElement[int] = literal_column(f"{INDEX_TABLE}.rowid", Integer)
    number = rowid.bitwise_rshift(POSITION_BITS)
    hits = (
        select(number.label("number"), rowid.bitwise_and((1 << POSITION_BITS) - 1).label("position"))
        .add_columns(literal(0).label("is_long"))
        .select_from(words_table)
        .where(literal_column(INDEX_TABLE).op("MATCH")(_fts5_query(required_terms, excluded_terms)))
    )
    if groups.numbers is not None:  # by row id, which FTS5 looks up directly
        first, last = groups.numbers[0], groups.numbers[-1]
        hits = hits.where(rowid.between(first << POSITION_BITS, ((last + 1) << POSITION_BITS) - 1))
    return hits.where(number % groups.every == 0) if groups.every > 1 else hits


def _fts5_query(required_terms: Sequence[Term], excluded_terms: Sequence[Term]) -> str:
    """Return the FTS5 expression; FTS5 splits the terms into words as it split the texts."""
    expression = " AND ".join(map(_fts5_term, required_terms))
    return (
        f"({expression}) NOT ({' OR '.join(map(_fts5_term, excluded_terms))})"
        if excluded_terms
        else expression
    )


def _fts5_term(term: Term) -> str:
    if term.is_exact:
        return "(" + " AND ".join(f'"{word}"' for word in term.words) + ")"
    if term.is_read:
        return f'"{" ".join(term.whole_words)}"'
    escaped_text = term.text.replace('"', " ")
    return f'"{escaped_text}"{" *" if term.is_prefix else ""}'


def _may_match(term: Term) -> ColumnElement[bool]:
    """Return the Postgres condition that the term occurs, or that a long text contains its words."""
    if not is_phrase(term):
        return _matches(term, " & ")
    return or_(_matches(term, " <-> "), and_(_matches(term, " & "), words_table.c.is_long == true()))


def _surely_matches(term: Term) -> ColumnElement[bool]:
    """Return the Postgres condition that the term certainly occurs, given the stored positions."""
    return _matches(term, " <-> " if is_phrase(term) else " & ")


def _matches(term: Term, separator: str) -> ColumnElement[bool]:
    quoted_words = [f"'{word[:MAX_WORD_CHARACTERS]}'" for word in term.words]
    if term.is_prefix:
        quoted_words[-1] += ":*"
    column: Any = words_table.c.words
    condition: ColumnElement[bool] = column.op("@@")(cast(separator.join(quoted_words), TSQUERY))
    return condition


def hits_json(
    session: Session, rows: Sequence[CompletionPlace], terms: Sequence[Term]
) -> list[dict[str, Any]]:
    """Return completions as the HTTP API shows them, as described by `schemas.FoundItem`."""
    completions = load_hits(session, rows)
    labels = load_labels(session, [completion.id for _, completion in completions])
    patterns = [term.pattern() for term in terms if not term.is_not]
    return [
        _hit_json(completion, group, labels.get(completion.id, []), patterns)
        for group, completion in completions
    ]


def load_hits(
    session: Session, completion_places: Sequence[CompletionPlace]
) -> list[tuple[RolloutGroup, Completion]]:
    """Return the completions at the given places with their groups, except those deleted in the meantime."""
    ids = list(dict.fromkeys(group for _, group, _ in completion_places))
    query = select(RolloutGroup).where(RolloutGroup.id.in_(ids))
    groups = {group.id: group for group in session.scalars(query)}
    by_position = {
        group: {completion.position: completion for completion in completions}
        for group, completions in load_completions(session, ids).items()
    }
    return [
        (groups[group], by_position[group][position])
        for _, group, position in completion_places
        if group in groups and position in by_position.get(group, {})
    ]


def _hit_json(
    rollout: Completion,
    group: RolloutGroup,
    labels: list[dict[str, Any]],
    patterns: Sequence[re.Pattern[str]],
) -> dict[str, Any]:
    return {
        "id": rollout.id,
        "group": group.id,
        "run": group.run_id,
        "step": group.step,
        "kind": group.kind,
        "prompt_index": group.prompt_index,
        "prompt_id": group.prompt_id,
        "prompt": try_unpack_text(group.prompt)[0][:EXCERPT_CHARS],
        "answer": try_unpack_text(group.answer)[0][:EXCERPT_CHARS],
        "position": rollout.position,
        "reward": rollout.spell("reward"),
        "correct": rollout.correct,
        "tokens": rollout.tokens,
        "finish_reason": rollout.finish_reason,
        "flags": rollout.flags,
        "labels": labels,
        "snippet": make_snippet(rollout.clean_text, patterns),
    }


def make_snippet(content: str, patterns: Sequence[re.Pattern[str]]) -> dict[str, Any]:
    """Return an excerpt of a text around the first match, as described by `schemas.Snippet`."""
    first_matches = [match.start() for pattern in patterns if (match := pattern.search(content))]
    first_match = min(first_matches, default=0)
    start, end = max(0, first_match - CHARACTERS_BEFORE), min(len(content), first_match + CHARACTERS_AFTER)
    excerpt = content[start:end]
    match_spans = [
        match.span() for pattern in patterns for match in islice(pattern.finditer(excerpt), MAX_MARKS)
    ]
    return {
        "text": excerpt,
        "marks": [list(span) for span in _join_spans(match_spans)],
        "is_start": start == 0,
        "is_end": end == len(content),
    }


def _join_spans(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the sorted spans, merging adjacent ones."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        elif end > start:
            spans.append((start, end))
    return spans
