"""The tables of the database.

    experiment ─< run ─< attempt
               ─  search ─< search_trial
                   ├──< metric            one row per (run, metric, step, attempt); sealed: metric_block
                   ├──< rollout_group ─< rollout_label
                   │            ├─ rollout_tokens
                   │            └─ rollout_words      full-text index, see storage/rollout_words.py
                   ├──< checkpoint, event, log_chunk
                   ├──< push_session
                   └──< trial >── experiment
    worker, singleton, browser_session, webhook, saved_view

Times are in seconds since 1970 (UTC), read from the database's clock. A resumed run keeps the rows of older
attempts. The valid row of step k belongs to the highest attempt whose `from_step` is below k. Rows of older
attempts after that `from_step` are hidden.
"""

from itertools import count
from random import randrange
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Text,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from backend.storage.engine import db_now, new_id
from backend.storage.sort_values import (
    COLUMN_BY_METRIC,
    NUMBER_COLUMN_BY_PATH,
    TEXT_COLUMN_BY_PATH,
    config_number_default,
    config_text_default,
    last_value_default,
)

Seconds = Float(53)
"""Column type for seconds since 1970 in double precision."""

BigId = BigInteger().with_variant(Integer, "sqlite")
"""Column type for an autoincrementing 64-bit key on both databases."""


NOT_BEGUN = 2**31 - 1
"""`from_step` of an attempt that has not reported its start yet and therefore hides no rows."""

BEFORE_ALL_STEPS = -(2**31)
"""Number below the first step of every run."""

ALL_PACKED = 2**31 - 1
"""`packed_step` of an attempt that has ended and is completely stored in blocks."""


COLOUR_COUNT = 10
"""Number of colours in the palette of frontend/src/lib/colours.js."""

_next_colour = count(randrange(COLOUR_COUNT))

LISTED_RUN_CONDITION = text("archived_at IS NULL AND deleted_at IS NULL AND deleting_at IS NULL")
"""Condition for the runs of the default list. Partial indexes with it make counting them fast."""

DELETING_RUN_CONDITION = text("deleting_at IS NOT NULL")
"""Condition for runs that are being deleted permanently.

SQLite's planner makes wrong choices if the index lacks this condition.
"""


