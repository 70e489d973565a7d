"""Config of the reward terms."""

from typing import Annotated, Literal, get_args

from pydantic import Field, JsonValue, field_validator

from backend.config.reward_term import ConditionTerm, StepTerm, Term, Weight
from backend.config.served_rewards import CodeReward, JudgeReward, RewardModelReward


class CorrectnessReward(Term):
    """Reward for a right answer."""

    name: Literal["correctness"] = "correctness"

    weight: Weight = 1.0

    map: Literal["0/1", "-1/1"] = "0/1"
    """Reward of a wrong and of a right answer. Partial credit is in between."""

    extraction: Literal["boxed", "lenient"] = "boxed"
    """Extraction of the answer. boxed reads only the last \\boxed{}. Without a box, lenient reads the last
    number, or else the whole text.
    """

    grader: Literal["auto", "exact", "math"] = "auto"
    """Comparison of answers. auto compares words exactly, mathematics with math-verify, and answers of
    reasoning_gym tasks with their scorer.
    """

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 3.0
    """Time limit for checking an answer, after which the completion counts as wrong."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        if self.map == "-1/1":
            return "reward term: 1 for a right answer, −1 for a wrong one"
        return "reward term: 1 for a right answer, 0 for a wrong one; partial credit lies between"


class ThinkFormatReward(ConditionTerm):
    """Reward for reasoning inside <think> tags before the answer."""

    name: Literal["think_format"] = "think_format"

    weight: Weight = 0.2

    form: Literal["book", "strict"] = "book"
    """Required format. book requires the first <think> before the first </think>. strict requires that the
    completion begins with a single pair, followed by an answer. A <think> at the end of the chat template
    counts.
    """

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        if self.form == "book":
            return "reward term: 1 where the first <think> stands before the first </think>, else 0"
        return "reward term: 1 where one pair of <think> tags opens and an answer follows, else 0"


class BoxedFormatReward(ConditionTerm):
    """Reward for a complete boxed answer."""

    name: Literal["boxed_format"] = "boxed_format"

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return "reward term: 1 where the completion holds a complete boxed answer, else 0"


class LanguageReward(ConditionTerm):
    """Reward for using the script of the prompt: Latin, Cyrillic, Han with kana, Arabic, ...

    Letters are counted, but not LaTeX commands, tags, single Latin letters (variables) and Greek letters.
    Languages with the same script are not distinguished. If the prompt has no letters, any script is allowed.
    """

    name: Literal["language"] = "language"

    form: Literal["share", "consistent"] = "share"
    """share rewards the fraction of letters in the prompt's script (DeepSeek-R1, arXiv:2501.12948).
    consistent gives 1 if both thoughts and answer are mostly in it, and 0 otherwise (Magistral,
    arXiv:2506.10910).
    """

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        if self.form == "share":
            return "reward term: share of the letters that are in the prompt's script, 0 to 1"
        return "reward term: 1 where thoughts and answer are each mostly in the prompt's script, else 0"


class LengthReward(Term):
    """Reward for brevity relative to the group, from 0.5 for the shortest to -0.5 for the longest completion,
    or 0 if all are equally long. Wrong completions get no positive values (Kimi k1.5, arXiv:2501.12599,
    section 2.3.3).
    """

    name: Literal["length"] = "length"

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return "reward term: brevity within the group, −0.5 to 0.5"


class EnvironmentReward(ConditionTerm):
    """The reward of the run's environment for the whole episode."""

    name: Literal["environment"] = "environment"

    weight: Weight = 1.0

    success: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """Minimum reward with which an episode counts as solved in accuracies."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return "reward term: the reward that the environment gave for the episode"


class PluginReward(StepTerm):
    """A custom reward, installed next to the worker as an entry point of the group `grpolab.rewards`. It is a
    function of one completion, `reward(prompt, text)`, or of a batch as in TRL, `reward(prompts, completions,
    **columns)`. Both may be `async`.
    """

    name: Literal["plugin"] = "plugin"

    weight: Weight = 1.0

    entry_point: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=96)]
    """Name of the entry point. The function returns a number for each completion, or None if it is not
    scored. With `per: step` it returns a list of numbers for each completion.
    """

    params: dict[str, JsonValue] = Field(default_factory=dict, max_length=64)
    """Keyword arguments of every call."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 60.0
    """Time limit of a call, after which its completions are unscored. Five
    consecutive failed calls end the run.
    """

    concurrency: Annotated[int, Field(ge=1, le=128)] = 8
    """Maximum number of concurrent calls of a function of one completion. Use a high
    number for a function that waits for a server.
    """

    messages: bool = False
    """Whether a function of a batch receives messages, as in TRL for conversational datasets."""

    @field_validator("entry_point")
    @classmethod
    def _not_taken(cls, name: str) -> str:
        if name in BUILT_IN_TERM_NAMES:
            raise ValueError(f"{name} is the name of a built-in term, and metrics could not tell them apart")
        return name

    @property
    def label(self) -> str:
        """Name of the term in metrics and rollouts."""
        return self.entry_point

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return f"reward term: the number that the plugin {self.entry_point} gives{self.over_steps}"


RewardTerm = Annotated[
    CorrectnessReward
    | ThinkFormatReward
    | BoxedFormatReward
    | LanguageReward
    | LengthReward
    | CodeReward
    | JudgeReward
    | RewardModelReward
    | EnvironmentReward
    | PluginReward,
    Field(discriminator="name"),
]

TERMS: tuple[type[Term], ...] = get_args(get_args(RewardTerm)[0])
"""All kinds of reward terms, in the order in which the form offers them."""

CALLED_TERMS = (CodeReward, JudgeReward, RewardModelReward, EnvironmentReward, PluginReward)
"""Terms whose value may be missing, because it requires a program or a server."""

BUILT_IN_TERM_NAMES = (
    *(term.model_fields["name"].default for term in TERMS if not issubclass(term, CALLED_TERMS)),
    "length_penalty",
)
"""Names of terms in metrics and rollouts that plugins may not have."""
