"""Rollouts as the HTTP interface shows them."""

from pydantic import BaseModel

from backend.rollouts.labels import LabelItem

Spelled = float | str | None
"""A number, the name of one that is not finite, or null where there is none."""


class CompletionItem(BaseModel):
    """One completion with what it got."""

    id: str
    text: str
    reward: Spelled
    rewards: dict[str, Spelled]
    """Each reward term, before its weight."""
    advantage: Spelled
    tokens: int
    finish_reason: str
    correct: bool | None
    flags: list[str]


class GroupItem(BaseModel):
    """The completions of one prompt at one step."""

    id: str
    run: str
    step: int
    attempt: int
    kind: str
    """`train`, `eval` for the held-out set, or `eval/<suite>`."""
    prompt_index: int
    prompt_id: str
    problem: str
    domain: str
    prompt: str
    answer: str
    reward_mean: float | None
    reward_std: float | None
    completions: list[CompletionItem]


class GroupPage(BaseModel):
    """One page of groups."""

    items: list[GroupItem]
    next: str | None


class StepItem(BaseModel):
    """The stored rollouts of a step, in numbers."""

    step: int
    kind: str
    groups: int
    reward_mean: float | None


class StepPage(BaseModel):
    """All steps of a run that have rollouts."""

    items: list[StepItem]
    next: str | None


class TokensAnswer(BaseModel):
    """A completion token by token."""

    id: str
    tokens: list[str]
    token_ids: list[int]
    arrays: dict[str, list[float | str]]
    """Values of equal length by name: logprob, entropy, sampler_logprob, ratio, clipped, ..."""
    advantage: Spelled
    mask: list[int]
    """1 where a token is part of the loss's sums."""


class Snippet(BaseModel):
    """A piece of a completion's text around what was found, as plain text."""

    text: str
    marks: list[tuple[int, int]]
    """Places that match, from and to, in characters (code points) of `text`."""
    is_start: bool
    """Whether the completion begins with it."""
    is_end: bool


class FoundItem(BaseModel):
    """A completion that was found."""

    id: str
    group: str
    run: str
    step: int
    kind: str
    prompt_index: int
    prompt_id: str
    position: int
    """Place within its group, from 0."""
    reward: Spelled
    correct: bool | None
    tokens: int
    finish_reason: str
    flags: list[str]
    labels: list[LabelItem]
    snippet: Snippet


class FoundPage(BaseModel):
    """One page of completions that were found."""

    items: list[FoundItem]
    next: str | None
    waiting: int
    """Groups of these runs that are not indexed yet: their completions are missing here."""


class StepCount(BaseModel):
    """Completions of a step that match, of how many."""

    step: int
    matched: int
    of: int


class StepCounts(BaseModel):
    """Counts of a search over steps."""

    items: list[StepCount]
    next: None


class LiftSide(BaseModel):
    """One of the two sets that are compared."""

    label: str
    completions: int
    """Completions of the set that were read."""
    of: int
    """Completions of the groups from which they were drawn."""
    words: int


class LiftItem(BaseModel):
    """A phrase that is more frequent in one set than in the other."""

    phrase: str
    a: int
    """Completions of the first set that contain it."""
    b: int
    log_odds: float
    """Of the second set against the first, with a Dirichlet prior."""
    z: float
    """`log_odds` over its standard deviation."""


class LiftAnswer(BaseModel):
    """Phrases that set two sets of completions apart."""

    a: LiftSide
    b: LiftSide
    items: list[LiftItem]
    """More frequent in the second set, the surest first."""
    fell: list[LiftItem]
    """More frequent in the first set, the surest first."""


class RefusedRow(BaseModel):
    """A row that was not stored."""

    row: int
    """From 1."""
    reason: str


class ImportedJudgements(BaseModel):
    """Result of an import of judgements, row by row where one was refused."""

    rows: int
    stored: int
    unchanged: int
    refused: list[RefusedRow]
    """The first 100."""
    refused_rows: int
