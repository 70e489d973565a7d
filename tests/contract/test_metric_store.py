"""Tests of storing metric points in SQL and reading them, on both databases."""

import math

import numpy as np
import pytest
from sqlalchemy import func, select

from backend.metrics.csv import csv_lines
from backend.metrics.history import valid_steps
from backend.metrics.reading import read_points
from backend.metrics.store import key_ids, write_points, write_series
from backend.rollouts.reading import step_counts
from backend.storage.engine import open_sessions
from backend.storage.models import NOT_BEGUN, Metric, MetricKey
from tests.factories import VALUE_BY_STEP, make_attempt, make_group, make_run, write_metric

pytestmark = pytest.mark.both_databases


def committed(session):
    """Commit, and return a factory of sessions that see what this session has written."""
    session.commit()
    return open_sessions(session.get_bind())


def make_csv(session, run_id, *, all_attempts):
    return "".join(csv_lines(committed(session), run_id, all_attempts=all_attempts))


def test_every_float_is_restored_exactly(session):
    run = make_run(session)
    write_metric(session, run, "loss/total", VALUE_BY_STEP)
    points = read_points(session, [run.id], ["loss/total"])[run.id, "loss/total"]
    assert points.steps.tolist() == list(VALUE_BY_STEP)
    assert points.values.tolist() == pytest.approx(list(VALUE_BY_STEP.values()), nan_ok=True, rel=0)


def test_writing_a_step_again_replaces_it(session):
    run = make_run(session)
    for loss in (1.0, 2.0):
        write_points(session, run.id, 1, [(1, {"a": loss, "b": loss}), (2, {"a": loss})])
    assert session.scalar(select(func.count()).select_from(Metric)) == 3
    assert read_points(session, [run.id], ["a"])[run.id, "a"].values.tolist() == [2.0, 2.0]


def test_points_written_together_equal_those_written_one_by_one(session):
    """Postgres receives them by COPY."""
    run = make_run(session)
    values = {1_000 + step: step / 7 for step in range(2_000)} | VALUE_BY_STEP
    for factor in (2.0, 1.0):
        write_points(
            session,
            run.id,
            1,
            [(step, {"a": metric_value * factor}) for step, metric_value in values.items()],
        )
    points = read_points(session, [run.id], ["a"])
    assert points[run.id, "a"].steps.tolist() == sorted(values)
    assert (
        points[run.id, "a"].values.tobytes() == np.array([values[step] for step in sorted(values)]).tobytes()
    )


def test_whole_curves_equal_points_read_one_by_one(session):
    run = make_run(session)
    make_attempt(session, run, 1, from_step=-1)
    values = VALUE_BY_STEP | {step: step / 7 for step in range(1_020, 9_000, 3)}
    write_series(
        session,
        run.id,
        1,
        {
            "a": (np.array(list(values)), np.array(list(values.values()))),
            "none": (np.empty(0, np.int64), np.empty(0)),
        },
    )
    assert session.scalar(select(func.count()).select_from(Metric)) == 0
    write_points(session, run.id, 1, [(step, {"b": metric_value}) for step, metric_value in values.items()])
    points = read_points(session, [run.id], ["a", "b", "none"])
    assert {name for _, name in points} == {"a", "b"}
    first, second = points[run.id, "a"], points[run.id, "b"]
    assert first.steps.tolist() == second.steps.tolist() == list(values)
    assert first.values.tobytes() == second.values.tobytes() == np.array(list(values.values())).tobytes()


def test_a_name_has_one_id_even_after_a_rollback_of_its_first_transaction(database):
    with database.sessions() as session:
        key_ids(session, ["reward/mean"])
        session.rollback()
    ids = []
    for _ in range(3):
        with database.sessions.begin() as session:
            ids.append(key_ids(session, ["reward/mean"])["reward/mean"])
            assert session.scalar(select(MetricKey.id).where(MetricKey.name == "reward/mean")) == ids[-1]
    assert len(set(ids)) == 1


def test_the_latest_attempt_counts_from_where_it_continued(session):
    run = make_run(session)
    make_attempt(session, run, 1, from_step=-1)
    write_metric(session, run, "a", {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}, attempt=1)
    make_attempt(session, run, 2)
    assert read_points(session, [run.id], ["a"])[run.id, "a"].steps.tolist() == [1, 2, 3, 4]
    make_attempt(session, run, 3, from_step=2)
    write_metric(session, run, "a", {3: 3.0}, attempt=3)
    points = read_points(session, [run.id], ["a"])[run.id, "a"]
    assert dict(zip(points.steps.tolist(), points.values.tolist(), strict=True)) == {1: 1.0, 2: 1.0, 3: 3.0}


def test_a_start_from_nothing_hides_even_the_first_evaluation(session):
    run = make_run(session)
    make_attempt(session, run, 1, from_step=-1)
    write_metric(session, run, "a", {0: 1.0, 1: 1.0}, attempt=1)
    make_attempt(session, run, 2, from_step=-1)
    assert read_points(session, [run.id], ["a"]) == {}


def test_the_csv_has_a_row_per_step_and_spells_out_nonfinite_values(session):
    run = make_run(session)
    write_points(
        session, run.id, 1, [(1, {"b": 0.5, "a": math.nan}), (2, {"b": -math.inf}), (3, {"b": 1e-7})]
    )
    assert make_csv(session, run.id, all_attempts=False) == ("step,a,b\n1,NaN,0.5\n2,,-Infinity\n3,,1e-07\n")


def test_a_metric_name_is_not_a_formula_in_a_spreadsheet(session):
    run = make_run(session)
    write_metric(session, run, "@1-1", {1: 1.0})
    assert make_csv(session, run.id, all_attempts=False).startswith("step,'@1-1\n")


def test_curves_csv_history_and_rollouts_agree_on_what_counts(session):
    run = make_run(session)
    # The third attempt resumed before the second one, and the fourth lost its worker before it began.
    for number, from_step in ((1, -1), (2, 4), (3, 2), (4, NOT_BEGUN)):
        make_attempt(session, run, number, from_step=from_step)
    for attempt, steps in ((1, (1, 2, 3, 4, 5)), (2, (5, 6)), (3, (3, 4))):
        write_metric(session, run, "a", {step: float(attempt) for step in steps}, attempt=attempt)
        for step in steps:
            make_group(session, run, step=step, attempt=attempt)
    expected = {1: 1.0, 2: 1.0, 3: 3.0, 4: 3.0}
    points = read_points(session, [run.id], ["a"])[run.id, "a"]
    assert dict(zip(points.steps.tolist(), points.values.tolist(), strict=True)) == expected
    assert make_csv(session, run.id, all_attempts=False) == "step,a\n1,1.0\n2,1.0\n3,3.0\n4,3.0\n"
    assert dict(valid_steps(session, run.id, up_to=9)) == {
        n: {"a": metric_value} for n, metric_value in expected.items()
    }
    assert [row["step"] for row in step_counts(committed(session), run.id)] == [1, 2, 3, 4]
    assert all(row["groups"] == 1 for row in step_counts(committed(session), run.id))
