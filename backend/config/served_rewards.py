"""Reward terms that run code or ask a server of the operator's."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from backend.config.reward_term import ConditionTerm, StepTerm, Weight

Attempts = Annotated[int, Field(ge=0, le=10)]
Timeout = Annotated[float, Field(ge=0.1, le=3600)]


class CodeReward(ConditionTerm):
    """Whether the completion's last Python block (the whole text without one) passes the tests of its row.

    Tests are pairs of standard input and output, calls with their results, or assert statements. Each
    program runs in the sandbox: no network, no files, no other process, and the expected results stay
    outside. A prompt with tests counts as right, for accuracy too, when every test passes.
    """

    title = "Passes its tests"

    name: Literal["code"] = "code"

    weight: Weight = 1.0

    tests: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=64)] = "tests"
    """Column with the tests, as JSON or text; a row without it is tested by its answer, if that holds
    tests."""

    credit: Literal["all", "share"] = "all"
    """all: 1 when every test passes, else 0; share: the fraction of tests that pass."""

    max_tests: Annotated[int, Field(ge=1, le=1000)] = 20
    """Tests of a row that are run, from the first on."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 4.0
    """Processor time for each test, rounded up to whole seconds; the clock may show three times as much."""

    memory_mb: Annotated[int, Field(ge=64, le=4096)] = 1024
    """Address space of each program, in units of 2**20 bytes."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        if self.credit == "all":
            return "reward term: 1 where the program passes every test, else 0"
        return "reward term: fraction of the tests that the program passes"


DEFAULT_TEMPLATE = """Question:
{question}

Reference answer (may be empty):
{answer}

Rubric:
{rubric}

Completion to grade:
{completion}"""


class JudgeReward(StepTerm):
    """A language model's grade: the chat model that the operator serves at JUDGE_URL reads question, answer
    and completion and gives a number on a scale, which becomes 0 to 1. A policy may learn to please the
    judge, or to instruct it: watch its completions.
    """

    title = "Judged by a language model"

    name: Literal["judge"] = "judge"

    weight: Weight = 1.0

    criterion: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")] = "judge"
    """Name of what is judged, as metrics show it, such as helpfulness: a run may have several judge terms."""

    rubric: Annotated[str, Field(min_length=1, max_length=8000)] = (
        "Is the final answer correct, and does the reasoning support it?"
    )
    """Rules by which the judge grades."""

    template: Annotated[str, Field(min_length=1, max_length=8000)] = DEFAULT_TEMPLATE
    """Text that the judge gets, with {question}, {answer}, {rubric}, {completion} and the row's further
    columns in braces."""

    lowest: Annotated[float, Field(ge=-1000, le=1000)] = 0.0
    """The worst grade: the reward is 0 there."""

    highest: Annotated[float, Field(ge=-1000, le=1000)] = 10.0
    """The best grade: the reward is 1 there."""

    answer: Literal["json", "last_number"] = "json"
    """json: the server is asked for a JSON schema and nothing else is read; last_number: the last number of
    the judge's text, for servers without structured output."""

    max_tokens: Annotated[int, Field(ge=1, le=32_768)] = 1024
    """Most tokens of the judge's text; a longer one leaves the completion unscored."""

    timeout_seconds: Timeout = 60.0
    """A request that takes longer is tried again."""

    retries: Attempts = 3
    """Further tries of a request that failed, with growing pauses; after them the completion is unscored."""

    @model_validator(mode="after")
    def _is_gradable(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError(f"highest must be above lowest ({self.lowest:g}), got {self.highest:g}")
        if "{completion}" not in self.template:
            raise ValueError("the template must hold {completion}")
        if self.per == "step" and self.answer != "json":
            raise ValueError("per: step needs answer: json, because one number is expected for each step")
        return self

    @property
    def label(self) -> str:
        """Name of the term in metrics and rollouts."""
        return self.criterion

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return f"reward term: the judge's grade, 0 to 1{self.over_steps}"


class RewardModelReward(StepTerm):
    """The score of a reward model that the operator serves at REWARD_MODEL_URL, by vLLM's route
    `/pooling`.
    """

    title = "Scored by a reward model"

    name: Literal["reward_model"] = "reward_model"

    weight: Weight = 1.0

    scale: Literal["raw", "sigmoid"] = "raw"
    """raw: the number that the model gives; sigmoid: 1 / (1 + e^-x) of it, between 0 and 1."""

    timeout_seconds: Timeout = 60.0
    """A request that takes longer is tried again."""

    retries: Attempts = 3
    """Further tries of a request that failed, with growing pauses; after them the completion is unscored."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return f"reward term: the score of a reward model{self.over_steps}"
