"""Experiments as the HTTP interface shows and takes them."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator

from backend.base.documented import Documented
from backend.experiments.sweep import MAX_RUNS, Sweep
from backend.runs.schemas import Body, Fields, Name, Tag

Seed = Annotated[int, Field(ge=0, lt=2**31)]


class ExperimentRequest(Body):
    """Variants x seeds to launch."""

    name: Name
    base: Fields = Field(default={})
    """Fields of RunConfig that all variants share."""
    variants: Annotated[list[Fields], Field(min_length=1, max_length=MAX_RUNS)]
    """Each a `name` and the fields of RunConfig in which it differs."""
    sweep: Sweep | None = None
    """Values of knobs with which every variant is launched; each combination becomes a separate variant."""
    seeds: list[Seed] = Field(default=[0], min_length=1, max_length=100)
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Higher ones start first."""
    tags: list[Tag] = Field(default=[], max_length=50)
    """Given to every run."""
    notes: Annotated[str, Field(max_length=20_000)] = ""
    insist: bool = False
    """Launch even if the newest check of these problems found reference answers that are graded wrong."""

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("seeds must be unique")
        return seeds

    @field_validator("variants")
    @classmethod
    def _named_variants(cls, variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [variant.get("name") for variant in variants]
        if not all(isinstance(name, str) and 0 < len(name) <= 200 for name in names):
            raise ValueError("each variant needs a name of 1 to 200 characters")
        if len(set(names)) < len(names):
            raise ValueError("names must be unique")
        return variants


class PlannedField(Documented):
    """An error in a field of a planned variant."""

    path: str
    message: str


class PlannedCell(Documented):
    """A variant of a plan: each of its seeds would be a run."""

    variant: str
    of: str
    """Name of the variant that a sweep has made it from, or its own."""
    values: list[JsonValue]
    """One of each knob of the sweep."""
    errors: list[PlannedField]
    """Reasons why it cannot be launched."""
    seconds_low: float | None
    seconds_high: float | None
    """Time of one run; null if it cannot be launched."""
    tokens_at_most: float | None


class PlannedSearch(Documented):
    """Size of a search before it begins."""

    configurations: int
    """Maximum number of configurations that are tried, each with the first seed."""
    top: int
    """Number of configurations that are run again with the remaining seeds."""
    further_runs: int
    runs: int
    """Maximum number of all runs."""
    drawn: int
    """Number of configurations that were sampled for this plan, its cells."""
    refused: int
    """Number of sampled configurations that cannot run; a search skips them."""


class ExperimentPlan(Documented):
    """Variants and costs of an experiment that is not launched yet."""

    knobs: list[str]
    """Paths of the swept knobs."""
    cells: list[PlannedCell]
    search: PlannedSearch | None
    """Planned search of a sweep with the method `search`; else null."""
    runs: int
    seconds_low: float
    seconds_high: float
    """Time of worker slots that all runs take: a run on eight GPUs takes eight at a time."""
    tokens_at_most: float
    currency: str | None
    """Currency of the newest attempt whose slot had a price; null if none had one."""
    money_low: float | None
    money_high: float | None
    """Time of all runs at that price."""


class LaunchedRun(Documented):
    """A run as the answer to a launch shows it."""

    id: str
    name: str
    variant: str
    seed: int
    status: str


class LaunchedExperiment(Documented):
    """The runs that a launch has queued."""

    id: str
    name: str
    runs: list[LaunchedRun]


class ExperimentItem(Documented):
    """An experiment in a list."""

    id: str
    name: str
    created_at: str
    variants: list[str]
    seeds: list[int]
    runs: int
    kind: Literal["variants", "sweep", "search", "trial"]
    statuses: dict[str, int]
    """Number of runs per status, without the trash."""
    verdicts: dict[str, int]
    """Number of runs per verdict of the diagnosis, without the trash and runs that are not judged."""
    best_accuracy: float | None
    """Highest `eval/accuracy` with which a run has ended, or which it has now; null if none has one."""
    active_at: str
    """Time of the last step, end or launch of one of its runs."""


class ExperimentPage(Documented):
    """One page of experiments."""

    items: list[ExperimentItem]
    next: str | None
    total: int | None
    """Number of experiments on all pages; null on all pages but the first."""


class ExperimentDetail(ExperimentItem):
    """An experiment with the request that made it."""

    request: dict[str, Any]


class ForkPoint(Body):
    """Checkpoint from which a fork would continue."""

    run: str
    """Id of the run whose checkpoint it is."""
    step: Annotated[int, Field(ge=0, le=10_000_000)]


class ValidateRequest(Body):
    """A variant as a launch would write it."""

    base: Fields = Field(default={})
    variant: Fields = Field(default={})
    seed: Seed = 0
    fork: ForkPoint | None = None
    """Check the config as that of a fork, and estimate only the steps that are left."""


class Symbol(Documented):
    """A symbol of a formula in plain words."""

    symbol: str
    """As in the text."""
    mathml: str
    meaning: str


class MemoryChange(Documented):
    """A field of the config to change so that a run takes less memory."""

    path: str
    value: JsonValue
    saves_bytes: float
    """Bytes that this change saves in addition to the changes before it."""


class MemorySlot(Documented):
    """A kind of worker slot of one host, and whether a run fits there."""

    host: str
    device_name: str
    slots: int
    """Number of such worker slots."""
    verdict: Literal["fits", "fits with changes", "does not fit", "unknown"]
    """unknown: the worker has not said how much memory it has."""
    peak_bytes: float
    usable_bytes: float | None = None
    changes: list[MemoryChange] = []
    """Changes in order; together they make the run fit."""


class MemoryEstimate(Documented):
    """Memory of a run at its peak, counted from its config and its policy's files."""

    unknown: str = ""
    """Reason why there are no numbers; empty if there are."""
    peak_bytes: float | None = None
    host_bytes: float | None = None
    """Kept in the memory of a GPU's host."""
    phase: Literal["sample", "learn"] | None = None
    """The half of a step in which the peak comes."""
    parts: dict[str, float] = {}
    """Bytes by part at the peak, the largest first."""
    prompt_tokens: int | None = None
    """Tokens that a prompt was taken to have; completions count at their cap."""
    device: Literal["cpu", "gpu"] | None = None
    devices: int = 1
    """Devices of each node: the numbers are those of each GPU, or of all processes in one slot of a CPU."""
    nodes: int = 1
    """Nodes of the run: the numbers are those of one of them."""
    slots: list[MemorySlot] = []


class Validated(Documented):
    """A config that can be run."""

    config: dict[str, Any]
    formula: str
    """The loss with every definition that it needs, as text."""
    formula_mathml: str
    """Mathematical lines of the formula, as MathML."""
    formula_notes: list[str]
    """The sentences under them: filters and their divisors, truncation, passes."""
    formula_legend: list[Symbol]
    """Meaning of each symbol, in order of appearance."""
    estimates: dict[str, float | None]
    """Numbers per run. Time is `seconds_low` to `seconds_high`: measured on `like_runs` runs of these sizes,
    else scaled from `scaled_runs` runs of the policy, else (both 0) from the policy's size; `seconds` is the
    median of the first. null: nothing to estimate from."""
    memory: MemoryEstimate
    warnings: list[str]
