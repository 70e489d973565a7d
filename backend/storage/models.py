"""The record of runs in SQL.

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

Times are seconds since 1970 (UTC) by the database's clock. A run that is resumed keeps the rows of
older attempts: the valid row of step k is the one of the highest attempt whose `from_step` is below k,
and every row of an older attempt behind that `from_step` is hidden.
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
from backend.storage.sort_values import CONFIG, CONFIG_WORDS, LAST, last_of, number_of, words_of

Seconds = Float(53)
"""Seconds since 1970, double precision."""

BigId = BigInteger().with_variant(Integer, "sqlite")
"""An autoincrementing 64-bit key on both databases."""


NOT_BEGUN = 2**31 - 1
"""`from_step` of an attempt that has not yet said where it continues from: it hides nothing."""

BEFORE_ALL_STEPS = -(2**31)
"""Less than the first step of any run."""

ALL_PACKED = 2**31 - 1
"""`packed_step` of an attempt that has ended and is in blocks as a whole."""


COLOURS = 10
"""Colours of the palette in frontend/src/lib/colours.js."""

_next_colour = count(randrange(COLOURS))

LISTED = text("archived_at IS NULL AND deleted_at IS NULL AND deleting_at IS NULL")
"""The runs of the list as it opens: counting them reads this index alone."""

DOOMED = text("deleting_at IS NOT NULL")
"""Runs that are deleted for ever. An index of all runs by this column misleads the planner of SQLite."""


class Base(DeclarativeBase):
    """Root of the mapped tables; constraint names are fixed so that migrations can name them."""

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
    """Variants x seeds launched together."""

    __tablename__ = "experiment"

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(Text)
    request: Mapped[dict[str, Any]]
    """The request that made it: base, variants, seeds."""
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[float] = mapped_column(default=db_now())


class Run(Base):
    """One training run. `attempt` is the fencing token of whoever owns it."""

    __tablename__ = "run"
    __table_args__ = (
        Index("ix_run_claim", "status", "priority", "queued_at", "id"),
        Index("ix_run_experiment", "experiment_id"),
        Index("ix_run_created", "created_at", "id"),
        Index("ix_run_listed", "created_at", "id", sqlite_where=LISTED, postgresql_where=LISTED),
        Index("ix_run_changed", "changed_at"),
        Index("ix_run_deleting", "deleting_at", sqlite_where=DOOMED, postgresql_where=DOOMED),
        Index("ix_run_writer_key", "writer", "writer_key", unique=True),
        Index("ix_run_judged", "status", "judged_step", "last_step", "judged_by"),
        *(
            Index(f"ix_run_{column}", column, "id", sqlite_where=LISTED, postgresql_where=LISTED)
            for column in (*LAST.values(), *CONFIG.values(), *CONFIG_WORDS.values())
        ),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(Text)
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiment.id"))
    variant: Mapped[str] = mapped_column(Text)
    seed: Mapped[int] = mapped_column(BigInteger)
    config: Mapped[dict[str, Any]]
    """RunConfig as JSON; of an imported run what its log holds of another trainer's config."""
    config_hash: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the config without its seed: runs of one variant share it."""
    steps: Mapped[int]
    """Steps the run is to train."""
    devices: Mapped[int] = mapped_column(default=1)
    """Devices of each node that it trains on together: `resources.devices` of its config."""
    nodes: Mapped[int] = mapped_column(default=1)
    """Nodes that it trains on together: `resources.nodes` of its config."""

    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    wish: Mapped[str] = mapped_column(String(8), default="")
    """What was asked of a running run: "", "stop", "pause", or by a search "prune"; read at each step."""
    attempt: Mapped[int] = mapped_column(default=0)
    worker_id: Mapped[str | None] = mapped_column(String(64))
    lease_until: Mapped[float] = mapped_column(default=0.0)
    priority: Mapped[int] = mapped_column(default=0)
    run_after: Mapped[float] = mapped_column(default=0.0)
    own_failures: Mapped[int] = mapped_column(default=0)
    """Ends in a row that the trainer itself caused, without a new checkpoint between them."""

    last_step: Mapped[int] = mapped_column(default=0)
    progress_at: Mapped[float | None]
    summary: Mapped[dict[str, Any]] = mapped_column(default=lambda: {"step": 0, "last": {}, "best": {}})
    """{"step", "last": {metric: value}, "best": {metric: {"value", "step"}}}: fills the runs table alone."""

    sort_reward: Mapped[float | None] = mapped_column(default=last_of("reward/mean"))
    sort_accuracy: Mapped[float | None] = mapped_column(default=last_of("reward/accuracy"))
    sort_eval_accuracy: Mapped[float | None] = mapped_column(default=last_of("eval/accuracy"))
    sort_length: Mapped[float | None] = mapped_column(default=last_of("length/mean"))
    """Values of the summary by which lists are sorted through an index: see storage/sort_values.py."""
    sort_lr: Mapped[float | None] = mapped_column(default=number_of("optimizer.lr"))
    sort_group_size: Mapped[float | None] = mapped_column(default=number_of("sampling.group_size"))
    sort_temperature: Mapped[float | None] = mapped_column(default=number_of("sampling.temperature"))
    sort_preset: Mapped[str | None] = mapped_column(Text, default=words_of("preset"))
    sort_policy: Mapped[str | None] = mapped_column(Text, default=words_of("policy.name"))
    """The same of the config."""

    tags: Mapped[list[Any]] = mapped_column(default=list)
    notes: Mapped[str] = mapped_column(Text, default="")
    colour: Mapped[int] = mapped_column(SmallInteger, default=lambda: next(_next_colour) % COLOURS)
    """Place of its colour in the palette. Runs made one after the other get one after the other."""
    parent_run: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    fork_step: Mapped[int | None]
    origin: Mapped[str] = mapped_column(String(32), default="")
    """Whose log an imported run was read from, or who pushes it, e.g. "trl"; "" for a run of this service."""
    origin_file: Mapped[str] = mapped_column(Text, default="")
    """Name of that log's file."""
    writer: Mapped[str | None] = mapped_column(String(64))
    """Whose token pushes this run while another trainer makes it, "" for the operator's; else NULL."""
    writer_key: Mapped[str | None] = mapped_column(String(128))
    """The id that the client has given it, unique for each writer."""
    verdict: Mapped[str | None] = mapped_column(String(16))
    """Verdict of the diagnosis at `judged_step`; NULL: not judged, or nothing was trained."""
    onset_healthy: Mapped[int | None]
    onset_sick: Mapped[int | None]
    """Steps between which what made the goal fall began."""
    cause: Mapped[str] = mapped_column(String(32), default="")
    """First cause by its word, e.g. "update_size"; "" where there is none."""
    judged_step: Mapped[int | None]
    """The last step that the diagnosis knew; NULL, or another than `last_step`: it is due."""
    judged_by: Mapped[int] = mapped_column(default=0)
    """Version of the detectors that gave the verdict; another than the present one: it is due."""
    check_hash: Mapped[str | None] = mapped_column(String(64), index=True)
    """Of a check before launch: `grading_hash` of what it checks. None: the run trains or evaluates."""
    check_report: Mapped[dict[str, Any] | None]
    """The result of a check before launch: see runs/check_report.py."""
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True, index=True)
    """Of the request that cloned, forked, evaluated or imported; other runs of experiments have none."""
    request_hash: Mapped[str | None] = mapped_column(String(64))
    archived_at: Mapped[float | None]
    deleted_at: Mapped[float | None]
    """Since when it lies in the trash."""
    deleting_at: Mapped[float | None]
    """Since when it is deleted for ever: nobody sees it any more while its rows and files are removed."""
    created_at: Mapped[float] = mapped_column(default=db_now())
    queued_at: Mapped[float] = mapped_column(default=db_now())
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    changed_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())
    """Last change of this row, but for a mere renewal of the lease: live pages follow it."""


