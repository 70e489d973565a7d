"""Reward terms and their parameters."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, JsonValue, field_validator

from backend.config.reward_term import ConditionTerm, StepTerm, Term, Weight
from backend.config.served_rewards import CodeReward, JudgeReward, RewardModelReward


class CorrectnessReward(Term):
    """Whether the answer is right."""

    title = "Correct answer"

    name: Literal["correctness"] = "correctness"

    weight: Weight = 1.0

    map: Literal["0/1", "-1/1"] = "0/1"
    """Reward of a wrong and of a right answer; partial credit lies between."""

    extraction: Literal["boxed", "lenient"] = "boxed"
    """boxed: only what the last \\boxed{} holds; lenient: without one, the last number, else all."""

    grader: Literal["auto", "exact", "math"] = "auto"
    """auto: exact for words, math-verify for mathematics, a reasoning_gym task's own scorer."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 3.0
    """A completion whose answer takes longer to check is wrong."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        if self.map == "-1/1":
            return "reward term: 1 for a right answer, −1 for a wrong one"
        return "reward term: 1 for a right answer, 0 for a wrong one; partial credit lies between"


class ThinkFormatReward(ConditionTerm):
    """Whether the completion reasons inside <think> tags before it answers."""

    title = "Thinks in <think> tags"

    name: Literal["think_format"] = "think_format"

    weight: Weight = 0.2

    form: Literal["book", "strict"] = "book"
    """book: the first <think> stands before the first </think>; strict: one pair opens, then an answer.
    Where the chat template ends the prompt with <think>, that tag counts as the completion's."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        if self.form == "book":
            return "reward term: 1 where the first <think> stands before the first </think>, else 0"
        return "reward term: 1 where one pair of <think> tags opens and an answer follows, else 0"


class BoxedFormatReward(ConditionTerm):
    """Whether the completion holds a complete boxed answer."""

    title = "Boxes its answer"

    name: Literal["boxed_format"] = "boxed_format"

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return "reward term: 1 where the completion holds a complete boxed answer, else 0"


class LanguageReward(ConditionTerm):
    """Whether the completion keeps to the script of its prompt: Latin, Cyrillic, Han with kana, Arabic, ...

    Letters are counted; LaTeX commands, tags, single Latin letters (variables) and Greek letters are not. Two
    languages of one script look alike. A prompt without letters leaves the choice to the completion.
    """

    title = "Keeps to the prompt's script"

    name: Literal["language"] = "language"

    form: Literal["share", "consistent"] = "share"
    """share: fraction of the letters in the prompt's script (DeepSeek-R1, arXiv:2501.12948); consistent: 1
    when thoughts and answer are each mostly in it, else 0 (Magistral, arXiv:2506.10910)."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        if self.form == "share":
            return "reward term: share of the letters that are in the prompt's script, 0 to 1"
        return "reward term: 1 where thoughts and answer are each mostly in the prompt's script, else 0"


class LengthReward(Term):
    """Brevity relative to the group: 0.5 for the shortest to -0.5 for the longest, 0 where all are equally
    long; wrong completions are only ever punished by it (Kimi k1.5, arXiv:2501.12599, section 2.3.3).
    """

    title = "Shorter than its group"

    name: Literal["length"] = "length"

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return "reward term: brevity within the group, −0.5 to 0.5"


class EnvironmentReward(ConditionTerm):
    """The reward that the run's environment gave for the whole episode."""

    title = "Environment"

    name: Literal["environment"] = "environment"

    weight: Weight = 1.0

    success: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """An episode with at least this reward counts as solved: accuracies are shares of those."""

    @property
    def meaning(self) -> str:
        """Explanation of the term's value in the legend of a formula."""
        return "reward term: the reward that the environment gave for the episode"


class PluginReward(StepTerm):
    """A reward of your own: an entry point of the group `grpolab.rewards` beside the worker. It is a
    function of one completion, `reward(prompt, text)`, or of a batch, as TRL calls it: `reward(prompts,
    completions, **columns)`; either may be `async`.
    """

    title = "Plugin"

    name: Literal["plugin"] = "plugin"

    weight: Weight = 1.0

    entry_point: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=96)]
    """Name of the entry point. The function gives a number (for a batch a list of them), or None: not scored.
    With `per: step` it gives a list of numbers for each completion."""

    params: dict[str, JsonValue] = Field(default_factory=dict, max_length=64)
    """Keyword arguments of every call."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 60.0
    """A call that takes longer leaves its completions unscored; five failed calls in a row end the run."""

    concurrency: Annotated[int, Field(ge=1, le=128)] = 8
    """Calls at a time, for functions of one completion. A function that waits for a server can take many."""

    messages: bool = False
    """Whether a function of a batch gets messages, as TRL passes them for a conversational dataset."""

    @field_validator("entry_point")
    @classmethod
    def _not_taken(cls, name: str) -> str:
        if name in BUILT_IN:
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
"""Every kind of reward term, in the order in which the form offers them."""

CALLED = (CodeReward, JudgeReward, RewardModelReward, EnvironmentReward, PluginReward)
"""Terms whose value may be missing: something is asked or run for it."""

BUILT_IN = (
    *(term.model_fields["name"].default for term in TERMS if not issubclass(term, CALLED)),
    "length_penalty",
)
"""Names of terms in metrics and rollouts that no plugin may take; a run's terms have different names
anyway."""


def reward_catalog() -> list[dict[str, Any]]:
    """Return every kind of reward term as the form offers it, with the JSON Schema of its parameters."""
    return [
        {
            "name": term.model_fields["name"].default,
            "title": term.title,
            "note": (term.__doc__ or "").strip(),
            "params": term.model_json_schema(),
        }
        for term in TERMS
    ]
