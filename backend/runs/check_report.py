"""The report of a check before launch, as the worker stores it and the HTTP API returns it."""

from typing import Any, Literal

from pydantic import ConfigDict

from backend.base.documented import Documented


class _Section(Documented):
    model_config = ConfigDict(frozen=True)


class SignalChance(_Section):
    """Expected learning signal at one group size."""

    group_size: int
    useful: float
    """Expected share of groups with right and wrong completions: mean of 1 - p^G - (1-p)^G."""
    error: float
    """Standard error of `useful` over the prompts."""
    silent_below: float
    """Pass rate below which most groups have no right completion: 1 - 2^(-1/G)."""
    silent: float
    """Share of the prompts whose estimated pass rate is below `silent_below`."""


class WrongReference(_Section):
    """A prompt whose reference answer the grader marks as wrong."""

    id: str
    source: str
    prompt: str
    answer: str


class ReferenceCheck(_Section):
    """Result of grading the reference answers, each in the form that the reward expects."""

    checked: int
    missing: int
    """Number of prompts without a reference answer."""
    wrong: int
    examples: list[WrongReference]
    """The first wrong reference answers."""
    reward: float | None
    """Mean reward of the reference answers; null if none was scored."""


class RewardProbe(_Section):
    """A text without any reasoning and the reward that it gets."""

    name: Literal["empty", "echo", "format", "ten_answers"]
    title: str
    example: str
    """The text for one of the prompts."""
    reward: float | None
    """Mean reward over the prompts; null if none was scored."""


class ConfigChange(_Section):
    """A config field and the value that solves a problem."""

    path: str
    value: str


class CheckFinding(_Section):
    """A conclusion from the results of the check."""

    level: Literal["good", "warn", "bad"]
    text: str
    change: ConfigChange | None = None
    """Change that leaves out the rows that the finding is about."""


class FormTrial(_Section):
    """A prompt format in which the policy answered a few of the prompts."""

    name: Literal["own", "plain", "chat", "chat_boxed", "chat_quiet"]
    title: str
    policy: dict[str, Any]
    """Fields of `policy` that select the format."""
    prompt: str
    """The first prompt as the policy reads it."""
    answered: float | None
    """Share of the completions with a boxed answer; null if the format was refused."""
    truncated: float | None
    """Share of the completions cut off at the token limit."""
    tokens: float | None
    """Mean length of a completion, in tokens."""
    refusal: str
    """Reason why the policy cannot be prompted in this format; empty if it can."""


class RowsReport(_Section):
    """Duplicates in a source of rows and overlaps with held-out questions."""

    source: str
    rows: int
    """Number of training rows."""
    duplicates: int
    """Number of rows whose question occurs in an earlier row."""
    contaminated: int
    """Number of rows that share an n-gram with a held-out question."""
    out_of_range: int
    """Number of rows that the pass-rate limits leave out."""
    examples: list[str]
    """Ids of the first rows that overlap."""
    near: int = 0
    """Number of rows that closely resemble an earlier row or a held-out question."""
    twins: list[str] = []
    """Descriptions of the first of these rows."""
    dropped: list[Literal["duplicates", "contamination", "near_duplicates"]] = []
    """Fields of `data` that already leave out such rows."""


class CheckReport(_Section):
    """All results of a check before launch."""

    prompts: int
    completions: int
    """Number of completions per prompt."""
    pass_rate: float | None
    """Share of right completions; null if none could be graded."""
    pass_rate_error: float | None
    """Standard error of the pass rate over the prompts."""
    never_solved: float | None
    """Share of the prompts without a right completion."""
    always_solved: float | None
    """Share of the prompts without a wrong completion."""
    truncated: float
    """Share of the completions cut off at the token limit."""
    group_size: int
    """Group size of the config."""
    signal: list[SignalChance]
    reward: float | None
    """Mean reward of the completions, which is that of an honest attempt."""
    reward_right: float | None
    """Mean reward of the right completions."""
    references: ReferenceCheck
    probes: list[RewardProbe]
    findings: list[CheckFinding]
    forms: list[FormTrial] = []
    """Answers of the policy to other prompt formats, starting with the format of the config."""
    rows: list[RowsReport] = []
    """Reports on all sources of rows."""
