"""The audit after a fault: `audit(sessions, state_dir)` returns one sentence per violated invariant.

I1  Steps 1..last_step of every run have exactly one valid point per metric, all of one attempt. The
    checksums of sealed blocks are right, and no point of sealed steps is a row.
I2  Attempts are 1, 2, 3, ...; only the newest may be open, and no two overlap in time.
I3  Every checkpoint has a directory with the files and the SHA-256 that were written.
I4  Every transition of a run is allowed by `lifecycle.MOVES` and starts where the last one ended.
I5  Every row and every file has an owner.
I6  The schema matches the models, and the database's own check finds nothing."""

from collections.abc import Collection, Iterator
from itertools import chain, pairwise
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.metrics.attempts import load_limits, valid_row_condition
from backend.metrics.block_check import damage_sentence
from backend.metrics.block_check import find_damaged_blocks as damaged_blocks
from backend.metrics.lineage import LineageSegment
from backend.metrics.windows import iterate_points, load_run_points
from backend.runs.lifecycle import MOVES, STATUSES
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import Attempt, Checkpoint, Event, Metric, MetricBlock, RolloutGroup, Run
from tests.faults.audit_files import checkpoint_files, ownerless_files
from tests.faults.audit_tables import ownerless_rows, schema_damage

CLOCK_TOLERANCE_SECONDS = 0.01
"""Two times of the database's clock that are closer than this may be in either order."""


def audit(
    sessions: Sessions,
    state_dir: Path,
    *,
    damaged: Collection[str] = (),
    clock_jumped: bool = False,
) -> list[str]:
    """Return one sentence for every violation.

    `damaged` are checkpoints, as `<run id>/<name>`, that a test has damaged itself. If `clock_jumped` is
    True, checks that compare times are skipped."""
    with open_read_session(sessions) as session:
        runs = list(session.scalars(select(Run).order_by(Run.id)))
        checkpoints = list(session.scalars(select(Checkpoint)))
        findings = list(ownerless_rows(session))
    for run in runs:  # each in a separate transaction, since a database ends one that idles for a minute
        with open_read_session(sessions) as session:
            findings += step_violations(session, run)
            findings += block_violations(session, run)
            findings += attempt_violations(session, run, clock_jumped=clock_jumped)
            findings += transition_violations(session, run)
        of_run = [row for row in checkpoints if row.run_id == run.id]
        findings += checkpoint_files(run, of_run, state_dir, damaged)
    findings += ownerless_files(runs, checkpoints, state_dir)
    return findings + schema_damage(sessions)


def step_violations(session: Session, run: Run) -> Iterator[str]:
    """Check invariant I1."""
    limits = load_limits(session, [run.id]).get(run.id, ())
    # earlier steps belong to its parent
    first = 1 if run.fork_step is None or run.steps == 0 else run.fork_step + 1
    expected_steps = set(range(first, run.last_step + 1))
    writers_by_table: dict[str, dict[int, set[int]]] = {}
    groups = select(RolloutGroup.step, RolloutGroup.attempt).where(
        RolloutGroup.run_id == run.id, valid_row_condition(RolloutGroup, limits)
    )
    (segment,) = load_run_points(session, [LineageSegment(run.id)])
    later_rows = select(Metric.step, Metric.attempt).where(
        Metric.run_id == run.id, Metric.attempt > segment.attempt
    )
    points = chain(
        ((point.step, point.attempt) for point in iterate_points(session, segment)),
        (
            (row.step, row.attempt)
            for row in session.execute(later_rows.where(valid_row_condition(Metric, limits)))
        ),
    )
    for table, steps_and_attempts in (
        ("metric", points),
        ("rollout_group", session.execute(groups.distinct())),
    ):
        by_step = writers_by_table.setdefault(table, {})
        for step, attempt in steps_and_attempts:
            by_step.setdefault(step, set()).add(attempt)
    for step in sorted(expected_steps - writers_by_table["metric"].keys()):
        yield f"I1: run {run.id} is at step {run.last_step} but has no valid row of step {step}"
    for step in sorted(writers_by_table["metric"].keys() - expected_steps - {0}):
        yield f"I1: run {run.id} is at step {run.last_step} but has a valid row of step {step}"
    for name, by_step in writers_by_table.items():
        for step, writers in sorted(by_step.items()):
            if len(writers) > 1:
                numbers = sorted(writers)
                yield f"I1: run {run.id} has valid rows of step {step} in {name} by attempts {numbers}"
    for step, writers in sorted(writers_by_table["rollout_group"].items()):
        if not writers <= writers_by_table["metric"].get(step, set()):
            yield f"I1: run {run.id} has rollouts of step {step} by an attempt that has no metrics of it"


