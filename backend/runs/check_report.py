"""The result of a check before launch, as the worker stores it and the HTTP interface shows it."""

from typing import Any, Literal

from pydantic import ConfigDict

from backend.base.documented import Documented


class _Section(Documented):
    model_config = ConfigDict(frozen=True)


class SignalChance(_Section):
    """The expected signal at one group size."""

    group_size: int
    useful: float
    """Expected share of groups with right and wrong completions: mean of 1 - p^G - (1-p)^G."""
    error: float
    """Standard error of `useful` over the prompts."""
    silent_below: float
    """Pass rate below which most groups have no right completion: 1 - 2^(-1/G)."""
    silent: float
    """Share of the prompts whose estimated pass rate is below that."""


class WrongReference(_Section):
    """A prompt whose reference answer the grader calls wrong."""

    id: str
    source: str
    prompt: str
    answer: str


class ReferenceCheck(_Section):
    """The grader on the reference answers, each in the form that the reward asks for."""

    checked: int
    missing: int
    """Prompts that have no reference answer."""
    wrong: int
    examples: list[WrongReference]
    """The first of the wrong ones."""
    reward: float | None
    """Mean reward of the reference answers; null: none was scored."""


class RewardProbe(_Section):
    """A text without work, and the reward that it earns."""

    name: Literal["empty", "echo", "format", "ten_answers"]
    title: str
    example: str
    """The text for one of the prompts."""
    reward: float | None
    """Mean over the prompts; null: none was scored."""


class ConfigChange(_Section):
    """A field of the config, and the value that mends something."""

    path: str
    value: str


class CheckFinding(_Section):
    """A conclusion from the numbers."""

    level: Literal["good", "warn", "bad"]
    text: str
    change: ConfigChange | None = None
    """Leaves the rows out that this is about."""


class FormTrial(_Section):
    """A form in which the policy was asked a few of the prompts."""

    name: Literal["own", "plain", "chat", "chat_boxed", "chat_quiet"]
    title: str
    policy: dict[str, Any]
    """The fields of `policy` that ask for it."""
    prompt: str
    """The first prompt as the policy reads it."""
    answered: float | None
    """Share of the completions with a boxed answer; null: the form was refused."""
    truncated: float | None
    """Share of the completions cut at the cap."""
    tokens: float | None
    """Mean length of a completion."""
    refusal: str
    """The reason why the policy cannot be asked so; empty: it can."""


class RowsReport(_Section):
    """A source of rows: what repeats itself, and what overlaps with held-out questions."""

    source: str
    rows: int
    """Training rows."""
    duplicates: int
    """Number of rows whose question occurs in an earlier row."""
    contaminated: int
    """Rows that share an n-gram with a held-out question."""
    out_of_range: int
    """Rows that the limits of the pass rate leave out."""
    examples: list[str]
    """Ids of the first rows that overlap."""
    near: int = 0
    """Rows much like an earlier one or a held-out question."""
    twins: list[str] = []
    """The first of them in words."""
    dropped: list[Literal["duplicates", "contamination", "near_duplicates"]] = []
    """Fields of `data` that leave their rows out already."""


class CheckReport(_Section):
    """Everything that a check before launch found."""

    prompts: int
    completions: int
    """Per prompt."""
    pass_rate: float | None
    """Share of the completions that are right; null: none could be graded."""
    pass_rate_error: float | None
    """Standard error over the prompts."""
    never_solved: float | None
    """Share of the prompts without a right completion."""
    always_solved: float | None
    """Share of the prompts without a wrong completion."""
    truncated: float
    """Share of the completions cut at the cap."""
    group_size: int
    """Group size of the config."""
    signal: list[SignalChance]
    reward: float | None
    """Mean reward of the completions: that of an honest attempt."""
    reward_right: float | None
    """Mean reward of the right completions."""
    references: ReferenceCheck
    probes: list[RewardProbe]
    findings: list[CheckFinding]
    forms: list[FormTrial] = []
    """The policy's answers in other forms of the prompt; the config's own first."""
    rows: list[RowsReport] = []
    """Every source of rows."""