class Attempt(Base):
    """One claim of a run by one worker."""

    __tablename__ = "attempt"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    from_step: Mapped[int] = mapped_column(default=NOT_BEGUN)
    """Step of the checkpoint it continued from, -1 for a start from nothing, NOT_BEGUN before it knows."""
    packed_step: Mapped[int] = mapped_column(default=-1, index=True)
    """No point of it up to here is a row; ALL_PACKED when no more is expected."""
    worker_id: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int | None]
    device: Mapped[str] = mapped_column(String(64), default="")
    devices: Mapped[int] = mapped_column(default=1)
    """Devices that it held on each node: so many GPUs, or processes in one slot of a CPU."""
    nodes: Mapped[int] = mapped_column(default=1)
    """Nodes that it held."""
    slot_price: Mapped[float | None]
    """Price of its worker slot per hour, in `currency`, when it began; None: the worker had none."""
    judge_cost: Mapped[float | None]
    """What its judges and reward models cost so far, in `currency`; None: nothing that has a price."""
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
    """One value of one metric at one step. NaN and infinities are values: see `kind`."""

    __tablename__ = "metric"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy declares its type

    # No foreign keys: checked for every point they halve the speed of writing, and each writer is fenced.
    run_id: Mapped[str] = mapped_column(String(26), primary_key=True)
    key_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[int] = mapped_column(SmallInteger, default=0)
    """0 finite, 1 NaN, 2 +infinity, 3 -infinity, 4 minus zero, whose sign SQLite does not keep."""
    value: Mapped[float | None]
    """The value where it is finite, else NULL."""


