"""Held-out evaluation: the run's own held-out set, and named suites with their own problems and sampling."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.config.base import MAX_STEPS, Frozen, refusal
from backend.config.problems import FileProblem, HubProblem, ProblemSource, SumsProblem

SuiteName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
"""Name of a suite, which becomes part of the names of its metrics."""

RESERVED = ("accuracy",)
"""Names that no suite may have, because `eval/accuracy/<domain>` are metrics of the held-out set."""

MAX_SUITES = 16
UNSCHEDULED: dict[str, object] = {"every": 0, "steps": (), "at_end": True}
"""Schedule of a suite in a run without steps, which evaluates every suite once."""


class Suite(Frozen):
    """A named evaluation: a problem source, its own sampling, and the steps at which it is measured."""

    name: SuiteName = "suite"
    """Name in metrics and rollouts, e.g. math500 in eval/math500/accuracy."""

    problem: ProblemSource = SumsProblem()
    """The problem source."""

    rows: Literal["held_out", "all"] = "held_out"
    """held_out: the held-out rows of the source; all: every row, for files and hub datasets that are test
    sets as a whole. No prompt of a suite is trained on."""

    prompts: Annotated[int, Field(ge=1, le=100_000)] = 500
    """Number of prompts, the same at every evaluation; fewer if the source has fewer."""

    n: Annotated[int, Field(ge=1, le=256)] = 4
    """Completions per prompt: accuracy is avg@n, with pass@k and maj@k for k up to n."""

    temperature: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Divides the logits before sampling; 0 decodes greedily, with n = 1."""

    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Nucleus mass; 1: off."""

    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Keep only the k most likely tokens; 0: off."""

    max_new_tokens: Annotated[int, Field(ge=0, le=131072)] = 0
    """Length cap of a completion, in tokens; 0: the same as in training."""

    every: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 0
    """Steps between evaluations, the first before training; 0: only at `steps` and at the end."""

    steps: Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_STEPS)], ...], Field(max_length=256)] = ()
    """Further steps after which the suite is evaluated; 0: before training."""

    at_end: bool = True
    """Evaluate after the last step."""

    @property
    def kind(self) -> str:
        """The prefix of its metrics, and what its rollouts are stored as."""
        return f"eval/{self.name}"

    def is_due(self, step: int, *, last_step: int) -> bool:
        """Return whether the suite is evaluated after a step; a run without steps evaluates all of its
        suites.
        """
        is_end = step == last_step and (self.at_end or last_step == 0)
        return is_end or step in self.steps or (self.every > 0 and step % self.every == 0)

    def evaluations(self, steps: int, *, after: int = 0) -> int:
        """Return the number of times a run of so many steps evaluates the suite; of a fork those behind
        `after`.
        """
        first = after + 1 if after else 0
        chosen = {step for step in self.steps if first <= step <= steps} | (
            {steps} if self.at_end or not steps else set()
        )
        if not self.every:
            return len(chosen)
        at_multiples = steps // self.every - (first - 1) // self.every
        return at_multiples + sum(step % self.every > 0 for step in chosen)

    @model_validator(mode="after")
    def _makes_sense(self) -> "Suite":
        errors = []
        if self.name in RESERVED:
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
            raise refusal(errors)
        return self


class EvaluationConfig(Frozen):
    """Held-out evaluation, at step 0, every `every` steps and at the end."""

    every: Annotated[int, Field(ge=0, le=MAX_STEPS)] = 10
    """Steps between evaluations; 0: never."""

    prompts: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Number of held-out prompts, the same at every evaluation; training never sees them."""

    k: Annotated[int, Field(ge=1, le=256)] = 1
    """Completions per prompt: 1 decodes greedily, more are sampled and give pass@k and avg@k."""

    effort: bool = False
    """Log `eval/effort_auc`: cut a completion's thinking at 0 to 100 % of its length and force
    the answer (TRACE, arXiv:2510.01367). Needs thinking tags; costs up to five answers a prompt."""

    suites: Annotated[tuple[Suite, ...], Field(max_length=MAX_SUITES)] = ()
    """Named suites beside the held-out set, e.g. MATH-500 or AIME."""

    @property
    def is_off(self) -> bool:
        """Whether the run evaluates nothing."""
        return self.every == 0 and not self.suites

    def suite(self, name: str) -> Suite | None:
        """Return the suite of a name; None if there is none."""
        return next((suite for suite in self.suites if suite.name == name), None)
