"""Schemas of runs for the requests and responses of the HTTP API."""

from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from backend.base.documented import Documented, StrictNumbers
from backend.base.redaction import secret_errors
from backend.base.text import clean_text, find_unstorable
from backend.config.causes import Verdict
from backend.config.evaluation import MAX_SUITES
from backend.runs.check_report import CheckReport

Tag = Annotated[str, Field(min_length=1, max_length=64)]
MAX_TAGS = 50
"""Maximum number of tags of one run."""
MAX_NAME_CHARACTERS = 200
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]

SpelledNumber = float | str
"""A number, or one of the strings "NaN", "Infinity" and "-Infinity"."""


class Body(StrictNumbers):
    """A request body that rejects unknown fields, NaN, infinities, secrets and text that cannot be stored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, document: Any) -> Any:
        if problem := find_unstorable(document) or next(secret_errors(document), None):
            path, reason, *_ = problem
            raise PydanticCustomError(
                "unstorable", "{path} {reason}", {"path": clean_text(path), "reason": reason}
            )
        return document


MAX_CONFIG_BYTES = 65_536


def _check_size(config: dict[str, Any]) -> dict[str, Any]:
    if (size := len(orjson.dumps(config))) > MAX_CONFIG_BYTES:
        raise ValueError(f"takes {size:,} bytes as JSON; at most {MAX_CONFIG_BYTES:,} are accepted")
    return config


Fields = Annotated[dict[str, Any], AfterValidator(_check_size)]
"""Fields of RunConfig, any number of them."""


class Best(Documented):
    """The best value of a metric that should be high or low."""

    value: float
    step: int


class Summary(Documented):
    """The last and the best value of each metric."""

    step: int = 0
    last: dict[str, SpelledNumber] = {}
    best: dict[str, Best] = {}
    older: dict[str, int] = {}
    """Steps of the last values that were recorded before `step`, for example by an evaluation."""


class AttemptItem(Documented):
    """One attempt of a worker to train a run."""

    number: int
    from_step: int | None
    """Step of the checkpoint that it continued from; -1 if it started from scratch, null if it has not
    started.
    """
    worker: str
    host: str
    pid: int | None
    device: str
    devices: int
    """Number of devices that it used on each node."""
    nodes: int
    """Number of nodes that it used."""
    slot_price: float | None
    """Price of its worker slot per hour."""
    judge_cost: float | None
    """Cost of the judges and reward models with a price."""
    currency: str | None
    versions: dict[str, Any]
    started_at: str
    ended_at: str | None
    outcome: str


class Cost(Documented):
    """The time for which the attempts of a run used worker slots, and its cost."""

    slot_hours: float
    gpu_hours: float
    """Hours of slots with a GPU."""
    money: dict[str, float]
    """Cost by currency of workers, judges and reward models with a price."""
    judges: dict[str, float]
    """Part of the cost that judges and reward models caused, by currency."""


class Steps(Documented):
    """The steps between which a change began."""

    healthy: int
    """Last step at which the change clearly had not begun."""
    sick: int
    """First step at which the change clearly had begun."""


class Judged(Documented):
    """The stored verdict of a run's diagnosis."""

    verdict: Verdict | None
    """Verdict of the diagnosis; null if the run has not been judged, or nothing was trained."""
    onset: Steps | None
    """Steps of the onset of the fall of the goal."""
    cause: str
    """First cause, as named by `GET /runs/{id}/diagnosis`; empty if there is none."""
    judged_step: int | None
    """Last step that the verdict takes into account."""


class RunItem(Judged):
    """A run in a list."""

    id: str
    name: str
    experiment: str | None
    experiment_name: str | None
    variant: str
    seed: int
    config_hash: str
    """Hash of the config without its seed, equal for all seeds of a config."""
    status: str
    reason: str
    requested_action: str
    priority: int
    archived: bool
    deleted: bool
    steps: int
    last_step: int
    summary: Summary
    tags: list[str]
    notes: str
    colour: int
    """Index of the run's color in the palette, from 0."""
    parent_run: str | None
    fork_step: int | None
    """Step of the parent's checkpoint that the run started from; up to it, the run has the parent's curves.
    """
    origin: str
    """Source of an imported log, or the trainer that pushes the run: `trl`, `verl`, `tensorboard`, `wandb`,
    `csv`, `jsonl` or `script`; empty for a run of this service. A run of another trainer has no checkpoints,
    and its `config` is in the format of that trainer.
    """
    origin_file: str
    """Name of the imported log file."""
    writer: str | None
    """Name of the token that pushes the run, empty for the operator's token; null if the run is not pushed.
    """
    seen_at: str | None
    """Time of the last sign of life of the client that pushes the run."""
    is_check: bool
    """Whether the run checks a config before launch; it has no steps, and `check` contains its result."""
    created_at: str
    queued_at: str
    started_at: str | None
    finished_at: str | None
    parent_name: str | None = None
    """Name of the parent run; only in responses with a single run."""
    check: CheckReport | None = None
    """Result of a finished check before launch; only in responses with a single run."""
    config: dict[str, Any] | None = None
    """Config of the run; null unless it was requested."""
    changes: dict[str, Any] | None = None
    """Settings by dotted path that differ from the defaults of the preset and the policy; null unless
    they were requested."""
    attempts: list[AttemptItem] | None = None
    """Attempts of the run; null unless they were requested."""
    cost: Cost | None = None
    """Cost of the run; only in responses with a single run."""