class Base(DeclarativeBase):
    """Base class of the mapped tables, with fixed constraint names that migrations can use."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        dict[str, Any]: JSON,
        list[Any]: JSON,
        bytes: LargeBinary,
        float: Seconds,
    }


class Experiment(Base):
    """Runs that were launched together: every variant with every seed."""

    __tablename__ = "experiment"

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(Text)
    request: Mapped[dict[str, Any]]
    """Request that created the experiment, with the base config, the variants and the seeds."""
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[float] = mapped_column(default=db_now())


class Run(Base):
    """One training run. `attempt` is the fencing token of its owner."""

    __tablename__ = "run"
    __table_args__ = (
        Index("ix_run_claim", "status", "priority", "queued_at", "id"),
        Index("ix_run_experiment", "experiment_id"),
        Index("ix_run_created", "created_at", "id"),
        Index(
            "ix_run_listed",
            "created_at",
            "id",
            sqlite_where=LISTED_RUN_CONDITION,
            postgresql_where=LISTED_RUN_CONDITION,
        ),
        Index("ix_run_changed", "changed_at"),
        Index(
            "ix_run_deleting",
            "deleting_at",
            sqlite_where=DELETING_RUN_CONDITION,
            postgresql_where=DELETING_RUN_CONDITION,
        ),
        Index("ix_run_writer_key", "writer", "writer_key", unique=True),
        Index("ix_run_judged", "status", "judged_step", "last_step", "judged_by"),
        *(
            Index(
                f"ix_run_{column}",
                column,
                "id",
                sqlite_where=LISTED_RUN_CONDITION,
                postgresql_where=LISTED_RUN_CONDITION,
            )
            for column in (
                *COLUMN_BY_METRIC.values(),
                *NUMBER_COLUMN_BY_PATH.values(),
                *TEXT_COLUMN_BY_PATH.values(),
            )
        ),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(Text)
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiment.id"))
    variant: Mapped[str] = mapped_column(Text)
    seed: Mapped[int] = mapped_column(BigInteger)
    config: Mapped[dict[str, Any]]
    """RunConfig as JSON. For an imported run, the part of the other trainer's config that its log contains.
    """
    config_hash: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the config without its seed, which all runs of a variant share."""
    steps: Mapped[int]
    """Number of steps for which the run trains."""
    devices: Mapped[int] = mapped_column(default=1)
    """Number of devices per node that train together: `resources.devices` of the config."""
    nodes: Mapped[int] = mapped_column(default=1)
    """Number of nodes that train together: `resources.nodes` of the config."""

    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    requested_action: Mapped[str] = mapped_column(String(8), default="")
    """Request to a running run, read at each step: "", "stop", "pause", or "prune" from a search."""
    attempt: Mapped[int] = mapped_column(default=0)
    worker_id: Mapped[str | None] = mapped_column(String(64))
    lease_until: Mapped[float] = mapped_column(default=0.0)
    priority: Mapped[int] = mapped_column(default=0)
    run_after: Mapped[float] = mapped_column(default=0.0)
    own_failures: Mapped[int] = mapped_column(default=0)
    """Number of consecutive failures caused by the trainer, without a new checkpoint in between."""

    last_step: Mapped[int] = mapped_column(default=0)
    progress_at: Mapped[float | None]
    summary: Mapped[dict[str, Any]] = mapped_column(default=lambda: {"step": 0, "last": {}, "best": {}})
    """Values for the list of runs: {"step", "last": {metric: value}, "best": {metric: {"value", "step"}}}."""

    sort_reward: Mapped[float | None] = mapped_column(default=last_value_default("reward/mean"))
    sort_accuracy: Mapped[float | None] = mapped_column(default=last_value_default("reward/accuracy"))
    sort_eval_accuracy: Mapped[float | None] = mapped_column(default=last_value_default("eval/accuracy"))
    sort_length: Mapped[float | None] = mapped_column(default=last_value_default("length/mean"))
    """Indexed values of the summary by which lists are sorted. See storage/sort_values.py."""
    sort_lr: Mapped[float | None] = mapped_column(default=config_number_default("optimizer.lr"))
    sort_group_size: Mapped[float | None] = mapped_column(
        default=config_number_default("sampling.group_size")
    )
    sort_temperature: Mapped[float | None] = mapped_column(
        default=config_number_default("sampling.temperature")
    )
    sort_preset: Mapped[str | None] = mapped_column(Text, default=config_text_default("preset"))
    sort_policy: Mapped[str | None] = mapped_column(Text, default=config_text_default("policy.name"))
    """Indexed values of the config by which lists are sorted. See storage/sort_values.py."""

    tags: Mapped[list[Any]] = mapped_column(default=list)
    notes: Mapped[str] = mapped_column(Text, default="")
    colour: Mapped[int] = mapped_column(SmallInteger, default=lambda: next(_next_colour) % COLOUR_COUNT)
    """Index of the run's colour in the palette. Runs that are created in sequence get consecutive colours."""
    parent_run: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    fork_step: Mapped[int | None]
    origin: Mapped[str] = mapped_column(String(32), default="")
    """Trainer that wrote the imported log or pushes the run, e.g. "trl", or "" for a run of this service."""
    origin_file: Mapped[str] = mapped_column(Text, default="")
    """File name of the imported log."""
    writer: Mapped[str | None] = mapped_column(String(64))
    """Writer whose token pushes this run, "" for the operator's token, or NULL if the run is not pushed."""
    writer_key: Mapped[str | None] = mapped_column(String(128))
    """Id that the client assigned to the run, unique per writer."""
    verdict: Mapped[str | None] = mapped_column(String(16))
    """Verdict of the diagnosis at `judged_step`, or NULL if the run is not diagnosed or trained nothing."""
    onset_healthy: Mapped[int | None]
    onset_sick: Mapped[int | None]
    """First step at which the cause of the goal's fall had certainly begun."""
    cause: Mapped[str] = mapped_column(String(32), default="")
    """Key of the first cause, e.g. "update_size", or "" if there is none."""
    judged_step: Mapped[int | None]
    """Last step that the diagnosis covers. The run is due for a diagnosis unless it equals `last_step`."""
    judged_by: Mapped[int] = mapped_column(default=0)
    """Version of the detectors that produced the verdict. The run is due if it is not the current version."""
    check_hash: Mapped[str | None] = mapped_column(String(64), index=True)
    """`grading_hash` of the config that a check before launch tests, or NULL if the run trains or evaluates.
    """
    check_report: Mapped[dict[str, Any] | None]
    """Result of a check before launch. See runs/check_report.py."""
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True, index=True)
    """Idempotency key of the request that cloned, forked, evaluated or imported the run, or NULL."""
    request_hash: Mapped[str | None] = mapped_column(String(64))
    archived_at: Mapped[float | None]
    deleted_at: Mapped[float | None]
    """Time at which the run was moved to the trash."""
    deleting_at: Mapped[float | None]
    """Time at which the permanent deletion began. The run is hidden while its rows and files are removed."""
    created_at: Mapped[float] = mapped_column(default=db_now())
    queued_at: Mapped[float] = mapped_column(default=db_now())
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    changed_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())
    """Time of the last change of this row except lease renewals. Live pages poll it."""


