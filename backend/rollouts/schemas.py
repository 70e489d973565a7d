"""Rollouts as the HTTP interface shows them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from backend.base.documented import Documented
from backend.rollouts.labels import LabelItem

Spelled = float | str | None
"""A number, the name of one that is not finite, or null if there is none."""


class TurnItem(Documented):
    """A call of a tool, in numbers."""

    tool: str
    outcome: str
    """ok, failed, timeout, killed, or unanswered: the budget of turns or tokens was used up; done: it ended
    the episode; lost: the environment failed."""
    seconds: float
    is_cut: bool
    """Whether the answer was longer than an observation may be."""


class TextBlock(Documented):
    """A part of a completion's text, by who wrote it."""

    kind: Literal["own", "call", "observation"]
    """own and call: the policy; observation: a tool, and it is not part of the loss."""
    text: str
    turn: TurnItem | None
    """The call that it belongs to; null for own text."""


class CompletionItem(Documented):
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
    blocks: list[TextBlock]
    """Text in parts if tools were called; else empty."""


class GroupItem(Documented):
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
    """Reason why the group did not train: `equal`, `accuracy`, `surplus` or `waiting`; empty if it did."""
    damage: str
    """Reason why completions, prompt or answer cannot be read; empty if they can."""
    completions: list[CompletionItem]


class GroupPage(Documented):
    """One page of groups."""

    items: list[GroupItem]
    next: str | None


class StepItem(Documented):
    """The stored rollouts of a step, in numbers."""

    step: int
    kind: str
    groups: int
    reward_mean: float | None


class StepPage(Documented):
    """All steps of a run that have rollouts."""

    items: list[StepItem]
    next: str | None


class GroupLoss(Documented):
    """The part of a step's loss that a stored group holds."""

    id: str
    loss: Spelled
    """null if the group did not train, or its tokens were not recorded."""
    completions: list[Spelled]
    """Loss of each completion, by position."""
    damage: str
    """Reason why the completion's tokens cannot be read; empty if they can."""


class LossSums(Documented):
    """A step's loss as the sum of its parts: logged = stored + unstored + difference."""

    run: str
    step: int
    logged: Spelled
    """loss/total of the step."""
    stored: Spelled
    """Sum over all stored tokens; null if no contributions were recorded."""
    unstored: Spelled
    """Sum over the groups that are not stored, as the trainer recorded it (loss/unstored)."""
    difference: Spelled
    """The rest: rounding of the stored values, or tokens that were removed later."""
    terms: dict[str, Spelled]
    """Sum of each term over all stored tokens, if the objective has several terms."""
    groups: list[GroupLoss]


class WhatIfChange(Documented):
    """Another objective for a stored step."""

    preset: Annotated[str, Field(max_length=64)] = ""
    """A preset whose objective is taken; empty: the run's own."""
    objective: dict[str, Any] = {}
    """Knobs of the objective to change in it."""


class WhatIfOrder(Documented):
    """A stored step and the objectives to compute it under."""

    run: Annotated[str, Field(min_length=1, max_length=64)]
    step: Annotated[int, Field(ge=0, le=2**31 - 1)]
    variants: Annotated[list[WhatIfChange], Field(max_length=8)]


class WhatIfCompletion(Documented):
    """One completion under an objective."""

    advantage: Spelled
    loss: Spelled
    """Completion's contribution to the loss."""
    gradient: Spelled
    """Sum over its tokens of |d loss / d log-probability|."""
    clipped: int | None
    """Tokens whose ratio is bounded; null without a bound."""


class WhatIfVariant(Documented):
    """A step's stored batch under one objective."""

    name: str
    problem: str = ""
    """Reason why the variant cannot be computed; then all other fields are missing."""
    formula: str
    """The objective with its knobs' numbers."""
    formula_mathml: str
    loss: Spelled = None
    terms: dict[str, Spelled] = {}
    metrics: dict[str, Spelled] = {}
    """clip/*, ratio/*, kl/* and mismatch/* of this computation."""
    weight: str = ""
    """Weight of a completion's tokens in the loss, as formula and with the counts of this batch."""
    numbers: dict[str, Spelled] = {}
    """What the formula counts here: completions, prompts, tokens, weights, advantages (population standard
    deviation over completions), clipped tokens by side where ratios are bounded."""
    completions: list[WhatIfCompletion] = []
    """Completions of all groups, one group after another."""


class WhatIf(Documented):
    """A step's stored batch under the run's own objective, which comes first, and others."""

    run: str
    step: int
    groups: list[str]
    """Ids of the groups that take part."""
    group_size: int
    of_groups: int
    """Stored groups of the step, with those that did not train."""
    notes: list[str]
    """Differences between this computation and the step as it was trained."""
    variants: list[WhatIfVariant]


class Alternatives(Documented):
    """The likeliest tokens at each token, the likeliest first, of the distribution that was drawn from."""

    ids: list[list[int]]
    logprobs: list[list[float | str]]
    """Sampler's log-probabilities; -Infinity if top-p or top-k excluded the token."""
    strings: dict[str, str]
    """Strings by token id, for the tokens of the group's completions."""


