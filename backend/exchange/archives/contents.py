"""The contents of a run's archive: an uncompressed tar file that another installation can import.

    grpolab.json          the first file: format, versions, and size and SHA-256 of every other file
    run.json              name, config, status, summary, tags, notes, verdict, attempts, checkpoints
    metrics.parquet       metric, step, value: the valid values, including those that a fork inherited
    rollouts.parquet      one completion per row, with its prompt
    tokens.parquet        one token per row: id, text, and a column for each recorded value
    tallies.parquet       counts of the completions of groups that are not stored, by marks and reward
    prompts.parquet       one prompt per row, including those of groups that are not stored
    labels.jsonl          one label per line, with the row of its completion
    events.jsonl          one event per line
    checkpoints/<name>/   the directories of the checkpoints, if requested

Text is UTF-8 in Parquet. For text that is not valid UTF-8 (NUL, lone surrogates), `<name>_exact` contains the
bytes.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from backend.storage.artifacts.names import CHECKPOINT_NAME_PATTERN, FILE_NAME_PATTERN

FORMAT = 2
"""Format of archives; others are refused with their format in the message."""
MANIFEST = "grpolab.json"
RUN, METRICS, ROLLOUTS, TOKENS, EVENTS = (
    "run.json",
    "metrics.parquet",
    "rollouts.parquet",
    "tokens.parquet",
    "events.jsonl",
)
TALLIES, PROMPTS, LABELS = "tallies.parquet", "prompts.parquet", "labels.jsonl"
TABLES = (RUN, METRICS, ROLLOUTS, TOKENS, TALLIES, PROMPTS, LABELS, EVENTS)
CHECKPOINTS = "checkpoints"

CHECKPOINT_FILE_PATTERN = re.compile(
    rf"{CHECKPOINTS}/(?P<checkpoint>{CHECKPOINT_NAME_PATTERN.pattern})/(?P<file>{FILE_NAME_PATTERN.pattern})"
)
"""Pattern of a checkpoint's file in an archive."""

Step = Annotated[int, Field(ge=-1, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Word = Annotated[str, Field(max_length=200)]
Text = Annotated[str, Field(max_length=100_000)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Strict(BaseModel):
    """A document without type coercion, which rejects unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ArchivedFile(Strict):
    """The size and hash of a file in the archive."""

    bytes: Count
    sha256: Sha256


class Manifest(Strict):
    """The first file of the archive, which describes the others."""

    format: Literal[2] = 2
    program: Word
    created_at: Word
    """Time in ISO 8601, by the clock of the machine that created the archive."""
    run: Word
    """Id of the run in the installation that archived it."""
    files: dict[str, ArchivedFile]
    missing: Annotated[list[Text], Field(max_length=10_000)] = []
    """Sentences about data that could not be read when the archive was created."""


class ArchivedAttempt(Strict):
    """An attempt, without its worker and process id, which have no meaning elsewhere."""

    number: Annotated[int, Field(ge=1, lt=2**31)]
    from_step: Step | None
    """Step of the checkpoint that the attempt continued from; -1 without one, None if it never began."""
    host: Text
    device: Word
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    slot_price: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    judge_cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] | None
    versions: dict[str, Any]
    started_at: Moment
    ended_at: Moment | None
    outcome: Text


class ArchivedCheckpoint(Strict):
    """A checkpoint in the archive."""

    name: Annotated[str, Field(pattern=rf"^{CHECKPOINT_NAME_PATTERN.pattern}$")]
    step: Step
    attempt: Annotated[int, Field(ge=1, lt=2**31)]
    sha256: Sha256
    """SHA-256 of the checkpoint's manifest, which contains the SHA-256 of its files."""
    accuracy: Annotated[float, Field(allow_inf_nan=False)] | None


class ArchivedBest(Strict):
    """The best value of a metric that should be high or low."""

    value: Number
    step: Step


class ArchivedLabel(Strict):
    """A line of labels.jsonl."""

    rollout: Count
    """Row of the label's completion in rollouts.parquet, from 0."""
    label: Annotated[str, Field(min_length=1, max_length=40, pattern=r"\S")]
    note: Annotated[str, Field(max_length=2_000)]
    role: Annotated[str, Field(pattern=r"^[a-z]{1,16}$")]
    version: Annotated[int, Field(ge=1, lt=2**31)]
    changed_at: Moment


class ArchivedSummary(Strict):
    """The last and the best value of each metric."""

    step: Step = 0
    last: Annotated[
        dict[Word, Number | Literal["NaN", "Infinity", "-Infinity"]], Field(max_length=10_000)
    ] = {}
    best: Annotated[dict[Word, ArchivedBest], Field(max_length=10_000)] = {}
    older: Annotated[dict[Word, Step], Field(max_length=10_000)] = {}
    """Steps of last values from before the last step; omitted if there are none."""


class ArchivedRun(Strict):
    """The document run.json."""

    name: Word
    experiment: Word
    variant: Word
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    origin: Annotated[str, Field(max_length=32)]
    """Empty for a run of this service; otherwise the trainer whose log was imported or that pushed it."""
    config: dict[str, Any]
    steps: Annotated[int, Field(ge=0, lt=2**31)]
    status: Literal["queued", "running", "paused", "finished", "stopped", "failed"]
    reason: Text
    last_step: Annotated[int, Field(ge=0, lt=2**31)]
    summary: ArchivedSummary
    tags: Annotated[list[Word], Field(max_length=100)]
    notes: Text
    fork_step: Annotated[int, Field(ge=0, lt=2**31)] | None
    """Step at which the run forked; the archive includes the metrics up to that step."""
    verdict: Word | None
    started_at: Moment | None
    finished_at: Moment | None
    attempts: Annotated[list[ArchivedAttempt], Field(min_length=1, max_length=10_000)]
    checkpoints: Annotated[list[ArchivedCheckpoint], Field(max_length=10_000)]