class RunPage(Documented):
    """A page of runs."""

    items: list[RunItem]
    next: str | None
    total: int | None = None
    """Total number of runs in the list; only on the first page."""


class KeptRun(Documented):
    """A run that was not changed, with the reason."""

    id: str
    name: str
    reason: str


class EmptiedTrash(Documented):
    """The result of emptying the trash."""

    deleted: list[str]
    """Ids of the runs that are being deleted permanently."""
    kept: list[KeptRun]


class RunChanges(Body):
    """The editable fields of a run."""

    name: Name | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] | None = None
    notes: Annotated[str, Field(max_length=20_000)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    """Runs with a higher priority start first."""
    archived: bool | None = None


class CloneRequest(Body):
    """A request for a new run that copies the config of another run."""

    changes: Fields = {}
    """Fields of RunConfig that override those of the other run's config."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    name: Name | None = None
    ignore_check: bool = False
    """Launch even if the newest check of these problems found reference answers that are graded wrong."""


class ForkRequest(Body):
    """A request for a new run that continues from a checkpoint of another run."""

    step: Annotated[int, Field(ge=0, le=10_000_000)]
    """Step of the checkpoint; the fork trains the steps after it."""
    changes: dict[str, Any] = {}
    """Fields of RunConfig that override those of the other run's config; the policy cannot change."""
    name: Name | None = None
    ignore_check: bool = False
    """Launch even if the newest check of these problems found reference answers that are graded wrong."""


class EvaluationRequest(Body):
    """The checkpoint to evaluate, and the problems to evaluate it on."""

    step: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """Step of the checkpoint; the newest checkpoint by default."""
    problems: Annotated[list[Fields], Field(min_length=1, max_length=32)] | None = None
    """Problem sources as in the config of a run; those of the run by default."""
    prompts: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Number of held-out prompts."""
    k: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of completions per prompt: 1 decodes greedily, more measure pass@k and avg@k."""
    effort: bool = False
    """Also measure `eval/effort_auc`."""
    held_out: bool = True
    """Whether to evaluate on held-out problems; if false, only on suites."""
    suites: Annotated[list[str | Fields], Field(max_length=MAX_SUITES)] = []
    """Suites as in the config of a run, or names of suites of the run. Their schedules are ignored."""


class _CheckSize(Body):
    prompts: Annotated[int, Field(ge=2, le=1024)] = 64
    """Number of training prompts that the policy is tried on."""
    k: Annotated[int, Field(ge=2, le=256)] | None = None
    """Completions per prompt; the signal is estimated for group sizes up to this number. By default 32, or
    the group size if it is larger, at most 256."""


class CheckRequest(_CheckSize):
    """A request to check a config before its launch."""

    base: Fields = {}
    """Fields of RunConfig that all variants share."""
    variant: Fields = {}
    """A `name` and the fields that differ from `base`."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class ForkCheckRequest(_CheckSize):
    """A request to check a fork before its launch."""

    step: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """Step of the checkpoint whose policy is tried; the newest checkpoint by default."""
    changes: Fields = {}
    """Fields of RunConfig that override those of the run's config; the policy cannot change."""


class CopyItem(Documented):
    """The locations of the files of a checkpoint."""

    name: str
    is_here: bool
    """Whether the checkpoint is on the service's machine or on a shared disk."""
    is_copied: bool
    """Whether the artifact store has the complete checkpoint."""


class CopyPage(Documented):
    """All checkpoints of a run, newest first."""

    items: list[CopyItem]
    next: None
    has_store: bool
    """Whether ARTIFACTS_URL configures an artifact store."""
