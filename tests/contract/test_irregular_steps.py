"""Points at any steps, in blocks or in rows: sparse, restarting, late and far apart; on both databases."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from backend.metrics import blocks, sealing
from backend.metrics.answer import read_shown, singles
from backend.metrics.reading import read_curves, read_points, valid_rows
from backend.metrics.store import write_points
from backend.metrics.view import View
from backend.storage.engine import reading as open_reading
from backend.storage.models import ALL_PACKED, Attempt, Metric, MetricBlock, Run
from backend.storage.run_lookup import names_of
from tests.factories import make_attempt, make_run, write_metric

NAMES = ("reward/mean", "eval/accuracy", "kl/k3")


def pack_all(database):
    with database.sessions() as session:
        tasks = sealing.sealable(session)
    for _ in sealing.seal(database.sessions, tasks):
        pass


def make(session, *, status="finished", **fields):
    run = make_run(session, status=status, attempt=1, **fields)
    make_attempt(session, run, 1, from_step=-1)
    return run


def same_as_rows(database, runs):
    """Whether curves are what is read step by step, of every run and metric."""
    with database.sessions() as session:
        read = read_points(session, runs, NAMES)
        for run in runs:
            rows = {(row.name, row.step): row.value for row in valid_rows(session, run)}  # the newest is last
            shown = {
                (name, step): value
                for name in NAMES
                if (points := read.get((run, name)))
                for step, value in zip(points.steps.tolist(), points.values.tolist(), strict=True)
            }
            assert shown == rows
    return True


def packed(database, run):
    with database.sessions() as session:
        reached = session.scalars(select(Attempt.packed_step).where(Attempt.run_id == run)).all()
        return min(reached), sum(session.scalars(select(MetricBlock.points)).all())


def test_a_log_of_every_tenth_step_is_packed_to_its_end(database):
    with database.sessions.begin() as session:
        run = make(session)
        write_metric(session, run, "reward/mean", {step: step / 7 for step in range(0, 100_000, 10)})
    pack_all(database)
    assert packed(database, run.id) == (ALL_PACKED, 10_000)
    with database.sessions() as session:
        curve = read_curves(session, [run.id], ["reward/mean"], "step")[run.id, "reward/mean"]
    assert curve.steps.tolist() == list(range(0, 100_000, 10))


def test_a_gap_of_a_million_steps_takes_one_block_more(database):
    with database.sessions.begin() as session:
        run = make(session)
        write_metric(session, run, "reward/mean", {5: 1.0, 1_000_005: 2.0, 2**31 - 1: 3.0})
    pack_all(database)
    assert packed(database, run.id) == (ALL_PACKED, 3)
    assert same_as_rows(database, [run.id])


def test_a_running_attempt_is_packed_over_a_gap_and_goes_on(database):
    with database.sessions.begin() as session:
        run = make(session, status="running", last_step=9_000)
        write_metric(session, run, "reward/mean", {100: 1.0, 5_000: 2.0, 9_000: 3.0})
    pack_all(database)
    assert packed(database, run.id) == (8_191, 2)
    assert same_as_rows(database, [run.id])


def test_a_point_that_comes_late_becomes_part_of_its_block(database):
    with database.sessions.begin() as session:
        run = make(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(0, 5_000, 5), 1.0))
    pack_all(database)
    with database.sessions.begin() as session:
        write_points(session, run.id, 1, [(2_050, {"reward/mean": 7.0, "kl/k3": 0.5})])
    assert packed(database, run.id) == (ALL_PACKED, 1_001)
    assert same_as_rows(database, [run.id])
    with database.sessions() as session:
        points = read_points(session, [run.id], NAMES)
    assert points[run.id, "kl/k3"].values.tolist() == [0.5]
    curve = points[run.id, "reward/mean"]
    assert curve.values[curve.steps == 2_050] == [7.0]
    assert (len(curve), curve.values.sum()) == (1_000, 999 + 7)


def test_a_run_that_goes_on_after_it_was_sealed_writes_rows_again(database):
    with database.sessions.begin() as session:
        run = make(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(1_500), 1.0))
    pack_all(database)
    with database.sessions.begin() as session:
        write_metric(session, run, "reward/mean", {1_499: 2.0, 1_500: 3.0, 1_600: 4.0})
        assert session.scalars(select(Metric.step)).all() == [1_500, 1_600]
    assert packed(database, run.id) == (1_499, 1_500)
    assert same_as_rows(database, [run.id])
    pack_all(database)
    assert packed(database, run.id) == (ALL_PACKED, 1_502)
    with database.sessions() as session:
        curve = read_points(session, [run.id], NAMES)[run.id, "reward/mean"]
    assert curve.values[-4:].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_point_that_comes_while_its_block_is_made_is_not_lost(database, monkeypatch):
    with database.sessions.begin() as session:
        run = make(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(0, 3_000, 3), 1.0))

    def write():
        with database.sessions.begin() as session:
            write_points(session, run.id, 1, [(7, {"kl/k3": 7.0}), (9, {"reward/mean": 9.0})])

    real = sealing._seal_block
    writers = []

    def beside_another_writer(*arguments):
        writers.append(threading.Thread(target=write))
        writers[-1].start()
        return real(*arguments)

    monkeypatch.setattr(sealing, "_seal_block", beside_another_writer)
    pack_all(database)
    for writer in writers:
        writer.join()
    monkeypatch.undo()
    pack_all(database)
    assert packed(database, run.id) == (ALL_PACKED, 1_001)
    with database.sessions() as session:
        points = read_points(session, [run.id], NAMES)
    assert points[run.id, "kl/k3"].values.tolist() == [7.0]
    assert points[run.id, "reward/mean"].values[3] == 9.0


def test_points_that_are_sealed_between_two_statements_of_a_reader_are_read_once(database, monkeypatch):
    with database.sessions.begin() as session:
        run = make(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(2_000), 1.0))
    real = blocks.read_blocks

    def after_sealing(*arguments, **options):
        pack_all(database)
        return real(*arguments, **options)

    monkeypatch.setattr("backend.metrics.reading.read_blocks", after_sealing)
    with open_reading(database.sessions) as session:
        curve = read_points(session, [run.id], ["reward/mean"])[run.id, "reward/mean"]
    assert curve.steps.tolist() == list(range(2_000))
    assert packed(database, run.id) == (ALL_PACKED, 2_000)


def test_a_row_that_an_attempt_writes_before_its_own_beginning_is_read(database):
    with database.sessions.begin() as session:
        run = make(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(3_000), 1.0))
        make_attempt(session, run, 2, from_step=2_000).packed_step = 2_000
        run.attempt = 2
    pack_all(database)
    with database.sessions.begin() as session:
        write_points(session, run.id, 2, [(3, {"reward/mean": 9.0})])
    assert same_as_rows(database, [run.id])
    pack_all(database)
    assert same_as_rows(database, [run.id])


def test_an_attempt_that_writes_among_the_steps_of_an_earlier_one_replaces_its_points(database, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 64)
    with database.sessions.begin() as session:
        run = make(session, status="finished")
        write_points(session, run.id, 1, [(107, {"reward/mean": 1.0})])
        make_attempt(session, run, 2, from_step=153)
        run.attempt, run.last_step = 2, 600
        write_points(session, run.id, 2, [(step, {"reward/mean": 2 + step / 1e5}) for step in range(64, 192)])
    pack_all(database)
    view = View("step", None, None, 10, 0.0, None)
    with database.sessions() as session:
        names = names_of(session, [run.id])
        drawn = read_shown(session, names, [run.id], ["reward/mean"], view, is_grouped=False)
    assert drawn[run.id, "reward/mean"].raw_points == 128
    assert drawn[run.id, "reward/mean"].values.min() > 2


STEPS = st.one_of(
    st.lists(st.integers(0, 900), max_size=12),
    st.builds(
        lambda first, count, by: range(first, first + count * by, by),
        st.integers(0, 500), st.integers(0, 90), st.sampled_from([1, 1, 7, 10]),
    ),
)  # fmt: skip


@pytest.mark.nightly
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_the_steps_packed_points_are_those_of_the_rows(database, monkeypatch, data):
    """Each metric with steps of its own, attempts from anywhere, a fork; packed at any moment."""
    monkeypatch.setattr(blocks, "BLOCK", 64)
    with database.sessions.begin() as session:
        parent = make(session, status="running")
        left = data.draw(st.integers(0, 400), "left")
        fork = make(session, status="running", parent_run=parent.id, fork_step=left)
    runs = [parent.id, fork.id]
    for turn in range(data.draw(st.integers(1, 5), "turns")):
        with database.sessions.begin() as session:
            run = session.get(Run, data.draw(st.sampled_from(runs), "run"))
            if data.draw(st.booleans(), "continued"):
                run.attempt += 1
                make_attempt(session, run, run.attempt, from_step=data.draw(st.integers(-1, 600), "from"))
            number = data.draw(st.integers(1, run.attempt), "attempt")
            for name in NAMES:
                steps = data.draw(STEPS, name)
                rows = [(step, {name: turn + step / 1e5}) for step in steps]
                write_points(session, run.id, number, rows)
                run.last_step = max([run.last_step, *steps]) if data.draw(st.booleans()) else run.last_step
            run.status = data.draw(st.sampled_from(["running", "paused", "finished"]), "status")
        if data.draw(st.booleans(), "pack"):
            pack_all(database)
            assert same_as_rows(database, runs)
    view = View("step", None, None, data.draw(st.sampled_from([10, 30, 500])), 0.0, None)
    with database.sessions() as session:
        names = names_of(session, runs)
        outlined = read_shown(session, names, runs, list(NAMES), view, is_grouped=False)
        full = read_curves(session, runs, list(NAMES), "step")
    assert outlined.keys() == full.keys()
    drawn, expected = (singles(names, curves, list(full), view) for curves in (outlined, full))
    for drawn_curve, expected_curve in zip(drawn, expected, strict=True):
        assert {key: repr(np.asarray(value).tolist()) for key, value in drawn_curve.items()} == {
            key: repr(np.asarray(value).tolist()) for key, value in expected_curve.items()
        }
    assert same_as_rows(database, runs)