class Attempt(Base):
    """One claim of a run by one worker."""

    __tablename__ = "attempt"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    from_step: Mapped[int] = mapped_column(default=NOT_BEGUN)
    """Step of the checkpoint from which the attempt resumed, -1 without one, or NOT_BEGUN until it is known.
    """
    packed_step: Mapped[int] = mapped_column(default=-1, index=True)
    """Last step up to which all points are sealed into blocks, or ALL_PACKED if no more are expected."""
    worker_id: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int | None]
    device: Mapped[str] = mapped_column(String(64), default="")
    devices: Mapped[int] = mapped_column(default=1)
    """Number of devices that the attempt used on each node: GPUs, or processes in one CPU slot."""
    nodes: Mapped[int] = mapped_column(default=1)
    """Number of nodes that the attempt used."""
    slot_price: Mapped[float | None]
    """Price of the worker slot per hour when the attempt began, in `currency`, or NULL if it had no price."""
    judge_cost: Mapped[float | None]
    """Cost of the judges and reward models so far, in `currency`, or NULL if none has a price."""
    currency: Mapped[str | None] = mapped_column(String(3))
    versions: Mapped[dict[str, Any]] = mapped_column(default=dict)
    started_at: Mapped[float] = mapped_column(default=db_now())
    ended_at: Mapped[float | None]
    outcome: Mapped[str] = mapped_column(Text, default="")


class MetricKey(Base):
    """A metric's name, stored once."""

    __tablename__ = "metric_key"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)


class Metric(Base):
    """One value of a metric at one step. NaN and infinities are stored by `kind`."""

    __tablename__ = "metric"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy declares its type

    # No foreign keys, because their checks halve the speed of writing. Writers are fenced instead.
    run_id: Mapped[str] = mapped_column(String(26), primary_key=True)
    key_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[int] = mapped_column(SmallInteger, default=0)
    """Kind of the value: 0 finite, 1 NaN, 2 +infinity, 3 -infinity, 4 minus zero (SQLite drops its sign)."""
    value: Mapped[float | None]
    """The value if it is finite, or NULL."""


