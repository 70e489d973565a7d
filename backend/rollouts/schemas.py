"""Schemas of rollouts for the HTTP API."""

from typing import Annotated, Any, Literal

from pydantic import Field

from backend.base.documented import Documented
from backend.rollouts.labels import LabelItem

Spelled = float | str | None
"""A number, the name of a number that is not finite, or null if there is no value."""


class TurnItem(Documented):
    """The outcome and duration of a tool call."""

    tool: str
    outcome: str
    """`ok`, `failed`, `timeout` or `killed`; `unanswered` if the limit of turns or tokens was reached; `done`
    if the call ended the episode; `lost` if the environment failed.
    """
    seconds: float
    is_cut: bool
    """Whether the answer was truncated to the maximum length of an observation."""


class TextBlock(Documented):
    """A part of the text of a completion, with its author."""

    kind: Literal["own", "call", "observation"]
    """`own` and `call` are written by the policy; an `observation` is written by a tool and not part of the
    loss.
    """
    text: str
    turn: TurnItem | None
    """The tool call that the block belongs to; null for own text."""


class CompletionItem(Documented):
    """A completion with its rewards and flags."""

    id: str
    text: str
    reward: Spelled
    rewards: dict[str, Spelled]
    """Reward terms, before weighting."""
    advantage: Spelled
    tokens: int
    finish_reason: str
    correct: bool | None
    flags: list[str]
    blocks: list[TextBlock]
    """Parts of the text if tools were called; empty otherwise."""


class GroupItem(Documented):
    """The completions of a prompt at one step."""

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
    """Reason why the completions, the prompt or the answer cannot be read; empty if they can."""
    completions: list[CompletionItem]


class GroupPage(Documented):
    """A page of groups."""

    items: list[GroupItem]
    next: str | None


class StepItem(Documented):
    """The number and mean reward of the stored groups of a step."""

    step: int
    kind: str
    groups: int
    reward_mean: float | None


class StepPage(Documented):
    """All steps of a run with stored rollouts."""

    items: list[StepItem]
    next: str | None


class GroupLoss(Documented):
    """The contribution of a stored group to the loss of a step."""

    id: str
    loss: Spelled
    """Sum over the completions; null if the group did not train or its tokens were not recorded."""
    completions: list[Spelled]
    """Loss of each completion, by position."""
    damage: str
    """Reason why the tokens cannot be read; empty if they can."""


class LossSums(Documented):
    """The loss of a step as the sum of its parts: logged = stored + unstored + difference."""

    run: str
    step: int
    logged: Spelled
    """`loss/total` of the step."""
    stored: Spelled
    """Sum over all stored tokens; null if no contributions were recorded."""
    unstored: Spelled
    """Sum over the groups that are not stored, as recorded by the trainer (`loss/unstored`)."""
    difference: Spelled
    """Remainder, due to the rounding of stored values or to tokens that were removed later."""
    terms: dict[str, Spelled]
    """Sum of each term over all stored tokens, if the objective has several terms."""
    groups: list[GroupLoss]


class WhatIfChange(Documented):
    """Another objective for a stored step."""

    preset: Annotated[str, Field(max_length=64)] = ""
    """Preset that provides the objective; empty for the objective of the run."""
    objective: dict[str, Any] = {}
    """Settings of the objective to change."""


class WhatIfOrder(Documented):
    """A stored step, and the objectives under which it is computed."""

    run: Annotated[str, Field(min_length=1, max_length=64)]
    step: Annotated[int, Field(ge=0, le=2**31 - 1)]
    variants: Annotated[list[WhatIfChange], Field(max_length=8)]


class WhatIfCompletion(Documented):
    """A completion under one objective."""

    advantage: Spelled
    loss: Spelled
    """Contribution of the completion to the loss."""
    gradient: Spelled
    """Sum over the tokens of |d loss / d log-probability|."""
    clipped: int | None
    """Number of tokens whose ratio is clipped; null without clipping."""


class WhatIfVariant(Documented):
    """The stored batch of a step under one objective."""

    name: str
    problem: str = ""
    """Reason why the variant cannot be computed; all other fields are missing then."""
    formula: str
    """The objective with the values of its settings."""
    formula_mathml: str
    loss: Spelled = None
    terms: dict[str, Spelled] = {}
    metrics: dict[str, Spelled] = {}
    """Values of clip/*, ratio/*, kl/* and mismatch/* in this computation."""
    weight: str = ""
    """Weight of a completion's tokens in the loss, as a formula with the counts of this batch."""
    numbers: dict[str, Spelled] = {}
    """Numbers in the formula: completions, prompts, tokens, weights, advantages (population standard
    deviation over completions), and clipped tokens by side if ratios are clipped.
    """
    completions: list[WhatIfCompletion] = []
    """Completions of all groups, concatenated."""


class WhatIf(Documented):
    """The stored batch of a step under the run's own objective, which comes first, and other objectives."""

    run: str
    step: int
    groups: list[str]
    """Ids of the groups that are included."""
    group_size: int
    of_groups: int
    """Number of stored groups of the step, including those that did not train."""
    notes: list[str]
    """Differences between this computation and the step as it was trained."""
    variants: list[WhatIfVariant]


class Alternatives(Documented):
    """The most likely tokens at each position, most likely first, in the sampled distribution."""

    ids: list[list[int]]
    logprobs: list[list[float | str]]
    """Log-probabilities of the sampler; -Infinity if top-p or top-k excluded the token."""
    strings: dict[str, str]
    """Strings by token id, for the tokens of the group's completions."""


