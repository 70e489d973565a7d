"""Search in completions: what the index is asked, and the place in the text of those that match."""

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
from backend.storage.rollout_words import LONGEST_WORD, SHIFT, TABLE, is_common_prefix, words_table

BEFORE, BEHIND = 80, 160
"""Characters of a snippet around the first place that matches."""
MAX_MARKS = 50
EXCERPT_CHARS = 1_000
"""Characters shown of the prompt and of the expected answer."""

CompletionPlace = tuple[int, str, int]
"""Step, group and position of a completion."""

MAX_OF_BEGINNING = 50_000
"""Places of the words with a beginning up to which SQLite's index is asked for them."""


@dataclass(frozen=True, slots=True)
class GroupRange:
    """Some groups of a scope, which are searched at a time: by place, or one of every so many."""

    first: tuple[int, str] | None = None
    last: tuple[int, str] | None = None
    """Step and id, both included; None: no bound."""
    numbers: Sequence[int] | None = None
    """Their numbers in the index, in order."""
    every: int = 1

    def of_groups(self) -> list[ColumnElement[bool]]:
        """SQL conditions on groups."""
        sort_key = tuple_(RolloutGroup.step, RolloutGroup.id)
        conditions: list[ColumnElement[bool]] = []
        if self.first is not None and self.last is not None:
            steps = RolloutGroup.step.between(self.first[0], self.last[0])
            conditions += [steps, sort_key >= self.first, sort_key <= self.last]
        if self.every > 1:
            conditions.append(RolloutGroup.search_number % self.every == 0)
        return conditions

    def of_numbers(self, number: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """SQL conditions on numbers in Postgres's index."""
        if self.numbers is not None:  # by name: groups of neighbouring steps may be far apart
            chosen = [group_number for group_number in self.numbers if group_number % self.every == 0]
            return [number == func.any(array(chosen, type_=BigInteger))]
        if self.every > 1:  # by name: else each row of the table is looked at
            sampled = select(RolloutGroup.search_number).where(RolloutGroup.search_number % self.every == 0)
            return [number == func.any(func.array(sampled.scalar_subquery()))]
        return []


WHOLE = GroupRange()


def count_waiting(session: Session, scope: Scope) -> int:
    """Return the number of groups of the scope that are not indexed yet."""
    query = select(func.count()).where(*scope.of_groups(session), RolloutGroup.search_number.is_(None))
    return session.scalar(query) or 0


def is_rare(session: Session, terms: Sequence[Term], limit: int) -> bool:
    """Return whether the words match at most `limit` completions of all runs."""
    required, unwanted = index_terms(terms)
    if not required:
        return False
    hits = select_hits(session, required, unwanted, WHOLE).limit(limit + 1).subquery()
    return (session.scalar(select(func.count()).select_from(hits)) or 0) <= limit


def plan_terms(session: Session, terms: Sequence[Term]) -> Sequence[Term]:
    """Return the terms, those marked for which texts are read in place of the index."""
    return [
        replace(term, is_read=True)
        if term.is_prefix and is_common_prefix(session, term.words[-1], MAX_OF_BEGINNING)
        else term
        for term in terms
    ]


def index_terms(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """Return the terms that the index is asked for: wanted and unwanted ones."""
    required = [term for term in terms if term.whole_words and not term.is_not]
    return required, [term for term in terms if term.is_not and not term.is_exact and not term.is_read]


def is_phrase(term: Term) -> bool:
    """Return whether the positions of the term's words matter."""
    return len(term.words) > 1 and not term.is_exact


def select_hits(
    session: Session, required: Sequence[Term], unwanted: Sequence[Term], groups: "GroupRange" = WHOLE
) -> Select[Any]:
    """Number and position of the completions in which every wanted and no unwanted term is.

    Where `is_long`, phrases are not decided: Postgres does not know all positions of a long text.
    """
    if is_postgres(session):
        columns = (words_table.c.number, words_table.c.position, words_table.c.is_long)
        hits = select(*columns).where(
            *map(_may_match, required), *(not_(_surely_matches(term)) for term in unwanted)
        )
        return hits.where(*groups.of_numbers(words_table.c.number))
    rowid: ColumnElement[int] = literal_column(f"{TABLE}.rowid", Integer)
    number = rowid.bitwise_rshift(SHIFT)
    hits = (
        select(number.label("number"), rowid.bitwise_and((1 << SHIFT) - 1).label("position"))
        .add_columns(literal(0).label("is_long"))
        .select_from(words_table)
        .where(literal_column(TABLE).op("MATCH")(_fts5_query(required, unwanted)))
    )
    if groups.numbers is not None:  # of the row's id, which FTS5 goes to at once
        first, last = groups.numbers[0], groups.numbers[-1]
        hits = hits.where(rowid.between(first << SHIFT, ((last + 1) << SHIFT) - 1))
    return hits.where(number % groups.every == 0) if groups.every > 1 else hits


def _fts5_query(required: Sequence[Term], unwanted: Sequence[Term]) -> str:
    """Return the expression for FTS5, which takes the words out of a term as it took them out of the
    texts.
    """
    expression = " AND ".join(map(_fts5_term, required))
    return f"({expression}) NOT ({' OR '.join(map(_fts5_term, unwanted))})" if unwanted else expression


def _fts5_term(term: Term) -> str:
    if term.is_exact:
        return "(" + " AND ".join(f'"{word}"' for word in term.words) + ")"
    if term.is_read:
        return f'"{" ".join(term.whole_words)}"'
    inner = term.text.replace('"', " ")
    return f'"{inner}"{" *" if term.is_prefix else ""}'


def _may_match(term: Term) -> ColumnElement[bool]:
    """Return the condition for Postgres that the term occurs, or that a long text has the term's words."""
    if not is_phrase(term):
        return _matches(term, " & ")
    return or_(_matches(term, " <-> "), and_(_matches(term, " & "), words_table.c.is_long == true()))


def _surely_matches(term: Term) -> ColumnElement[bool]:
    """Return the condition for Postgres that the term occurs, as far as positions are known."""
    return _matches(term, " <-> " if is_phrase(term) else " & ")


def _matches(term: Term, joined: str) -> ColumnElement[bool]:
    words = [f"'{word[:LONGEST_WORD]}'" for word in term.words]
    if term.is_prefix:
        words[-1] += ":*"
    column: Any = words_table.c.words
    condition: ColumnElement[bool] = column.op("@@")(cast(joined.join(words), TSQUERY))
    return condition


def hits_json(
    session: Session, rows: Sequence[CompletionPlace], terms: Sequence[Term]
) -> list[dict[str, Any]]:
    """Return completions as the HTTP interface shows them: schemas.FoundItem."""
    completions = load_hits(session, rows)
    labels = load_labels(session, [completion.id for _, completion in completions])
    patterns = [term.pattern() for term in terms if not term.is_not]
    return [
        _hit_json(completion, group, labels.get(completion.id, []), patterns)
        for group, completion in completions
    ]


def load_hits(session: Session, places: Sequence[CompletionPlace]) -> list[tuple[RolloutGroup, Completion]]:
    """Return the completions at some places, with their groups; without what is deleted meanwhile."""
    ids = list(dict.fromkeys(group for _, group, _ in places))
    query = select(RolloutGroup).where(RolloutGroup.id.in_(ids))
    groups = {group.id: group for group in session.scalars(query)}
    by_position = {
        group: {completion.position: completion for completion in completions}
        for group, completions in load_completions(session, ids).items()
    }
    return [
        (groups[group], by_position[group][position])
        for _, group, position in places
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
    """Return a piece of a text around the first place that matches: schemas.Snippet."""
    firsts = [match.start() for pattern in patterns if (match := pattern.search(content))]
    at = min(firsts, default=0)
    start, end = max(0, at - BEFORE), min(len(content), at + BEHIND)
    piece = content[start:end]
    places = [match.span() for pattern in patterns for match in islice(pattern.finditer(piece), MAX_MARKS)]
    return {
        "text": piece,
        "marks": [list(span) for span in _join_spans(places)],
        "is_start": start == 0,
        "is_end": end == len(content),
    }


def _join_spans(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the sorted spans, with adjacent ones merged."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        elif end > start:
            spans.append((start, end))
    return spans
