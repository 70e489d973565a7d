"""Experiments as the HTTP interface shows and takes them."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator

from backend.runs.schemas import Body, Fields, Judged, Name, Tag

Seed = Annotated[int, Field(ge=0, lt=2**31)]
MOST_RUNS = 500


class ExperimentRequest(Body):
    """Variants x seeds to launch."""

    name: Name
    base: Fields = Field(default={})
    """Fields of RunConfig that all variants share."""
    variants: Annotated[list[Fields], Field(min_length=1, max_length=100)]
    """Each a `name` and the fields of RunConfig in which it differs."""
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


class LaunchedRun(BaseModel):
    """A run as the answer to a launch shows it."""

    id: str
    name: str
    variant: str
    seed: int
    status: str


class LaunchedExperiment(BaseModel):
    """The runs that a launch has queued."""

    id: str
    name: str
    runs: list[LaunchedRun]


class ExperimentItem(BaseModel):
    """An experiment in a list."""

    id: str
    name: str
    created_at: str
    variants: list[str]
    seeds: list[int]
    runs: int
    statuses: dict[str, int]
    """How many runs have each status; the trash is left out."""


class ExperimentPage(BaseModel):
    """One page of experiments."""

    items: list[ExperimentItem]
    next: str | None


class ExperimentDetail(ExperimentItem):
    """An experiment with the request that made it."""

    request: dict[str, Any]


class ValidateRequest(Body):
    """A variant as a launch would write it."""

    base: Fields = Field(default={})
    variant: Fields = Field(default={})
    seed: Seed = 0


class Symbol(BaseModel):
    """A symbol of a formula in plain words."""

    symbol: str
    """As in the text."""
    mathml: str
    meaning: str


class Validated(BaseModel):
    """A config that can be run."""

    config: dict[str, Any]
    formula: str
    """The loss with every definition that it needs, as text."""
    formula_mathml: str
    """Its lines that are mathematics."""
    formula_notes: list[str]
    """The sentences under them: filters and their divisors, truncation, passes."""
    formula_legend: list[Symbol]
    """What each symbol means, in order of appearance."""
    estimates: dict[str, float | None]
    """Numbers per run. Time is `seconds_low` to `seconds_high`: measured on `like_runs` runs of these sizes,
    else scaled from `scaled_runs` runs of the policy, else (both 0) from the policy's size; `seconds` is the
    median of the first. null: nothing to estimate from."""
    warnings: list[str]


class SpreadItem(BaseModel):
    """A metric over the seeds of a variant."""

    n: int
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    values: list[float | str | None]
    """One value per run of the variant, in the order of `runs`."""
    delta: dict[str, float | None] | None = None
    """`mean`, `low`, `high` of the difference to the baseline, where one was named."""


class MetricSummary(BaseModel):
    """A metric at the end, at its best, and at the largest number of tokens that every run reached."""

    last: SpreadItem
    best: SpreadItem | None
    equal_tokens: SpreadItem | None
    not_comparable: list[str] = []
    """Config fields by which it has another scale here than in the baseline (or the first variant): there is
    no `delta` then."""


class SummarizedRun(LaunchedRun, Judged):
    """A run in a row of the summary."""


class VariantSummary(BaseModel):
    """A row of the summary."""

    variant: str
    runs: list[SummarizedRun]
    metrics: dict[str, MetricSummary]


class ExperimentSummary(BaseModel):
    """Variants x metrics over seeds."""

    experiment: str
    metrics: list[str]
    tokens: float | None
    """The number of tokens of `equal_tokens`."""
    variants: list[VariantSummary]