class TokensResponse(Documented):
    """The tokens of a completion with their values."""

    id: str
    tokens: list[str]
    token_ids: list[int]
    arrays: dict[str, list[float | str]]
    """Values of equal length by name: logprob, entropy, sampler_logprob, ratio, clipped and others."""
    advantage: Spelled
    mask: list[int]
    """1 for each token that is included in the loss, else 0."""
    observed: list[int]
    """1 for each token of a tool's answer, else 0; empty if no tool was called."""
    alternatives: Alternatives | None
    """The most likely tokens; null if they were not recorded or have been removed."""
    note: str
    """Reason why tokens or their values were removed later; empty if they were not."""
    damage: str
    """Reason why the tokens cannot be read; empty if they can."""


class CountItem(Documented):
    """Numbers of completions of a step."""

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
    """Name of the cause; empty for completions of the first stored step since the onset."""
    kind: str
    step: int
    marks: list[str]
    """Marks that the completions share, as in `/rollouts/counts`; empty for all completions of the step."""
    completions: int
    """Number of stored completions of this step that have all the marks."""


class EvidencePage(Documented):
    """The causes of a run that stored completions show."""

    items: list[EvidenceItem]
    next: str | None


class PromptItem(Documented):
    """A training prompt and its pass rate over time."""

    id: str
    prompt: str
    """Beginning of the prompt's text."""
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
    """Pass rate in each of eight equal windows of the run."""
    rate: float | None
    first: float | None
    last: float | None
    drift: float | None


class PromptAtlas(Documented):
    """Training prompts of a run in the requested order."""

    items: list[PromptItem]
    next: str | None
    matching: int
    """Number of matching prompts, including those not shown."""
    counts: dict[str, int]
    """Number of prompts in each state."""
    first_step: int
    last_step: int


class ProbeRun(Documented):
    """A run of a probe matrix, and the steps of its evaluations."""

    id: str
    steps: list[int]


class ProbeRow(Documented):
    """The results of a prompt in one run."""

    rates: list[float | None]
    """Share of right completions at each step of the run; null if none was graded."""
    stored: list[bool]
    """Whether the completions at each step are stored."""
    first_solved: int | None
    first_lost: int | None
    forgotten: bool
    """Whether the prompt was solved earlier but not at the last step."""


class ProbeItem(Documented):
    """The results of an evaluation prompt in every run."""

    id: str
    prompt: str
    answer: str
    problem: str
    domain: str
    runs: list[ProbeRow]
    """Results in the order of the matrix's runs."""


class ProbeMatrix(Documented):
    """Results of an evaluation by prompt, run and step."""

    runs: list[ProbeRun]
    items: list[ProbeItem]
    prompts: int
    """Number of prompts of the evaluation, including prompts that are not shown."""
    runs_left_out: int
    """Number of requested runs beyond the 16 that are shown."""


class Snippet(Documented):
    """An excerpt of a completion around the first match, as plain text."""

    text: str
    marks: list[tuple[int, int]]
    """Matches as pairs of start and end offsets, in characters (code points) of `text`."""
    is_start: bool
    """Whether the excerpt starts at the beginning of the completion."""
    is_end: bool


class SearchMatch(Documented):
    """A completion that matches a search."""

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
    """Position of the completion within its group, from 0."""
    reward: Spelled
    correct: bool | None
    tokens: int
    finish_reason: str
    flags: list[str]
    labels: list[LabelItem]
    snippet: Snippet


class SearchMatchPage(Documented):
    """A page of search results."""

    items: list[SearchMatch]
    next: str | None
    searched_to: int | None
    """Step at which the time limit ended the page before it was full; `next` continues there."""
    waiting: int
    """Number of groups of these runs that are not indexed yet, whose completions are missing."""


class StepCount(Documented):
    """The number of matching completions of a step, and of all stored ones."""

    step: int
    matched: int
    of: int


class StepCounts(Documented):
    """The counts of a search by step."""

    items: list[StepCount]
    next: None
    every: int
    """Sampling interval of the counted groups, which are evenly distributed; 1 if all were counted."""


class LiftSide(Documented):
    """One of the two compared sets of completions."""

    label: str
    completions: int
    """Number of completions of the set that were read."""
    of: int
    """Number of stored completions of the set's steps, regardless of the filters."""
    words: int


class LiftItem(Documented):
    """A phrase that is more frequent in one set than in the other."""

    phrase: str
    a: int
    """Number of completions of the first set that contain the phrase."""
    b: int
    log_odds: float
    """Log-odds of the second set against the first, with a Dirichlet prior."""
    z: float
    """`log_odds` divided by its standard deviation."""


class LiftResponse(Documented):
    """Phrases that distinguish two sets of completions."""

    a: LiftSide
    b: LiftSide
    items: list[LiftItem]
    """Phrases that are more frequent in the second set, most certain first."""
    fell: list[LiftItem]
    """Phrases that are more frequent in the first set, most certain first."""


class RejectedRow(Documented):
    """A row that was refused, with the reason."""

    row: int
    """Number of the row, starting at 1."""
    reason: str


class ImportedJudgements(Documented):
    """The result of an import of judgements."""

    rows: int
    stored: int
    unchanged: int
    refused: list[RejectedRow]
    """The first 100 refused rows."""
    refused_rows: int
