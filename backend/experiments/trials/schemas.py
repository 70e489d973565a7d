"""Schemas of trials for the requests and responses of the HTTP API."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from backend.analysis.diagnosis.schemas import RemedyItem
from backend.base.documented import Documented
from backend.config.base import MAX_STEPS
from backend.config.causes import Verdict
from backend.runs.schemas import Body, Fields, Steps

MAX_PARTS = 12
"""Maximum number of segments in a dotted path, which is more than any config has."""

NO_CHANGE, REPEAT = "no change", "repeat"
"""Variants of a trial's experiment in addition to its arms: the control, and the repetition."""


class ArmRequest(Body):
    """A change to try."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    changes: Fields
    """Fields of the run's config by dotted path, as in a remedy of the diagnosis."""

    @field_validator("changes")
    @classmethod
    def _short_paths(cls, changes: dict[str, Any]) -> dict[str, Any]:
        if any(path.count(".") >= MAX_PARTS for path in changes):
            raise ValueError(f"a path has at most {MAX_PARTS} parts")
        return changes


class TrialRequest(Body):
    """A request to plan or start a trial; missing fields are set according to the diagnosis."""

    cause: Annotated[str, Field(max_length=32)] = ""
    """A cause of the run's diagnosis; the first one by default."""
    arms: Annotated[list[ArmRequest], Field(min_length=1, max_length=4)] | None = None
    """Arms of the trial. By default the remedy of the cause and that of the first other cause with a config
    change; with `one_by_one` the remedies of all causes in their order.
    """
    one_by_one: bool = False
    """Whether an arm starts only after all arms before it have failed to heal."""
    seeds: Annotated[int, Field(ge=1, le=20)] = 5
    """Number of runs per arm; their seeds follow that of the run."""
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] | None = None
    """Last step of all runs; by default twice as far after the onset as the step at which it was detected."""

    @field_validator("arms")
    @classmethod
    def _distinct_names(cls, arms: list[ArmRequest] | None) -> list[ArmRequest] | None:
        names = [NO_CHANGE, REPEAT, *(arm.name for arm in arms or [])]
        if len(set(names)) < len(names):
            raise ValueError(f"names must be unique, and neither {NO_CHANGE!r} nor {REPEAT!r}")
        return arms


class TrialArm(Documented):
    """A change that is tried."""

    name: str
    changes: dict[str, Any]
    """Fields of the config by dotted path."""


class ForkPointItem(Documented):
    """The state from which every run of a trial starts."""

    run: str | None
    """Id of the run whose checkpoint the runs start from; null if they start from scratch."""
    step: int
    """Step of the checkpoint; 0 if the runs start from scratch."""
    due_step: int
    """Step of the last checkpoint that was due before the onset."""
    words: str


class TrialPrice(Documented):
    """Estimates for all runs of a trial; with `one_by_one` it is assumed that all arms start."""

    runs: int
    steps: int
    seconds_low: float | None
    """Time of all runs in seconds, one after the other on one device."""
    seconds_high: float | None
    disk_bytes: float
    """Size of metrics and completions."""
    checkpoint_bytes: float | None
    least_p: float
    """The minimum p-value that this number of seeds can reach."""


class PlanError(Documented):
    """An error in a field that prevents the start of the trial."""

    path: str
    message: str


class TrialPlanItem(Documented):
    """A trial before it starts."""

    run: str
    verdict: Verdict
    cause: str
    """Cause of the diagnosis; empty if there is none."""
    title: str
    remedy: RemedyItem | None
    onset: Steps | None
    alarm: int
    """First step at which the run's log clearly shows the trouble."""
    fork: ForkPointItem
    steps: int
    seeds: list[int]
    repeat_seed: int
    """Seed of the run, with which it is repeated without change. The repetition is not counted."""
    arms: list[TrialArm]
    """Arms in addition to the control without change."""
    one_by_one: bool
    heals_in: int
    """Number of runs of an arm that have to stay healthy for it to heal."""
    notes: list[str]
    errors: list[PlanError]
    price: TrialPrice


class ArmResult(TrialArm):
    """The runs of an arm, counted by their outcomes. The counts add up to `planned`."""

    is_pending: bool = False
    """Whether the arm has not started, because an earlier arm has healed or has not been judged."""
    planned: int
    waiting: int
    """Number of runs that have not ended."""
    recurred: int
    """Number of runs that fell or never learned according to their diagnosis."""
    spared: int
    """Number of runs that ended healthy."""
    unjudged: int
    """Number of runs that ended without a clear verdict."""
    failed: int
    """Number of runs that failed before the trouble showed, which are not used in comparisons."""
    stopped: int
    """Number of runs that were stopped before the trouble showed, which are not used in comparisons."""
    deleted: int
    goal_end: float | None
    """Mean final value of the goal over the runs that ended."""
    p: float | None
    """One-sided p-value of Fisher's exact test against the control; null until all runs have ended."""


class RepeatResult(Documented):
    """The repetition of the run with its own seed and without change."""

    state: Literal["waiting", "repeats", "differs", "unknown"]
    step: int | None = None
    """First step at which a metric differs."""
    metric: str = ""
    """A metric that differs at this step."""


class TrialVerdict(Documented):
    """The counts of all arms and the conclusions from them."""

    complete: bool
    """Whether all runs have ended and no other arm will start."""
    goal: str
    """Metric of `goal_end`."""
    arms: list[ArmResult]
    """Results of the control without change, followed by the arms."""
    repeat: RepeatResult
    sentences: list[str]


class TrialItem(Documented):
    """A trial with its current verdict."""

    id: str
    run: str
    run_name: str
    experiment: str | None
    """Id of the trial's experiment; null if its runs have been deleted."""
    initial_verdict: Verdict
    """Verdict on the run when the trial started."""
    cause: str
    title: str
    onset: Steps | None
    fork: ForkPointItem
    steps: int
    seeds: list[int]
    created_at: str
    judged_at: str | None
    """Time at which the verdict was stored; null if it is computed from the current state of the runs."""
    verdict: TrialVerdict


class TrialPage(Documented):
    """A page of trials."""

    items: list[TrialItem]
    next: str | None
