"""Config of reward terms that run programs or request scores from an operator's server."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from backend.config.reward_term import ConditionTerm, StepTerm, Weight

Attempts = Annotated[int, Field(ge=0, le=10)]
Timeout = Annotated[float, Field(ge=0.1, le=3600)]


class CodeReward(ConditionTerm):
    """Reward for a program that passes the tests of its row: the last Python block, or else the whole
    completion.

    Tests are pairs of standard input and output, calls with their results, or assert statements. Each program
    runs in the sandbox without network, files or other processes, and cannot see the expected results. If a
    prompt has tests, a completion counts as right, also for accuracy, if all tests pass.
    """

    name: Literal["code"] = "code"

    weight: Weight = 1.0

    tests: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=64)] = "tests"
    """Column with the tests, as JSON or text. A row without it uses its answer if that contains tests."""

    credit: Literal["all", "share"] = "all"
    """all gives 1 if all tests pass and 0 otherwise. share gives the fraction of tests that pass."""

    max_tests: Annotated[int, Field(ge=1, le=1000)] = 20
    """Maximum number of tests of a row that are run, starting with the first."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 4.0
    """Maximum processor time of a test, rounded up to whole seconds. Its
    maximum wall time is three times as long.
    """

    memory_mb: Annotated[int, Field(ge=64, le=4096)] = 1024
    """Maximum address space of each program, in units of 2**20 bytes."""

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
    """A grade by a language model that the operator serves at JUDGE_URL. It reads question, answer and
    completion and returns a number on a scale, which is mapped to 0 to 1. The policy may learn to please or
    to instruct the judge, so watch its completions.
    """

    name: Literal["judge"] = "judge"

    weight: Weight = 1.0

    criterion: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")] = "judge"
    """Name of the criterion in metrics, such as helpfulness. A run may have several judge terms."""

    rubric: Annotated[str, Field(min_length=1, max_length=8000)] = (
        "Is the final answer correct, and does the reasoning support it?"
    )
    """Grading rules for the judge."""

    template: Annotated[str, Field(min_length=1, max_length=8000)] = DEFAULT_TEMPLATE
    """Prompt for the judge, with the placeholders {question}, {answer}, {rubric},
    {completion} and other columns of the row.
    """

    lowest: Annotated[float, Field(ge=-1000, le=1000)] = 0.0
    """Worst grade, for which the reward is 0."""

    highest: Annotated[float, Field(ge=-1000, le=1000)] = 10.0
    """Best grade, for which the reward is 1."""

    answer: Literal["json", "last_number"] = "json"
    """Format of the judge's answer. json requests output according to a JSON schema. last_number reads the
    last number of the text, for servers without structured output.
    """

    max_tokens: Annotated[int, Field(ge=1, le=32_768)] = 1024
    """Maximum length of the judge's text, in tokens. If it is longer, the completion is unscored."""

    timeout_seconds: Timeout = 60.0
    """Time limit of a request, after which it is retried."""

    retries: Attempts = 3
    """Number of retries of a failed request, with increasing pauses. If
    all fail, the completion is unscored.
    """

    @model_validator(mode="after")
    def _is_gradable(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError(f"highest must be above lowest ({self.lowest:g}), got {self.highest:g}")
        if "{completion}" not in self.template:
            raise ValueError("the template must contain {completion}")
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
    """The score of a reward model that the operator serves with vLLM at
    REWARD_MODEL_URL, route `/pooling`.
    """

    name: Literal["reward_model"] = "reward_model"

    weight: Weight = 1.0

    scale: Literal["raw", "sigmoid"] = "raw"
    """raw uses the score x of the model. sigmoid maps it to 1 / (1 + e^-x), between 0 and 1."""

    timeout_seconds: Timeout = 60.0
    """Time limit of a request, after which it is retried."""

    retries: Attempts = 3
    """Number of retries of a failed request, with increasing pauses. If
    all fail, the completion is unscored.
    """

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return f"reward term: the score of a reward model{self.over_steps}"
