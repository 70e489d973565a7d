"""Records that clients push: metrics and completions of a step, and the end of a run."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, FailFast, Field, WithJsonSchema, model_validator

from backend.base.documented import Documented, StrictNumbers
from backend.base.redaction import redact_document
from backend.rollouts.foreign import MAX_COMPLETIONS, clean_finish_reason
from backend.runs.origin import PushOrigin

LAST_STEP = 2**31 - 2
MAX_RECORDS = 20_000
MAX_VALUES = 1_000
MAX_VALUES_OF_BATCH = 100_000
MAX_COMPLETIONS_OF_BATCH = 20_000
PROCESS_DIGITS = 16
"""Number of leading digits that sessions of a process and its forks share."""


NUMBER_LIMIT = 10**308
NONFINITE_NUMBERS = ("NaN", "Infinity", "-Infinity")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("expected a text")


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < NUMBER_LIMIT
    if is_number or value in NONFINITE_NUMBERS:
        return float(value)
    raise ValueError('expected a number below 1e308 in size, "NaN", "Infinity" or "-Infinity"')


ExactText = Annotated[Any, AfterValidator(_text), WithJsonSchema({"type": "string"})]
"""Exact model text, including half surrogate pairs, which Pydantic refuses in a `str`."""

Number = Annotated[
    Any,
    AfterValidator(_number),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}),
]
"""A number. Non-finite numbers are strings, because JSON cannot represent them."""

Step = Annotated[int, Field(strict=True, ge=0, le=LAST_STEP)]
Label = Annotated[str, Field(min_length=1, max_length=512)]
Name = Annotated[str, Field(max_length=200)]


class PushModel(StrictNumbers):
    """Part of a request; NUL is escaped when it is stored."""

    model_config = ConfigDict(extra="forbid")


class RunHead(PushModel):
    """Description of a run by its client, sent until the service has answered once."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    experiment: Name = "pushed runs"
    """Pushed and imported runs of one experiment are compared on one page."""
    variant: Name = ""
    """Runs of one variant differ by seed. Empty: the name of the run."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    steps: Annotated[int, Field(strict=True, ge=-1, le=LAST_STEP)] = -1
    """Number of steps that the run will train; -1 if unknown."""
    config: dict[str, Any] = {}
    origin: PushOrigin = "script"


class MetricsRecord(PushModel):
    """Values of some metrics at one step, under the trainer's names."""

    kind: Literal["metrics"]
    step: Step
    values: Annotated[dict[Label, Number], Field(max_length=MAX_VALUES)]


class Completion(PushModel):
    """A completion; unknown values are left out."""

    text: ExactText
    reward: Number | None = None
    rewards: Annotated[dict[Annotated[str, Field(max_length=128)], Number | None], Field(max_length=64)] = {}
    advantage: Number | None = None
    tokens: Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None = None
    finish_reason: Annotated[str, Field(max_length=16), AfterValidator(clean_finish_reason)] = ""
    """Characters that are not allowed in archives are stored as _."""
    correct: bool | None = None


class CompletionsRecord(PushModel):
    """The completions of one prompt at one step."""

    kind: Literal["completions"]
    step: Step
    split: Literal["train", "eval"] = "train"
    index: Annotated[int, Field(strict=True, ge=0, lt=2**20)]
    """Position of the prompt within its step; a record with the same position replaces the previous one."""
    prompt: ExactText
    answer: ExactText = ""
    completions: Annotated[list[Completion], Field(min_length=1, max_length=MAX_COMPLETIONS)]


class FinishRecord(PushModel):
    """The end of the run."""

    kind: Literal["finish"]
    status: Literal["finished", "failed", "stopped"]
    reason: Annotated[str, Field(max_length=2_000)] = ""


def _brief(records: "list[Record | None]") -> "list[Record | None]":
    """Limit the size of a batch, because no other process can write while it is stored."""
    values = sum(len(record.values) for record in records if isinstance(record, MetricsRecord))
    if values > MAX_VALUES_OF_BATCH:
        raise ValueError(f"expected at most {MAX_VALUES_OF_BATCH:,} values, got {values:,}")
    count = sum(len(record.completions) for record in records if isinstance(record, CompletionsRecord))
    if count > MAX_COMPLETIONS_OF_BATCH:
        raise ValueError(f"expected at most {MAX_COMPLETIONS_OF_BATCH:,} completions, got {count:,}")
    if sum(isinstance(record, FinishRecord) for record in records) > 1:
        raise ValueError("a run ends once: expected at most one record of kind finish")
    return records


Record = Annotated[MetricsRecord | CompletionsRecord | FinishRecord, Field(discriminator="kind")]


class Batch(PushModel):
    """Consecutive records of one session. Records that are already stored are skipped."""

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, document: Any) -> Any:
        """Redact names and texts before any of them is cut or stored."""
        return redact_document(document)

    session: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Random id of a process or file, which numbers its records from 1.

    Sessions with the same first 16 digits belong to one process and its forks, and end with that process. The
    end of a process is ignored if a newer process was active after it, or in the two minutes before.
    """
    run: RunHead | None = None
    first: Annotated[int, Field(strict=True, ge=1, lt=2**62)]
    """Number of the first of these records."""
    records: Annotated[list[Record | None], Field(max_length=MAX_RECORDS), FailFast(), AfterValidator(_brief)]
    """Records; null replaces a record that was refused before. An empty list is a heartbeat."""


class PushResponse(Documented):
    """State of a pushed run."""

    run: str
    """Id of the run in this service, as in `/run/<id>`."""
    status: str
    stop: bool
    """Whether a user has requested that the run stops."""
    stored: int = 0
    """Number of the last stored record of the session."""
