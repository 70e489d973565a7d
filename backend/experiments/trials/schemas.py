"""Trials as the HTTP interface shows and takes them."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from backend.analysis.diagnosis.schemas import RemedyItem
from backend.base.documented import Documented
from backend.config.base import MAX_STEPS
from backend.config.causes import Verdict
from backend.runs.schemas import Body, Fields, Steps

MAX_PARTS = 12
"""Maximum number of parts in a dotted path; no config is as deep."""

NO_CHANGE, REPEAT = "no change", "repeat"
"""Variants of a trial's experiment beside its arms: the control, and the run again with its own seed."""


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
    """The trial to plan or to start; what is left out follows the diagnosis."""

    cause: Annotated[str, Field(max_length=32)] = ""
    """A cause of the run's diagnosis; left out: the first one."""
    arms: Annotated[list[ArmRequest], Field(min_length=1, max_length=4)] | None = None
    """Left out: the cause's remedy, and that of its first rival that is a change of the config; with
    `one_by_one` the remedies of all causes, as they are ranked."""
    one_by_one: bool = False
    """Whether an arm begins only after all before it have failed to heal."""
    seeds: Annotated[int, Field(ge=1, le=20)] = 5
    """Runs of each arm; their seeds follow that of the run."""
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] | None = None
    """Step at which every run ends; left out: twice as many steps past the onset as the diagnosis needed."""

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
    """The state that every run of a trial begins with."""

    run: str | None
    """Id of the run whose checkpoint the runs start from; null if they start from the beginning."""
    step: int
    """0: from the beginning."""
    wanted: int
    """Step of the last checkpoint that was to be written before the onset."""
    words: str


class TrialPrice(Documented):
    """Estimates for all runs of a trial together; of one by one, for the case that every arm begins."""

    runs: int
    steps: int
    seconds_low: float | None
    """One run after the other, on one device."""
    seconds_high: float | None
    disk_bytes: float
    """Metrics and completions."""
    checkpoint_bytes: float | None
    least_p: float
    """The smallest p that this many seeds can give."""


class PlanError(Documented):
    """A field that has to change before the trial can start."""

    path: str
    message: str


class TrialPlanItem(Documented):
    """A trial before it starts."""

    run: str
    verdict: Verdict
    cause: str
    """Empty: the diagnosis names none."""
    title: str
    remedy: RemedyItem | None
    onset: Steps | None
    alarm: int
    """First step at which the run's own log shows the trouble beyond doubt."""
    fork: ForkPointItem
    steps: int
    seeds: list[int]
    repeat_seed: int
    """Seed of the run: trained once more without change, which must repeat it. It is not counted."""
    arms: list[TrialArm]
    """Beside the one without change."""
    one_by_one: bool
    heals_in: int
    """Runs of an arm that have to stay healthy for it to heal."""
    notes: list[str]
    errors: list[PlanError]
    price: TrialPrice


class ArmResult(TrialArm):
    """Runs of an arm, counted by what became of them. The counts add up to `planned`."""

    waits: bool = False
    """Not begun: an arm before it has not been judged yet, or healed."""
    planned: int
    waiting: int
    """Not ended yet."""
    recurred: int
    """Fell, or never rose, as the diagnosis judges them."""
    spared: int
    """Ended healthy."""
    unjudged: int
    """Ended; the diagnosis reaches no verdict."""
    failed: int
    """Failed before the trouble showed: counted apart."""
    stopped: int
    """Stopped before the trouble showed: counted apart."""
    deleted: int
    goal_end: float | None
    """Mean of the goal at the end of the runs that ended."""
    p: float | None
    """Fisher's exact test against the arm without change, one-sided; null until all runs have ended."""


class RepeatResult(Documented):
    """The run once more, with its own seed and without change."""

    state: Literal["waiting", "repeats", "differs", "unknown"]
    step: int | None = None
    """First step at which a metric differs."""
    metric: str = ""
    """A metric that differs there."""


class TrialVerdict(Documented):
    """Counts of every arm, and what follows from them."""

    complete: bool
    """Whether all runs have ended, and no arm is to begin."""
    goal: str
    """Metric of `goal_end`."""
    arms: list[ArmResult]
    """First the one without change."""
    repeat: RepeatResult
    sentences: list[str]


class TrialItem(Documented):
    """A trial with its verdict so far."""

    id: str
    run: str
    run_name: str
    experiment: str | None
    """null: its runs have been deleted."""
    found: Verdict
    """Verdict on the run when the trial began."""
    cause: str
    title: str
    onset: Steps | None
    fork: ForkPointItem
    steps: int
    seeds: list[int]
    created_at: str
    judged_at: str | None
    """Time at which the verdict was stored; null if it is computed from the runs' current state."""
    verdict: TrialVerdict


class TrialPage(Documented):
    """One page of trials."""

    items: list[TrialItem]
    next: str | None
