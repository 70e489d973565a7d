"""Tests that points in sealed blocks give the same curves at any time of sealing, on both databases."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, update

from backend.base.settings import Settings
from backend.metrics import blocks, sealing
from backend.metrics.block_codec import decode
from backend.metrics.reading import read_curves, read_points, valid_rows
from backend.metrics.response import next_cursor, read_visible_curves, single_items
from backend.metrics.view import View
from backend.runs.deletion import begin_deletion, continue_deletions
from backend.storage.models import ALL_PACKED, Attempt, Metric, MetricBlock, Run
from backend.storage.run_lookup import load_run_names
from tests.factories import VALUE_BY_STEP, make_attempt, make_run, write_metric

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 10)


def seal_all(database):
    for _ in sealing_steps(database):
        pass


def sealing_steps(database):
    """Return the work of the reconciler, step by step."""
    with database.sessions() as session:
        return sealing.seal(database.sessions, sealing.find_sealable(session))


def begin_attempt(session, run, number, from_step):
    """Begin the next attempt, as `lifecycle` does."""
    make_attempt(session, run, number, from_step=from_step)
    run.status, run.attempt, run.last_step = "running", number, max(from_step, 0)


def write_values(session, run, values, *, name="a"):
    write_metric(session, run, name, values, attempt=run.attempt)
    run.last_step = max(run.last_step, *values)


def points(database, run, name="a"):
    with database.sessions() as session:
        stored_points = read_points(session, [run.id], [name])[run.id, name]
    return stored_points.steps.tolist(), stored_points.values.tolist()


def packed_steps(database, run):
    """Return the steps in blocks, by attempt."""
    with database.sessions() as session:
        of_run = select(MetricBlock).where(MetricBlock.run_id == run.id)
        steps_by_attempt = {}
        for block in session.scalars(of_run.order_by(MetricBlock.attempt, MetricBlock.number)):
            steps_by_attempt.setdefault(block.attempt, []).extend(decode(block.data).steps.tolist())
    return steps_by_attempt


def test_during_training_all_but_the_last_steps_are_packed(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        begin_attempt(session, run, 1, -1)
        write_values(session, run, {step: step / 7 for step in range(26)})
    seal_all(database)
    assert packed_steps(database, run) == {1: list(range(20))}
    assert points(database, run) == (list(range(26)), [step / 7 for step in range(26)])


def test_an_ended_run_is_packed_completely_and_every_float_is_unchanged(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        begin_attempt(session, run, 1, -1)
        write_values(session, run, VALUE_BY_STEP)
    points_before = points(database, run)
    with database.sessions.begin() as session:
        session.get(Run, run.id).status = "finished"
    seal_all(database)
    assert packed_steps(database, run) == {1: list(VALUE_BY_STEP)}
    with database.sessions.begin() as session:
        assert session.scalar(select(func.count()).select_from(Metric)) == 0
        assert session.scalar(select(Attempt.packed_step)) == ALL_PACKED
    assert repr(points(database, run)) == repr(points_before)
    assert points_before[1] == pytest.approx(list(VALUE_BY_STEP.values()), rel=0, nan_ok=True)
    assert math.copysign(1, points(database, run)[1][6]) == -1


def test_an_attempt_that_has_not_begun_is_not_packed_by_the_steps_of_the_previous_one(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        begin_attempt(session, run, 1, -1)
        write_values(session, run, dict.fromkeys(range(1, 36), 1.0))
        make_attempt(session, run, 2)
        run.attempt = 2
    seal_all(database)
    with database.sessions.begin() as session:
        run_row = session.get(Run, run.id)
        session.execute(update(Attempt).where(Attempt.number == 2).values(from_step=12))
        write_values(session, run_row, dict.fromkeys(range(13, 45), 2.0))
    seal_all(database)
    assert packed_steps(database, run)[2] == list(range(13, 40))
    assert points(database, run) == (list(range(1, 45)), [1.0] * 12 + [2.0] * 32)


def test_a_range_packed_by_two_processes_is_stored_once(database):
    with database.sessions.begin() as session:
        run = make_run(session)
        begin_attempt(session, run, 1, -1)
        write_values(session, run, {step: float(step) for step in range(1, 36)})
    first, second = sealing_steps(database), sealing_steps(database)
    next(first)
    assert list(second) == []
    assert list(first)
    assert packed_steps(database, run) == {1: list(range(1, 30))}
    assert points(database, run)[0] == list(range(1, 36))


def test_a_fork_reads_the_blocks_of_its_parent(database):
    with database.sessions.begin() as session:
        parent = make_run(session)
        begin_attempt(session, parent, 1, -1)
        write_values(session, parent, dict.fromkeys(range(1, 31), 1.0))
        child = make_run(session, parent_run=parent.id, fork_step=15)
        begin_attempt(session, child, 1, 15)
        write_values(session, child, dict.fromkeys(range(16, 41), 2.0))
    seal_all(database)
    assert points(database, child) == (list(range(1, 41)), [1.0] * 15 + [2.0] * 25)


def test_a_run_deleted_during_sealing_leaves_no_block(database, tmp_path):
    with database.sessions.begin() as session:
        run = make_run(session, deleted_at=1.0)
        begin_attempt(session, run, 1, -1)
        write_values(session, run, dict.fromkeys(range(1, 61), 1.0))
        run.status = "finished"
    under_way = sealing_steps(database)
    next(under_way)
    with database.sessions.begin() as session:
        begin_deletion(session, run.id)
    assert list(under_way) == []
    continue_deletions(database.sessions, Settings(state_dir=tmp_path), seconds=60)
    with database.sessions() as session:
        remaining_counts = [
            session.scalar(select(func.count()).select_from(table)) for table in (MetricBlock, Metric, Run)
        ]
    assert remaining_counts == [0, 0, 0]


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_curves_match_the_rows_after_any_history(database, data):
    """Attempts begin anywhere before the last step, metrics are sparse, and sealing happens at any moment."""
    with database.sessions.begin() as session:
        run = make_run(session)
    value_by_key: dict[tuple[str, int], float] = {}
    for number in range(1, data.draw(st.integers(1, 4)) + 1):
        with database.sessions.begin() as session:
            run_row = session.get(Run, run.id)
            from_step = data.draw(st.integers(-1, run_row.last_step), "from") if number > 1 else -1
            begin_attempt(session, run_row, number, from_step)
        value_by_key = {
            key: metric_value for key, metric_value in value_by_key.items() if key[1] <= from_step
        }
        for _ in range(data.draw(st.integers(0, 3))):
            with database.sessions.begin() as session:
                run_row = session.get(Run, run.id)
                first = run_row.last_step + 1
                steps = range(first, first + data.draw(st.integers(1, 25), "steps"))
                write_values(session, run_row, {step: number + step / 1000 for step in steps})
                value_by_key |= {("a", step): number + step / 1000 for step in steps}
                if sparse_steps := [step for step in steps if step % 7 == 0]:
                    write_values(session, run_row, dict.fromkeys(sparse_steps, float(number)), name="eval")
                    value_by_key |= {("eval", step): float(number) for step in sparse_steps}
            if data.draw(st.booleans(), "pack"):
                seal_all(database)
        with database.sessions.begin() as session:
            session.get(Run, run.id).status = data.draw(st.sampled_from(["running", "queued", "paused"]))
        if data.draw(st.booleans(), "pack"):
            seal_all(database)
    with database.sessions() as session:
        rows = [(row.name, row.step, row.value) for row in valid_rows(session, run.id)]
        curves = read_points(session, [run.id], ["a", "eval"])
    drawn_points = [
        (name, step, metric_value)
        for (_, name), curve in curves.items()
        for step, metric_value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True)
    ]
    assert (
        sorted(drawn_points)
        == sorted(rows)
        == sorted((*key, metric_value) for key, metric_value in value_by_key.items())
    )


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_curve_from_outlines_shows_the_same_as_all_its_points(database, monkeypatch, data):
    """Long runs of several attempts, forked or not, whole, zoomed and continued; some values are strange."""
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 64)
    rng = random.Random(data.draw(st.integers(0, 10**9), "seed"))
    with database.sessions.begin() as session:
        runs = [make_run(session)]
        if rng.random() < 0.5:
            runs.append(make_run(session, parent_run=runs[0].id, fork_step=rng.randint(0, 300)))
    for run in runs:
        for number in range(1, rng.choice([1, 1, 2, 3]) + 1):
            with database.sessions.begin() as session:
                run_row = session.get(Run, run.id)
                first_step = -1 if run_row.fork_step is None else run_row.fork_step
                begin_attempt(
                    session,
                    run_row,
                    number,
                    rng.randint(first_step, max(first_step, run_row.last_step)) if number > 1 else first_step,
                )
                steps = range(
                    max(run_row.last_step, first_step) + 1, run_row.last_step + rng.choice([3, 300, 900])
                )
                values = {step: float(rng.randint(-3, 3)) for step in steps if step % 20}
                for step in rng.sample(sorted(values), min(len(values), rng.choice([0, 0, 2]))):
                    values[step] = rng.choice([math.nan, math.inf, 1e9])
                write_values(session, run_row, values)
                write_values(
                    session, run_row, {step: values[step] for step in sorted(values)[:90]}, name="early"
                )
            if rng.random() < 0.8:
                seal_all(database)
        if rng.random() < 0.8:
            with database.sessions.begin() as session:
                session.get(Run, run.id).status = "finished"
            seal_all(database)
    x_limits = [None, None, *(rng.randint(-5, 1200) + rng.choice([0, 0.5]) for _ in range(2))]
    view = View("step", rng.choice(x_limits), rng.choice(x_limits), rng.randint(10, 60), 0.0, None)
    if rng.random() < 0.3:
        view = replace(view, after=rng.randint(-1, 900))
    with database.sessions() as session:
        names = load_run_names(session, [run.id for run in runs])
        outlined = read_visible_curves(
            session, names, list(names), ["a", "early"], view, needs_all_points=False
        )
        full_curves = read_curves(session, list(names), ["a", "early"], "step")
    assert outlined.keys() == full_curves.keys()
    drawn_curves, expected = (
        single_items(names, curves, list(full_curves), view) for curves in (outlined, full_curves)
    )
    for drawn_curve, expected_curve in zip(drawn_curves, expected, strict=True):
        assert {key: repr(np.asarray(column).tolist()) for key, column in drawn_curve.items()} == {
            key: repr(np.asarray(column).tolist()) for key, column in expected_curve.items()
        }
    assert next_cursor(outlined, names) == next_cursor(full_curves, names)
