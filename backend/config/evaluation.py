"""Config of held-out evaluation: the held-out set of the run, and named suites."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.config.base import MAX_STEPS, Frozen, combination_error
from backend.config.problems import FileProblem, HubProblem, ProblemSource, SumsProblem

SuiteName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
"""Type of a suite's name, which becomes part of the names of its metrics."""

RESERVED_SUITE_NAMES = ("accuracy",)
"""Names that no suite may have, because `eval/accuracy/<domain>` are metrics of the held-out set."""

MAX_SUITES = 16
UNSCHEDULED_FIELDS: dict[str, object] = {"every": 0, "steps": (), "at_end": True}
"""Fields of a suite's schedule in a run without steps, which evaluates every suite once."""


class Suite(Frozen):
    """A named evaluation with its problem source, its sampling and the steps at which it is measured."""

    name: SuiteName = "suite"
    """Name of the suite in metrics and rollouts, e.g. math500 in eval/math500/accuracy."""

    problem: ProblemSource = SumsProblem()
    """Source of the prompts."""

    rows: Literal["held_out", "all"] = "held_out"
    """Rows that are evaluated: held_out uses the held-out rows of the source, all uses every row, for files
    and hub datasets that are complete test sets. No prompt of a suite is trained on.
    """

    prompts: Annotated[int, Field(ge=1, le=100_000)] = 500
    """Maximum number of prompts, which are the same in every evaluation."""

    n: Annotated[int, Field(ge=1, le=256)] = 4
    """Number of completions per prompt. The accuracy is avg@n, with pass@k and maj@k for k up to n."""

    temperature: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Divisor of the logits before sampling. 0 decodes greedily and requires n = 1."""

    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Probability mass of nucleus sampling. 1 turns it off."""

    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of most likely tokens from which is sampled. 0 means all tokens."""

    max_new_tokens: Annotated[int, Field(ge=0, le=131072)] = 0
    """Maximum length of a completion, in tokens. 0 means the same as in training."""

    every: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 0
    """Number of steps between evaluations, the first of which is before
    training. 0 means only at `steps` and at the end.
    """

    steps: Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_STEPS)], ...], Field(max_length=256)] = ()
    """Additional steps after which the suite is evaluated. Step 0 is before training."""

    at_end: bool = True
    """Whether the suite is evaluated after the last step."""

    @property
    def kind(self) -> str:
        """Prefix of the suite's metrics, and kind of its stored rollouts."""
        return f"eval/{self.name}"

    def is_due(self, step: int, *, last_step: int) -> bool:
        """Return whether the suite is evaluated after a step. A run without steps evaluates all suites."""
        is_end = step == last_step and (self.at_end or last_step == 0)
        return is_end or step in self.steps or (self.every > 0 and step % self.every == 0)

    def evaluations(self, steps: int, *, after_step: int = 0) -> int:
        """Return how many times a run of `steps` steps evaluates the suite after the step `after_step`."""
        first_step = after_step + 1 if after_step else 0
        scheduled_steps = {step for step in self.steps if first_step <= step <= steps} | (
            {steps} if self.at_end or not steps else set()
        )
        if not self.every:
            return len(scheduled_steps)
        at_multiples = steps // self.every - (first_step - 1) // self.every
        return at_multiples + sum(step % self.every > 0 for step in scheduled_steps)

    @model_validator(mode="after")
    def _makes_sense(self) -> "Suite":
        errors = []
        if self.name in RESERVED_SUITE_NAMES:
            errors.append(
                (
                    "name",
                    f"is {self.name!r}, but eval/{self.name} is another metric: choose another name",
                )
            )
        if self.temperature == 0 and self.n > 1:
            reason = f"is {self.n}, but with temperature 0 all completions are the same: expected 1"
            errors.append(("n", reason))
        if not (self.every or self.steps or self.at_end):
            errors.append(
                ("every", "is 0, steps is empty and at_end is off: the suite would never be evaluated")
            )
        if self.rows == "all" and not isinstance(self.problem, FileProblem | HubProblem):
            reason = f"is all, but {self.problem.name} has no fixed rows: expected held_out"
            errors.append(("rows", reason))
        if errors:
            raise combination_error(errors)
        return self


class EvaluationConfig(Frozen):
    """Evaluation on held-out prompts at step 0, every `every` steps and at the end."""

    every: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 10
    """Number of steps between evaluations. 0 means never."""

    prompts: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Number of held-out prompts, which are the same in every evaluation and never trained on."""

    k: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of completions per prompt. A single one is decoded greedily; more
    are sampled and give pass@k and avg@k.
    """

    effort: bool = False
    """Whether to log `eval/effort_auc`, for which the thinking of a completion is truncated at 0 to 100 % of
    its length and the answer forced (TRACE, arXiv:2510.01367). This requires thinking tags and costs up to
    five answers per prompt.
    """

    suites: Annotated[tuple[Suite, ...], Field(max_length=MAX_SUITES)] = ()
    """Named suites in addition to the held-out set, e.g. MATH-500 or AIME."""

    @property
    def is_off(self) -> bool:
        """Whether the run evaluates nothing."""
        return self.every == 0 and not self.suites

    def suite(self, name: str) -> Suite | None:
        """Return the suite with this name, or None if there is none."""
        return next((suite for suite in self.suites if suite.name == name), None)