def block_violations(session: Session, run: Run) -> Iterator[str]:
    """Check invariant I1 for sealed points."""
    for block, reason in damaged_blocks(session, run.id):
        yield f"I1: run {run.id}: {damage_sentence(session, block, reason)}"
    for attempt in session.scalars(select(Attempt).where(Attempt.run_id == run.id)):
        of_attempt = (MetricBlock.run_id == run.id, MetricBlock.attempt == attempt.number)
        beyond = select(MetricBlock.number).where(*of_attempt, MetricBlock.last_step > attempt.packed_step)
        if session.scalar(beyond.limit(1)) is not None:
            yield f"I1: run {run.id} has a block that attempt {attempt.number} has not sealed"
        rows = select(Metric.step).where(
            Metric.run_id == run.id, Metric.attempt == attempt.number, Metric.step <= attempt.packed_step
        )
        if (step := session.scalar(rows.limit(1))) is not None:
            yield f"I1: run {run.id} has a row of step {step}, and attempt {attempt.number} is sealed there"


def attempt_violations(session: Session, run: Run, *, clock_jumped: bool = False) -> Iterator[str]:
    """Check invariant I2."""
    rows = list(session.scalars(select(Attempt).where(Attempt.run_id == run.id).order_by(Attempt.number)))
    numbers = [row.number for row in rows]
    if numbers != list(range(1, run.attempt + 1)):
        yield f"I2: run {run.id} is at attempt {run.attempt} but has the attempts {numbers}"
    for row in rows:
        if row.ended_at is None and not (row.number == run.attempt and run.status == "running"):
            yield f"I2: attempt {row.number} of run {run.id}, which is {run.status}, never ended"
    for earlier_attempt, later_attempt in pairwise(rows):
        end = earlier_attempt.ended_at
        if not clock_jumped and end is not None and later_attempt.started_at < end - CLOCK_TOLERANCE_SECONDS:
            yield (
                f"I2: attempt {later_attempt.number} of run {run.id} began "
                f"before attempt {earlier_attempt.number} ended"
            )
    newest_attempt = 0
    query = select(Event.attempt).where(Event.run_id == run.id, Event.attempt.is_not(None))
    for attempt in session.scalars(query.order_by(Event.id)):
        if attempt is not None and attempt < newest_attempt:
            yield f"I2: attempt {attempt} of run {run.id} wrote after attempt {newest_attempt} had begun"
        newest_attempt = max(newest_attempt, attempt or 0)
    newest_queries = (
        select(func.max(table.attempt)).where(table.run_id == run.id) for table in (Metric, MetricBlock)
    )
    last = max(session.scalar(query) or 0 for query in newest_queries)
    if rows and last > run.attempt:
        yield f"I2: run {run.id} is at attempt {run.attempt} but has rows of attempt {last}"


def transition_violations(session: Session, run: Run) -> Iterator[str]:
    """Check invariant I4."""
    if run.status not in STATUSES:
        yield f"I4: run {run.id} has the status {run.status!r}"
    query = select(Event.data).where(Event.run_id == run.id, Event.kind == "lifecycle").order_by(Event.id)
    transitions = [
        (event_data["from"], event_data["to"])
        for event_data in session.scalars(query)
        if "from" in event_data
    ]
    for old_status, new_status in transitions:
        if new_status not in MOVES.get(old_status, ()):
            yield f"I4: run {run.id} went from {old_status} to {new_status}"
    for (_, led_to), (began_at, _) in pairwise(transitions):
        if led_to != began_at:
            yield f"I4: run {run.id} became {led_to} and then left {began_at}"
    if transitions and transitions[-1][1] != run.status:
        yield f"I4: run {run.id} is {run.status} but its last move led to {transitions[-1][1]}"
