"""Schemas of experiments for the requests and responses of the HTTP API."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator

from backend.base.documented import Documented
from backend.catalog.policies.fitting import MemoryChange
from backend.experiments.sweep import MAX_RUNS, Sweep
from backend.runs.schemas import Body, Fields, Name, Tag

Seed = Annotated[int, Field(ge=0, lt=2**31)]


class ExperimentRequest(Body):
    """A request to launch variants with several seeds."""

    name: Name
    base: Fields = Field(default={})
    """Fields of RunConfig that all variants share."""
    variants: Annotated[list[Fields], Field(min_length=1, max_length=MAX_RUNS)]
    """Variants, each with a `name` and the fields of RunConfig that differ from `base`."""
    sweep: Sweep | None = None
    """Values of knobs that multiply every variant; each combination becomes a separate variant."""
    seeds: list[Seed] = Field(default=[0], min_length=1, max_length=100)
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Runs with a higher priority start first."""
    tags: list[Tag] = Field(default=[], max_length=50)
    """Tags of every run."""
    notes: Annotated[str, Field(max_length=20_000)] = ""
    ignore_check: bool = False
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
    """A variant of a plan, which would be launched as one run per seed."""

    variant: str
    of: str
    """Name of the variant from which a sweep created this one, or its own name."""
    values: list[JsonValue]
    """Value of each knob of the sweep."""
    errors: list[PlannedField]
    """Errors that prevent the launch of the variant."""
    seconds_low: float | None
    seconds_high: float | None
    """Duration of one run in seconds; null if the variant cannot be launched."""
    tokens_at_most: float | None


class PlannedSearch(Documented):
    """The planned size of a search."""

    configurations: int
    """Maximum number of configurations that are tried, each with the first seed."""
    top: int
    """Number of configurations that are run again with the remaining seeds."""
    additional_runs: int
    runs: int
    """Maximum total number of runs."""
    drawn: int
    """Number of configurations that were sampled for this plan, which are its cells."""
    refused: int
    """Number of sampled configurations that cannot run; a search skips them."""


class ExperimentPlan(Documented):
    """The variants and costs of an experiment that is not launched yet."""

    knobs: list[str]
    """Paths of the knobs that the sweep changes."""
    cells: list[PlannedCell]
    search: PlannedSearch | None
    """Plan of a sweep with the method `search`; null otherwise."""
    runs: int
    seconds_low: float
    seconds_high: float
    """Total time of worker slots in seconds; a run on eight GPUs uses eight slots at a time."""
    tokens_at_most: float
    currency: str | None
    """Currency of the newest attempt whose slot had a price; null if there is none."""
    money_low: float | None
    money_high: float | None
    """Cost of all runs at the newest price."""


class LaunchedRun(Documented):
    """A run in the response to a launch."""

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
    """Number of runs per verdict of the diagnosis, without runs in the trash and runs without a verdict."""
    best_accuracy: float | None
    """Highest final or current `eval/accuracy` of a run; null if no run has one."""
    active_at: str
    """Time of the last step, end or launch of a run."""


class ExperimentPage(Documented):
    """A page of experiments."""

    items: list[ExperimentItem]
    next: str | None
    total: int | None
    """Total number of experiments; null on all pages except the first."""


class ExperimentDetail(ExperimentItem):
    """An experiment with the request that created it."""

    request: dict[str, Any]


class ForkPoint(Body):
    """The checkpoint from which a fork would continue."""

    run: str
    """Id of the run with the checkpoint."""
    step: Annotated[int, Field(ge=0, le=10_000_000)]


class ValidateRequest(Body):
    """A variant in the format of a launch request."""

    base: Fields = Field(default={})
    variant: Fields = Field(default={})
    seed: Seed = 0
    fork: ForkPoint | None = None
    """Validate the config for a fork, and estimate only the remaining steps."""


class Symbol(Documented):
    """A symbol of a formula with its meaning."""

    symbol: str
    """The symbol as in the text of the formula."""
    mathml: str
    meaning: str


class MemorySlot(Documented):
    """A kind of worker slot on a host, and whether a run fits there."""

    host: str
    device_name: str
    slots: int
    """Number of such worker slots."""
    verdict: Literal["fits", "fits with changes", "does not fit", "unknown"]
    """`unknown` if the worker has not reported its memory."""
    peak_bytes: float
    usable_bytes: float | None = None
    changes: list[MemoryChange] = []
    """Changes that together make the run fit, in order."""


class MemoryEstimate(Documented):
    """The peak memory of a run, computed from its config and its policy's files."""

    unknown: str = ""
    """Reason why there are no numbers; empty if there are."""
    peak_bytes: float | None = None
    host_bytes: float | None = None
    """Bytes in the main memory of the GPU's host."""
    phase: Literal["sample", "learn"] | None = None
    """Phase of a step in which the peak occurs."""
    parts: dict[str, float] = {}
    """Bytes by part at the peak, largest first."""
    prompt_tokens: int | None = None
    """Assumed number of tokens of a prompt; completions are assumed to have the maximum length."""
    device: Literal["cpu", "gpu"] | None = None
    devices: int = 1
    """Number of devices per node. The numbers are per GPU, or for all processes in one slot of a CPU."""
    nodes: int = 1
    """Number of nodes of the run. The numbers are per node."""
    slots: list[MemorySlot] = []


class Validated(Documented):
    """A valid config with its formula and estimates."""

    config: dict[str, Any]
    formula: str
    """The loss with all necessary definitions, as text."""
    formula_mathml: str
    """The mathematical lines of the formula, as MathML."""
    formula_notes: list[str]
    """Sentences below the formula: filters and their divisors, truncation, and passes."""
    formula_legend: list[Symbol]
    """Meaning of each symbol, in order of appearance."""
    estimates: dict[str, float | None]
    """Numbers per run. The time is `seconds_low` to `seconds_high`: measured on `like_runs` runs of these
    sizes, else scaled from `scaled_runs` runs of the policy, else (both are 0) derived from the policy's
    size. `seconds` is the median of the measured runs. Unknown numbers are null.
    """
    memory: MemoryEstimate
    warnings: list[str]