class MetricBlock(Base):
    """Sealed points of one metric of an attempt, which are stored only here. See metrics/blocks.py."""

    __tablename__ = "metric_block"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    key_id: Mapped[int] = mapped_column(ForeignKey("metric_key.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    last_step: Mapped[int]
    """Step of the block's newest point."""
    points: Mapped[int]
    outline: Mapped[bytes]
    """Points that a thinned curve may show. Empty if they are not much fewer than all points."""
    data: Mapped[bytes]
    """All points. metrics/block_codec.py describes the format of `outline` and `data`."""


class RolloutGroup(Base):
    """The G completions of one prompt at one step."""

    __tablename__ = "rollout_group"
    __table_args__ = (
        Index("ix_rollout_group_run_step", "run_id", "step", "kind", "prompt_index"),
        Index("ix_rollout_group_search_number", "search_number", unique=True),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    step: Mapped[int]
    attempt: Mapped[int]
    kind: Mapped[str] = mapped_column(String(40))
    """`train`, `eval`, or `eval/<suite>`."""
    prompt_index: Mapped[int]
    """Index of the prompt within its step."""
    prompt_id: Mapped[str] = mapped_column(Text)
    problem: Mapped[str] = mapped_column(Text)
    domain: Mapped[str] = mapped_column(Text)
    prompt: Mapped[bytes]
    """zstd of the exact UTF-8 bytes."""
    answer: Mapped[bytes]
    """zstd of the exact UTF-8 bytes."""
    reward_mean: Mapped[float | None]
    reward_std: Mapped[float | None]
    left_out: Mapped[str] = mapped_column(String(16), default="")
    """Reason why it was not trained on at its step (see rollouts/marks.py), or "" if it was or if unknown."""
    search_number: Mapped[int | None] = mapped_column(BigInteger)
    """Number of the group in the full-text index, or NULL if the reconciler has not indexed it yet."""
    completions: Mapped[bytes] = mapped_column(deferred=True)
    """Encoded completions of the group. See storage/completion_codec.py."""


class GroupTally(Base):
    """Counts of a group's completions with the same marks and reward, also for groups that are not stored."""

    __tablename__ = "group_tally"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy declares its type

    # No foreign keys, for the same reason as in Metric.
    run_id: Mapped[str] = mapped_column(String(26), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    prompt_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Number of the tally within the group, starting at 0."""
    prompt_id: Mapped[str] = mapped_column(Text)
    marks: Mapped[int]
    """Bit field of the marks in rollouts/marks.py."""
    reward: Mapped[float | None]
    """Reward of each completion, or NULL if it is missing or not finite."""
    completions: Mapped[int]
    tokens: Mapped[int] = mapped_column(BigInteger)
    """Total number of tokens of the completions."""


class RunPrompt(Base):
    """A prompt of a run, stored once even if none of its completions are stored."""

    __tablename__ = "run_prompt"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy declares its type

    run_id: Mapped[str] = mapped_column(String(26), primary_key=True)
    id: Mapped[str] = mapped_column(Text, primary_key=True)
    problem: Mapped[str] = mapped_column(Text)
    domain: Mapped[str] = mapped_column(Text)
    prompt: Mapped[bytes]
    """zstd of the exact UTF-8 bytes."""
    answer: Mapped[bytes]
    """zstd of the exact UTF-8 bytes."""


class RolloutTokens(Base):
    """Token strings and per-token arrays of one group, packed (see backend.rollouts.packing)."""

    __tablename__ = "rollout_tokens"

    group_id: Mapped[str] = mapped_column(
        ForeignKey("rollout_group.id", ondelete="CASCADE"), primary_key=True
    )
    data: Mapped[bytes]


class RolloutLabel(Base):
    """A label that a person has given to a completion, with the reason."""

    __tablename__ = "rollout_label"
    __table_args__ = (
        Index("ix_rollout_label_run", "run_id", "label"),
        Index("ix_rollout_label_group", "group_id"),
    )

    rollout_id: Mapped[str] = mapped_column(String(26), primary_key=True)
    label: Mapped[str] = mapped_column(String(40), primary_key=True)
    group_id: Mapped[str] = mapped_column(ForeignKey("rollout_group.id", ondelete="CASCADE"))
    run_id: Mapped[str] = mapped_column(String(26))
    note: Mapped[str] = mapped_column(Text, default="")
    role: Mapped[str] = mapped_column(String(16))
    """Role of the person who last changed the label."""
    version: Mapped[int] = mapped_column(default=1)
    """Version of the label, incremented by each change. A change to an older version is refused."""
    changed_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())


class Checkpoint(Base):
    """A directory from which training can resume. The row is written after the directory is on the disk."""

    __tablename__ = "checkpoint"
    __table_args__ = (Index("ix_checkpoint_run_step", "run_id", "step"),)

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    step: Mapped[int]
    attempt: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    """Path relative to the run's artifact directory."""
    sha256: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the manifest, which contains the SHA-256 of every file."""
    bytes_total: Mapped[int] = mapped_column(BigInteger)
    manifest: Mapped[dict[str, Any]]
    kept_for: Mapped[str | None] = mapped_column(String(8))
    """"warning" or "verdict", if the checkpoint precedes the onset of such a diagnosis and is kept for it."""
    onset: Mapped[int | None]
    """First step at which the diagnosed cause had certainly begun."""
    created_at: Mapped[float] = mapped_column(default=db_now())


class Trial(Base):
    """An experiment that tests remedies for a broken run by forking one of its checkpoints."""

    __tablename__ = "trial"
    __table_args__ = (
        Index("ix_trial_run", "run_id"),
        Index("ix_trial_experiment", "experiment_id"),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    """Id of the broken run."""
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiment.id"))
    """Id of the experiment, or NULL if all its runs were deleted after the verdict."""
    initial_verdict: Mapped[str] = mapped_column(String(16))
    """Verdict on the run when the trial began."""
    cause: Mapped[str] = mapped_column(String(32))
    """Cause whose remedies are tested, or "" if the diagnosis found none."""
    onset_healthy: Mapped[int | None]
    onset_sick: Mapped[int | None]
    fork_run: Mapped[str | None] = mapped_column(String(26))
    """Id of the run whose checkpoint the trial's runs start from, or NULL if they start from step 0."""
    fork_step: Mapped[int]
    due_step: Mapped[int]
    """Step of the last scheduled checkpoint before the onset."""
    words: Mapped[str] = mapped_column(Text)
    """Sentence that explains from which step the runs start, and why."""
    steps: Mapped[int]
    """Step at which every run ends."""
    seeds: Mapped[list[Any]]
    """Seeds of each arm except the seed of the broken run, with which each arm trains as well."""
    arms: Mapped[list[Any]]
    """Arms as [{"name", "changes"}], without the unchanged arm."""
    verdict: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Counts and explanations for each arm, stored after all runs have ended."""
    judged_at: Mapped[float | None]
    created_at: Mapped[float] = mapped_column(default=db_now())


class Search(Base):
    """An experiment whose configurations are chosen one after the other from the results so far.

    The experiment's row contains the request of the search.
    """

    __tablename__ = "search"

    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id"), primary_key=True)
    status: Mapped[str] = mapped_column(String(16), default="searching", index=True)
    """"searching", "comparing" (the best configurations with additional seeds), "finished" or "stopped"."""
    reason: Mapped[str] = mapped_column(Text, default="")
    """Sentence that explains why no additional configuration is tried."""
    revision: Mapped[int] = mapped_column(default=0)
    """Revision of the search, incremented by each decision. A decision based on older rows is dropped."""
    ended_at: Mapped[float | None]
    deleted_cost: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Slot hours, and costs by currency, of the permanently deleted runs of the search."""


class SearchTrial(Base):
    """A configuration of a search and its first run."""

    __tablename__ = "search_trial"

    experiment_id: Mapped[str] = mapped_column(ForeignKey("search.experiment_id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """Number of the configuration in the order of choice, starting at 0."""
    point: Mapped[list[Any]]
    """Values of the swept knobs, in the order of the sweep."""
    variant: Mapped[str] = mapped_column(Text)
    run_id: Mapped[str | None] = mapped_column(String(26))
    """Id of the run with the first seed, which may be deleted, or NULL if the configuration cannot be run."""
    refused: Mapped[str] = mapped_column(Text, default="")
    """Reason why the configuration cannot be run, or ""."""
    judged_step: Mapped[int] = mapped_column(default=0)
    """Last step whose value the pruner has evaluated."""
    pruned: Mapped[str] = mapped_column(Text, default="")
    """Reason why the search stopped the run, or "". It stays if a person resumes the run."""
    chosen: Mapped[bool] = mapped_column(default=False)
    """Whether the configuration is run again with the additional seeds."""


class Event(Base):
    """An event of a run or of the installation. It is never changed, and deleted only with its run."""

    __tablename__ = "event"
    __table_args__ = (
        Index("ix_event_run", "run_id", "id"),
        Index("ix_event_kind", "kind", "level"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    attempt: Mapped[int | None]
    at: Mapped[float] = mapped_column(default=db_now())
    kind: Mapped[str] = mapped_column(String(32))
    """"lifecycle", "checkpoint", "alert", "data", "database", "clock", "reference", "engine", "trial",
    "diagnosis", "search", "webhook", "memory", "tokens".
    """
    level: Mapped[str] = mapped_column(String(8), default="info")
    step: Mapped[int | None]
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Webhook(Base):
    """The position of a webhook in the sequence of events."""

    __tablename__ = "webhook"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    event_id: Mapped[int] = mapped_column(BigInteger)
    """Id of the last event that was delivered, abandoned or ignored."""
    failures: Mapped[int]
    """Number of failed attempts to deliver the next event."""
    try_after: Mapped[float]
    last_error: Mapped[str] = mapped_column(Text)
    delivered_at: Mapped[float | None]


class LogChunk(Base):
    """A part of a trainer's output."""

    __tablename__ = "log_chunk"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(default=db_now())
    text: Mapped[str] = mapped_column(Text)


class Worker(Base):
    """A worker slot and its last heartbeat."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int]
    slot: Mapped[int]
    device: Mapped[str] = mapped_column(String(64))
    device_name: Mapped[str] = mapped_column(Text, default="")
    nodes: Mapped[int] = mapped_column(default=1)
    """Number of nodes in the worker's group, or 1 if the worker has no group."""
    status: Mapped[str] = mapped_column(String(16), default="idle")
    run_id: Mapped[str | None] = mapped_column(String(26))
    started_at: Mapped[float] = mapped_column(default=db_now())
    seen_at: Mapped[float] = mapped_column(default=db_now())
    stats: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Memory and utilisation at the last heartbeat."""


class Node(Base):
    """A machine of a group that trains runs on several nodes. Its worker sends the heartbeats."""

    __tablename__ = "node"

    group_name: Mapped[str] = mapped_column(String(128), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Rank of the node. The node with rank 0 is the leader, which claims the runs of the group."""
    nodes: Mapped[int]
    """Number of nodes in the complete group."""
    worker_id: Mapped[str] = mapped_column(String(64))
    """Id of the worker process. A new process may replace one that has ended."""
    host: Mapped[str] = mapped_column(Text)
    address: Mapped[str] = mapped_column(Text)
    """Address at which the ranks of the other nodes reach this node."""
    devices: Mapped[int]
    """Number of devices that a run can use on this node."""
    traits: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Device type and software versions, which must be equal on all nodes of a group."""
    work: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """On the leader, its attempt and the address at which the ranks meet. On other nodes, their answer."""
    seen_at: Mapped[float] = mapped_column(default=db_now())


class BrowserSession(Base):
    """A logged-in browser. Only the SHA-256 of the id in its cookie is stored."""

    __tablename__ = "browser_session"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of the id in the cookie."""
    role: Mapped[str] = mapped_column(String(16))
    user_agent: Mapped[str] = mapped_column(Text, default="")
    """User-Agent header of the browser."""
    created_at: Mapped[float] = mapped_column(default=db_now())
    seen_at: Mapped[float] = mapped_column(default=db_now())
    """Time of the last request, accurate to a minute."""
    ends_at: Mapped[float]
    ended_at: Mapped[float | None]
    """Time at which the browser was logged out."""


class PushSession(Base):
    """A process, or one of its files, that pushes to a run. Its records are numbered from 1."""

    __tablename__ = "push_session"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    """Random id chosen by the client."""
    stored: Mapped[int] = mapped_column(BigInteger, default=0)
    """Number of the last stored record."""
    number: Mapped[int] = mapped_column(default=0)
    """Number of the session within its run, in the order in which the service first received the sessions."""
    heard_at: Mapped[float] = mapped_column(default=0.0)
    """Time at which the last batch was received."""


class SavedView(Base):
    """A named list or comparison of runs with its settings, shared by all users of the service."""

    __tablename__ = "saved_view"

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(Text, unique=True)
    view: Mapped[dict[str, Any]]
    """Fields of `View` in runs/views.py."""
    changed_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())


class Singleton(Base):
    """A lease for a job that one process at a time should do. Two concurrent holders do no harm."""

    __tablename__ = "singleton"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64))
    until: Mapped[float]
