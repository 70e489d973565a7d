"""The result of a check before launch, as the worker stores it and the HTTP interface shows it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class SignalChance(_Part):
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


class WrongReference(_Part):
    """A prompt whose reference answer the verifier calls wrong."""

    id: str
    source: str
    prompt: str
    answer: str


class ReferenceCheck(_Part):
    """The verifier on the reference answers, each in the form that the reward asks for."""

    checked: int
    missing: int
    """Prompts that have no reference answer."""
    wrong: int
    examples: list[WrongReference]
    """The first of the wrong ones."""
    reward: float | None
    """Mean reward of the reference answers; null: none was scored."""


class RewardProbe(_Part):
    """A text without work, and the reward that it earns."""

    name: Literal["empty", "echo", "format", "ten_answers"]
    title: str
    example: str
    """The text for one of the prompts."""
    reward: float | None
    """Mean over the prompts; null: none was scored."""


class CheckFinding(_Part):
    """A conclusion from the numbers."""

    level: Literal["good", "warn", "bad"]
    text: str


class CheckReport(_Part):
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
    """Of the config."""
    signal: list[SignalChance]
    reward: float | None
    """Mean reward of the completions: that of an honest attempt."""
    reward_right: float | None
    """Mean reward of the right completions."""
    references: ReferenceCheck
    probes: list[RewardProbe]
    findings: list[CheckFinding]