class MetricBlock(Base):
    """Points of one metric by one attempt, sealed: their only copy, see metrics/blocks.py."""

    __tablename__ = "metric_block"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    key_id: Mapped[int] = mapped_column(ForeignKey("metric_key.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    last_step: Mapped[int]
    """Of its newest point."""
    points: Mapped[int]
    outline: Mapped[bytes]
    """The points that a thinned curve may show; nothing if these are not few."""
    data: Mapped[bytes]
    """All points. The bytes of both: see metrics/block_codec.py."""


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
    """Position of the prompt within its step."""
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
    """Why it did not train at its step: see rollouts/marks.py; "" where it did, or nobody knows."""
    search_number: Mapped[int | None] = mapped_column(BigInteger)
    """Its number in the full-text index; NULL: the reconciler has not indexed it yet."""
    completions: Mapped[bytes] = mapped_column(deferred=True)
    """Its completions, see storage/completion_codec.py."""


class GroupTally(Base):
    """Completions of a group that share marks and reward. Groups that are not stored have tallies too."""

    __tablename__ = "group_tally"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy declares its type

    # No foreign keys, as of Metric.
    run_id: Mapped[str] = mapped_column(String(26), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    prompt_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """From 0 within the group."""
    prompt_id: Mapped[str] = mapped_column(Text)
    marks: Mapped[int]
    """Bits of rollouts/marks.py."""
    reward: Mapped[float | None]
    """The reward that they share; NULL where it is missing or not finite."""
    completions: Mapped[int]
    tokens: Mapped[int] = mapped_column(BigInteger)
    """Of all of them together."""


class RunPrompt(Base):
    """A prompt of a run, once, whether or not completions of it are stored."""

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
    """A label that a person has given to a completion, and why."""

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
    """Role of whoever wrote it last."""
    version: Mapped[int] = mapped_column(default=1)
    """Raised by each change: a change of an older version is refused."""
    changed_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())


class Checkpoint(Base):
    """A directory from which training continues; the row is written after the directory is safe."""

    __tablename__ = "checkpoint"
    __table_args__ = (Index("ix_checkpoint_run_step", "run_id", "step"),)

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    step: Mapped[int]
    attempt: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    """Relative to the run's artifact directory."""
    sha256: Mapped[str] = mapped_column(String(64))
    """Of the manifest, which holds the SHA-256 of every file."""
    bytes_total: Mapped[int] = mapped_column(BigInteger)
    manifest: Mapped[dict[str, Any]]
    kept_for: Mapped[str | None] = mapped_column(String(8))
    """"warning" or "verdict": the diagnosis whose onset it precedes; retention leaves it then."""
    onset: Mapped[int | None]
    """First step at which that had surely begun."""
    created_at: Mapped[float] = mapped_column(default=db_now())


class Trial(Base):
    """An experiment that tries remedies against what broke a run: forks of one state of it."""

    __tablename__ = "trial"
    __table_args__ = (
        Index("ix_trial_run", "run_id"),
        Index("ix_trial_experiment", "experiment_id"),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    """The run that broke."""
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiment.id"))
    """None: all its runs were deleted after the verdict."""
    found: Mapped[str] = mapped_column(String(16))
    """Verdict on the run when the trial began."""
    cause: Mapped[str] = mapped_column(String(32))
    """Cause whose remedy is tried; "" where the diagnosis named none."""
    onset_healthy: Mapped[int | None]
    onset_sick: Mapped[int | None]
    fork_run: Mapped[str | None] = mapped_column(String(26))
    """Whose checkpoint the runs begin with; None: they start from step 0."""
    fork_step: Mapped[int]
    wanted_step: Mapped[int]
    """Step of the last checkpoint that was to be written before the onset."""
    words: Mapped[str] = mapped_column(Text)
    """The sentence that says where the runs begin, and why."""
    steps: Mapped[int]
    """Step at which every run ends."""
    seeds: Mapped[list[Any]]
    """Seeds of each arm; the run's own one, which is trained once more, is not among them."""
    arms: Mapped[list[Any]]
    """[{"name", "changes"}] beside the arm without change."""
    verdict: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Counts of each arm and the sentences about them, once all runs have ended."""
    judged_at: Mapped[float | None]
    created_at: Mapped[float] = mapped_column(default=db_now())


class Search(Base):
    """A search: an experiment whose configurations are chosen one after the other by the results so far.

    Its request is that of its experiment.
    """

    __tablename__ = "search"

    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id"), primary_key=True)
    status: Mapped[str] = mapped_column(String(16), default="searching", index=True)
    """"searching", "comparing" (the best configurations with further seeds), "finished" or "stopped"."""
    reason: Mapped[str] = mapped_column(Text, default="")
    """Sentence that says why no further configuration is tried."""
    revision: Mapped[int] = mapped_column(default=0)
    """Raised by each decision: one that was made from older rows is dropped."""
    ended_at: Mapped[float | None]
    deleted_cost: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Slot hours and money, by currency, of its runs that were deleted permanently."""


class SearchTrial(Base):
    """A configuration of a search and its first run."""

    __tablename__ = "search_trial"

    experiment_id: Mapped[str] = mapped_column(ForeignKey("search.experiment_id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """From 0, in the order in which they were chosen."""
    point: Mapped[list[Any]]
    """Values of the swept knobs, in the order of the sweep."""
    variant: Mapped[str] = mapped_column(Text)
    run_id: Mapped[str | None] = mapped_column(String(26))
    """Its run with the first seed; None: the configuration cannot be run. The run may have been deleted."""
    refused: Mapped[str] = mapped_column(Text, default="")
    """Reason why it cannot be run."""
    judged_step: Mapped[int] = mapped_column(default=0)
    """Last step whose value the pruner has seen."""
    pruned: Mapped[str] = mapped_column(Text, default="")
    """Reason for which the search has stopped the run; stays if a person resumes it."""
    chosen: Mapped[bool] = mapped_column(default=False)
    """Whether it is run again with the further seeds."""


class Event(Base):
    """Something that happened to a run or to the installation; never changed, never removed alone."""

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
    "diagnosis", "search", "webhook", "memory", "tokens"."""
    level: Mapped[str] = mapped_column(String(8), default="info")
    step: Mapped[int | None]
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Webhook(Base):
    """The webhook's position in the events."""

    __tablename__ = "webhook"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    event_id: Mapped[int] = mapped_column(BigInteger)
    """The last event that was delivered, given up or of no interest."""
    failures: Mapped[int]
    """Failed tries of the next one."""
    try_after: Mapped[float]
    last_error: Mapped[str] = mapped_column(Text)
    delivered_at: Mapped[float | None]


class LogChunk(Base):
    """A piece of a trainer's output."""

    __tablename__ = "log_chunk"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(default=db_now())
    text: Mapped[str] = mapped_column(Text)


class Worker(Base):
    """A worker slot and its last sign of life."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int]
    slot: Mapped[int]
    device: Mapped[str] = mapped_column(String(64))
    device_name: Mapped[str] = mapped_column(Text, default="")
    nodes: Mapped[int] = mapped_column(default=1)
    """Nodes of the group that its worker belongs to; 1: it works alone."""
    status: Mapped[str] = mapped_column(String(16), default="idle")
    run_id: Mapped[str | None] = mapped_column(String(26))
    started_at: Mapped[float] = mapped_column(default=db_now())
    seen_at: Mapped[float] = mapped_column(default=db_now())
    stats: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Memory and utilisation at the last sign of life."""


class Node(Base):
    """A machine of a group that trains runs on several nodes together; its worker shows that it is there."""

    __tablename__ = "node"

    group_name: Mapped[str] = mapped_column(String(128), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """From 0, the leader, which claims the runs of the group."""
    nodes: Mapped[int]
    """Nodes that the group has when it is complete."""
    worker_id: Mapped[str] = mapped_column(String(64))
    """Id of the worker process: another one may take the place of one that ended."""
    host: Mapped[str] = mapped_column(Text)
    address: Mapped[str] = mapped_column(Text)
    """Where the ranks of the other nodes reach this one."""
    devices: Mapped[int]
    """Devices that a run can have on it."""
    traits: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The device and the versions in which all nodes of a group have to agree."""
    work: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Of the leader: the attempt that it trains and where its ranks meet; of another node: its answer."""
    seen_at: Mapped[float] = mapped_column(default=db_now())


class BrowserSession(Base):
    """A browser that is logged in. Its cookie holds an id that is not stored: its SHA-256 is."""

    __tablename__ = "browser_session"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of the id in the cookie."""
    role: Mapped[str] = mapped_column(String(16))
    user_agent: Mapped[str] = mapped_column(Text, default="")
    """What the browser says it is."""
    created_at: Mapped[float] = mapped_column(default=db_now())
    seen_at: Mapped[float] = mapped_column(default=db_now())
    """Its last request, to a minute."""
    ends_at: Mapped[float]
    ended_at: Mapped[float | None]
    """Since when it is logged out."""


class PushSession(Base):
    """One process that has pushed to a run, or one file of it: its records are numbered from 1."""

    __tablename__ = "push_session"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"), primary_key=True)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    """Random, chosen by the client."""
    stored: Mapped[int] = mapped_column(BigInteger, default=0)
    """Number of its last record that is stored."""
    number: Mapped[int] = mapped_column(default=0)
    """Counts the sessions of a run in the order in which the service heard of them."""
    heard_at: Mapped[float] = mapped_column(default=0.0)
    """Time of its newest batch."""


class SavedView(Base):
    """A list or comparison of runs under a name: what it shows and how, for all who use the service."""

    __tablename__ = "saved_view"

    id: Mapped[str] = mapped_column(String(26), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(Text, unique=True)
    view: Mapped[dict[str, Any]]
    """The fields of runs/views.py: View."""
    changed_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())


class Singleton(Base):
    """The holder of a job that one process at a time should do; harmless if two believe to hold it."""

    __tablename__ = "singleton"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64))
    until: Mapped[float]
