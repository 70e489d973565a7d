"""Rollouts as the HTTP interface shows them."""

from pydantic import BaseModel

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
    left_out: str
    """Why it did not train: `equal`, `accuracy`, `surplus` or `waiting`; empty where it did."""
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


class CountItem(BaseModel):
    """The completions of a step, in numbers."""

    step: int
    completions: int
    matching: int
    """Those that have all the marks, and the reward."""
    stored: int
    """Those of them that can be read."""


class CountPage(BaseModel):
    """All steps at which completions were sampled."""

    items: list[CountItem]
    next: str | None


class PromptItem(BaseModel):
    """A training prompt and its pass rate over time."""

    id: str
    prompt: str
    """The beginning of its text."""
    answer: str
    problem: str
    domain: str
    groups: int
    """How often it was sampled."""
    graded: int
    right: int
    state: str
    """`never`, `always`, `lost`, `learned`, `mixed` or `ungraded`."""
    windows: list[float | None]
    """Pass rate in each of eight equal parts of the run."""
    rate: float | None
    first: float | None
    last: float | None
    drift: float | None


class PromptAtlas(BaseModel):
    """Training prompts of a run in the order that was asked for."""

    items: list[PromptItem]
    next: str | None
    matching: int
    """Prompts that fit, those that are not shown included."""
    counts: dict[str, int]
    """Prompts of each state."""
    first_step: int
    last_step: int


class ProbeRun(BaseModel):
    """A run of a matrix of probes, and the steps of its evaluations."""

    id: str
    steps: list[int]


class ProbeRow(BaseModel):
    """A prompt in one run."""

    rates: list[float | None]
    """Share of right completions at each of the run's steps; null where there is none."""
    stored: list[bool]
    """Whether its completions at that step can be read."""
    first_solved: int | None
    first_lost: int | None
    forgotten: bool
    """Whether it was solved before, and not at the end."""


class ProbeItem(BaseModel):
    """A prompt of an evaluation in every run."""

    id: str
    prompt: str
    answer: str
    problem: str
    domain: str
    runs: list[ProbeRow]
    """In the order of the matrix' runs."""


class ProbeMatrix(BaseModel):
    """Prompts of an evaluation x steps x runs."""

    runs: list[ProbeRun]
    items: list[ProbeItem]
    prompts: int
    """Of the evaluation, those that are not shown included."""
