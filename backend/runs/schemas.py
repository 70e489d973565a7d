"""Runs as the HTTP interface shows and takes them."""

from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from backend.base.documented import Documented, StrictNumbers
from backend.base.redaction import secret_errors
from backend.base.text import clean_text, unstorable
from backend.config.causes import Verdict
from backend.config.evaluation import MAX_SUITES
from backend.runs.check_report import CheckReport

Tag = Annotated[str, Field(min_length=1, max_length=64)]
MAX_TAGS = 50
"""Maximum number of tags of one run."""
MAX_IN_NAME = 200
Name = Annotated[str, Field(min_length=1, max_length=MAX_IN_NAME)]

SpelledNumber = float | str
"""A number, or "NaN", "Infinity", "-Infinity"."""


class Body(StrictNumbers):
    """A request body: unknown fields, NaN, infinities, secrets and unstorable text are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, document: Any) -> Any:
        if problem := unstorable(document) or next(secret_errors(document), None):
            path, reason, *_ = problem
            raise PydanticCustomError(
                "unstorable", "{path} {reason}", {"path": clean_text(path), "reason": reason}
            )
        return document


CONFIG_BYTES = 65_536


def _check_size(config: dict[str, Any]) -> dict[str, Any]:
    if (size := len(orjson.dumps(config))) > CONFIG_BYTES:
        raise ValueError(f"takes {size:,} bytes as JSON; at most {CONFIG_BYTES:,} are accepted")
    return config


Fields = Annotated[dict[str, Any], AfterValidator(_check_size)]
"""Fields of RunConfig, or all of them."""


class Best(Documented):
    """The best value of a metric that has a direction."""

    value: float
    step: int


class Summary(Documented):
    """The last and the best value of each metric."""

    step: int = 0
    last: dict[str, SpelledNumber] = {}
    best: dict[str, Best] = {}
    older: dict[str, int] = {}
    """Steps of last values that were recorded before `step`, e.g. of an evaluation."""


class AttemptItem(Documented):
    """One claim of a run by one worker."""

    number: int
    from_step: int | None
    """Step of the checkpoint it continued from; -1: from nothing; null: it had not begun."""
    worker: str
    host: str
    pid: int | None
    device: str
    devices: int
    """Devices that it held on each node."""
    nodes: int
    """Nodes that it held."""
    slot_price: float | None
    """Price of its worker slot per hour."""
    judge_cost: float | None
    """Cost of the judges and reward models that have a price."""
    currency: str | None
    versions: dict[str, Any]
    started_at: str
    ended_at: str | None
    outcome: str


class Cost(Documented):
    """The time for which the attempts of a run held worker slots, and its price."""

    slot_hours: float
    gpu_hours: float
    """Hours of slots with a GPU."""
    money: dict[str, float]
    """Cost by currency, of workers, judges and reward models that have a price."""
    judges: dict[str, float]
    """The part of it that judges and reward models took."""


class Steps(Documented):
    """Steps between which something began."""

    healthy: int
    """Last step at which it clearly had not."""
    sick: int
    """First step at which it clearly had."""


class Judged(Documented):
    """The stored verdict of a run's diagnosis."""

    verdict: Verdict | None
    """null: not judged yet, or nothing was trained."""
    onset: Steps | None
    """Steps of the onset of what made the goal fall."""
    cause: str
    """First cause, as `GET /runs/{id}/diagnosis` names it; empty: none."""
    judged_step: int | None
    """The last step that the verdict knows."""


class RunItem(Judged):
    """A run in a list."""

    id: str
    name: str
    experiment: str | None
    experiment_name: str | None
    variant: str
    seed: int
    config_hash: str
    """Hash of the config without its seed, equal for all seeds of one config."""
    status: str
    reason: str
    wish: str
    priority: int
    archived: bool
    deleted: bool
    steps: int
    last_step: int
    summary: Summary
    tags: list[str]
    notes: str
    colour: int
    """Place of its colour in the palette, from 0."""
    parent_run: str | None
    fork_step: int | None
    """Step of the parent's checkpoint it began with; its curves up to there are the parent's."""
    origin: str
    """Source of an imported log, or the trainer that pushes the run: `trl`, `verl`, `tensorboard`, `wandb`,
    `csv`, `jsonl`, `script`; empty for a run of this service. A run of another trainer has no checkpoints,
    and its `config` is that trainer's."""
    origin_file: str
    """Name of that log's file."""
    writer: str | None
    """Name in the token that pushes it, empty for the operator's; null for a run that is not pushed."""
    seen_at: str | None
    """Last sign of life of the client that pushes it."""
    is_check: bool
    """Whether it checks a config before launch: it has no steps, and `check` holds its result."""
    created_at: str
    queued_at: str
    started_at: str | None
    finished_at: str | None
    parent_name: str | None = None
    """Only of a single run."""
    check: CheckReport | None = None
    """Only of a single run: the result of a finished check before launch."""
    config: dict[str, Any] | None = None
    """Config of the run; null unless it was requested."""
    changes: dict[str, Any] | None = None
    """Settings by dotted path that differ from what the preset and the policy start with; null unless
    requested."""
    attempts: list[AttemptItem] | None = None
    """Attempts of the run; null unless they were requested."""
    cost: Cost | None = None
    """Only of a single run."""