class TokensAnswer(Documented):
    """A completion token by token."""

    id: str
    tokens: list[str]
    token_ids: list[int]
    arrays: dict[str, list[float | str]]
    """Values of equal length by name: logprob, entropy, sampler_logprob, ratio, clipped, ..."""
    advantage: Spelled
    mask: list[int]
    """1 for each token that is part of the loss's sums, else 0."""
    observed: list[int]
    """1 for each token from a tool's answer, else 0; empty if no tool was called."""
    alternatives: Alternatives | None
    """None if `recording.alternatives` was 0, or they were removed since."""
    note: str
    """Reason why tokens or their values were removed later; "" if none were."""
    damage: str
    """Reason why the tokens cannot be read; empty if they can."""


class CountItem(Documented):
    """The completions of a step, in numbers."""

    step: int
    completions: int
    matching: int
    """Number of completions with all the marks and the reward."""
    stored: int
    """Number of these completions that are stored and can be read."""


class CountPage(Documented):
    """All steps at which completions were sampled."""

    items: list[CountItem]
    next: str | None


class EvidenceItem(Documented):
    """Completions that show a cause of the diagnosis."""

    cause: str
    """Empty: completions of the first stored step from the onset on."""
    kind: str
    step: int
    marks: list[str]
    """Common property, as `/rollouts/counts` names it; empty for all completions of the step."""
    completions: int
    """Stored ones of this step that have all the marks."""


class EvidencePage(Documented):
    """The causes of a run that stored completions show."""

    items: list[EvidenceItem]
    next: str | None


class PromptItem(Documented):
    """A training prompt and its pass rate over time."""

    id: str
    prompt: str
    """The beginning of its text."""
    answer: str
    problem: str
    domain: str
    groups: int
    """Number of times that the prompt was sampled."""
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


class PromptAtlas(Documented):
    """Training prompts of a run in the order that was asked for."""

    items: list[PromptItem]
    next: str | None
    matching: int
    """Prompts that fit, those that are not shown included."""
    counts: dict[str, int]
    """Prompts of each state."""
    first_step: int
    last_step: int


class ProbeRun(Documented):
    """A run of a matrix of probes, and the steps of its evaluations."""

    id: str
    steps: list[int]


class ProbeRow(Documented):
    """A prompt in one run."""

    rates: list[float | None]
    """Share of right completions at each of the run's steps; null if there is none."""
    stored: list[bool]
    """Whether its completions at that step can be read."""
    first_solved: int | None
    first_lost: int | None
    forgotten: bool
    """Whether it was solved before, and not at the end."""


class ProbeItem(Documented):
    """A prompt of an evaluation in every run."""

    id: str
    prompt: str
    answer: str
    problem: str
    domain: str
    runs: list[ProbeRow]
    """Rows in the order of the matrix's runs."""


class ProbeMatrix(Documented):
    """Prompts of an evaluation x steps x runs."""

    runs: list[ProbeRun]
    items: list[ProbeItem]
    prompts: int
    """Number of prompts of the evaluation, including prompts that are not shown."""
    runs_left_out: int
    """Runs that were asked for beyond the 16 that are shown."""


class Snippet(Documented):
    """A piece of a completion's text around what was found, as plain text."""

    text: str
    marks: list[tuple[int, int]]
    """Places that match, from and to, in characters (code points) of `text`."""
    is_start: bool
    """Whether the completion begins with it."""
    is_end: bool


class FoundItem(Documented):
    """A completion that was found."""

    id: str
    group: str
    run: str
    step: int
    kind: str
    prompt_index: int
    prompt_id: str
    prompt: str
    """Beginning of the prompt, at most 1,000 characters."""
    answer: str
    """Beginning of the expected answer, at most 1,000 characters."""
    position: int
    """Place within its group, from 0."""
    reward: Spelled
    correct: bool | None
    tokens: int
    finish_reason: str
    flags: list[str]
    labels: list[LabelItem]
    snippet: Snippet


class FoundPage(Documented):
    """One page of completions that were found."""

    items: list[FoundItem]
    next: str | None
    searched_to: int | None
    """Step at which the time limit ended the page before it was full; `next` continues there."""
    waiting: int
    """Groups of these runs that are not indexed yet: their completions are missing here."""


class StepCount(Documented):
    """Completions of a step that match, of how many that are stored there."""

    step: int
    matched: int
    of: int


class StepCounts(Documented):
    """Counts of a search over steps."""

    items: list[StepCount]
    next: None
    every: int
    """One of every this many groups was counted, evenly chosen; 1: all."""


class LiftSide(Documented):
    """One of the two sets that are compared."""

    label: str
    completions: int
    """Completions of the set that were read."""
    of: int
    """Stored completions of the set's steps, whatever the filters."""
    words: int


class LiftItem(Documented):
    """A phrase that is more frequent in one set than in the other."""

    phrase: str
    a: int
    """Completions of the first set that contain it."""
    b: int
    log_odds: float
    """Log-odds of the second set against the first, with a Dirichlet prior."""
    z: float
    """`log_odds` over its standard deviation."""


class LiftAnswer(Documented):
    """Phrases that set two sets of completions apart."""

    a: LiftSide
    b: LiftSide
    items: list[LiftItem]
    """More frequent in the second set, the surest first."""
    fell: list[LiftItem]
    """More frequent in the first set, the surest first."""


class RefusedRow(Documented):
    """A row that was not stored."""

    row: int
    """Number of the row, starting at 1."""
    reason: str


class ImportedJudgements(Documented):
    """Result of an import of judgements, with each refused row."""

    rows: int
    stored: int
    unchanged: int
    refused: list[RefusedRow]
    """The first 100."""
    refused_rows: int