class RunPage(Documented):
    """One page of runs."""

    items: list[RunItem]
    next: str | None
    total: int | None = None
    """Number of runs in the whole list; only on its first page."""


class KeptRun(Documented):
    """A run that stays as it is."""

    id: str
    name: str
    reason: str


class EmptiedTrash(Documented):
    """The result of emptying the trash."""

    deleted: list[str]
    """Ids of the runs that are deleted for ever."""
    kept: list[KeptRun]


class RunChanges(Body):
    """The fields of a run that may be changed."""

    name: Name | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] | None = None
    notes: Annotated[str, Field(max_length=20_000)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    """Higher ones start first."""
    archived: bool | None = None


class CloneRequest(Body):
    """A new run like an old one."""

    changes: Fields = {}
    """Fields of RunConfig laid over the old run's config."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    name: Name | None = None
    insist: bool = False
    """Launch even if the newest check of these problems found reference answers that are graded wrong."""


class ForkRequest(Body):
    """A new run that continues from a checkpoint of another run."""

    step: Annotated[int, Field(ge=0, le=10_000_000)]
    """Step of the checkpoint; the fork trains the steps after it."""
    changes: dict[str, Any] = {}
    """Fields of RunConfig laid over the old run's config; the policy stays."""
    name: Name | None = None
    insist: bool = False
    """Launch even if the newest check of these problems found reference answers that are graded wrong."""


class EvaluationRequest(Body):
    """The checkpoint to evaluate, and the problems to evaluate it on."""

    step: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """Step of the checkpoint; the newest one if it is left out."""
    problems: Annotated[list[Fields], Field(min_length=1, max_length=32)] | None = None
    """Problem sources as in a run's config; those of the run if they are left out."""
    prompts: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Held-out prompts."""
    k: Annotated[int, Field(ge=1, le=256)] = 1
    """Completions per prompt: 1 decodes greedily, more give pass@k and avg@k."""
    effort: bool = False
    """Also measure `eval/effort_auc`."""
    held_out: bool = True
    """Evaluate on held-out problems; false: only on suites."""
    suites: Annotated[list[str | Fields], Field(max_length=MAX_SUITES)] = []
    """Suites as in a run's config, or names of the run's own. When they are due is left out of account."""


class _CheckSize(Body):
    prompts: Annotated[int, Field(ge=2, le=1024)] = 64
    """Training prompts that the policy is tried on."""
    k: Annotated[int, Field(ge=2, le=256)] | None = None
    """Completions per prompt; the signal is estimated for group sizes up to this. null: 32, or the group
    size where that is larger, at most 256."""


class CheckRequest(_CheckSize):
    """A config to check before its launch."""

    base: Fields = {}
    """Fields of RunConfig that all variants share."""
    variant: Fields = {}
    """A `name` and the fields in which the variant differs."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class ForkCheckRequest(_CheckSize):
    """A fork to check before its launch."""

    step: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """Step of the checkpoint whose policy is tried; the newest one if it is left out."""
    changes: Fields = {}
    """Fields of RunConfig laid over the run's config; the policy stays."""


class CopyItem(Documented):
    """Place of the files of a checkpoint."""

    name: str
    is_here: bool
    """Whether the checkpoint is on the service's machine or on a disk that it shares."""
    is_copied: bool
    """Whether the artifact store has the complete checkpoint."""


class CopyPage(Documented):
    """All checkpoints of a run, the newest first."""

    items: list[CopyItem]
    next: None
    has_store: bool
    """Whether ARTIFACTS_URL names an artifact store."""
