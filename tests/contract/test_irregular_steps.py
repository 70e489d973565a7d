"""Tests of points at irregular steps (sparse, restarting, late, distant) in blocks and in rows."""

import threading

from sqlalchemy import select

from backend.metrics import blocks, sealing
from backend.metrics.reading import read_curves, read_points, valid_rows
from backend.metrics.store import write_points
from backend.storage.engine import open_read_session as open_reading
from backend.storage.models import ALL_PACKED, Attempt, MetricBlock
from tests.factories import make_attempt, make_run, write_metric

METRIC_NAMES = ("reward/mean", "eval/accuracy", "kl/k3")


def seal_all(database):
    with database.sessions() as session:
        tasks = sealing.find_sealable(session)
    for _ in sealing.seal(database.sessions, tasks):
        pass


def make_run_with_points(session, *, status="finished", **fields):
    run = make_run(session, status=status, attempt=1, **fields)
    make_attempt(session, run, 1, from_step=-1)
    return run


def curves_equal_rows(database, runs):
    """Return whether the curves of every run and metric equal the values read step by step."""
    with database.sessions() as session:
        curves = read_points(session, runs, METRIC_NAMES)
        for run in runs:
            # the latest attempt comes last
            rows = {(row.name, row.step): row.value for row in valid_rows(session, run)}
            drawn_curve = {
                (name, step): metric_value
                for name in METRIC_NAMES
                if (points := curves.get((run, name)))
                for step, metric_value in zip(points.steps.tolist(), points.values.tolist(), strict=True)
            }
            assert drawn_curve == rows
    return True


def packed_steps(database, run):
    with database.sessions() as session:
        attempt_steps = session.scalars(select(Attempt.packed_step).where(Attempt.run_id == run)).all()
        return min(attempt_steps), sum(session.scalars(select(MetricBlock.points)).all())


def test_a_log_of_every_tenth_step_is_packed_completely(database):
    with database.sessions.begin() as session:
        run = make_run_with_points(session)
        write_metric(session, run, "reward/mean", {step: step / 7 for step in range(0, 100_000, 10)})
    seal_all(database)
    assert packed_steps(database, run.id) == (ALL_PACKED, 10_000)
    with database.sessions() as session:
        curve = read_curves(session, [run.id], ["reward/mean"], "step")[run.id, "reward/mean"]
    assert curve.steps.tolist() == list(range(0, 100_000, 10))


def test_a_late_point_becomes_part_of_its_block(database):
    with database.sessions.begin() as session:
        run = make_run_with_points(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(0, 5_000, 5), 1.0))
    seal_all(database)
    with database.sessions.begin() as session:
        write_points(session, run.id, 1, [(2_050, {"reward/mean": 7.0, "kl/k3": 0.5})])
    assert packed_steps(database, run.id) == (ALL_PACKED, 1_001)
    assert curves_equal_rows(database, [run.id])
    with database.sessions() as session:
        points = read_points(session, [run.id], METRIC_NAMES)
    assert points[run.id, "kl/k3"].values.tolist() == [0.5]
    curve = points[run.id, "reward/mean"]
    assert curve.values[curve.steps == 2_050] == [7.0]
    assert (len(curve), curve.values.sum()) == (1_000, 999 + 7)


def test_a_point_written_during_sealing_is_not_lost(database, monkeypatch):
    with database.sessions.begin() as session:
        run = make_run_with_points(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(0, 3_000, 3), 1.0))

    def write():
        with database.sessions.begin() as session:
            write_points(session, run.id, 1, [(7, {"kl/k3": 7.0}), (9, {"reward/mean": 9.0})])

    real_seal_block = sealing._seal_block
    writers = []

    def beside_another_writer(*arguments):
        writers.append(threading.Thread(target=write))
        writers[-1].start()
        return real_seal_block(*arguments)

    monkeypatch.setattr(sealing, "_seal_block", beside_another_writer)
    seal_all(database)
    for writer in writers:
        writer.join()
    monkeypatch.undo()
    seal_all(database)
    assert packed_steps(database, run.id) == (ALL_PACKED, 1_001)
    with database.sessions() as session:
        points = read_points(session, [run.id], METRIC_NAMES)
    assert points[run.id, "kl/k3"].values.tolist() == [7.0]
    assert points[run.id, "reward/mean"].values[3] == 9.0


def test_points_sealed_between_two_statements_of_a_reader_are_read_once(database, monkeypatch):
    with database.sessions.begin() as session:
        run = make_run_with_points(session)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(2_000), 1.0))
    real_read_blocks = blocks.read_blocks

    def after_sealing(*arguments, **options):
        seal_all(database)
        return real_read_blocks(*arguments, **options)

    monkeypatch.setattr("backend.metrics.reading.read_blocks", after_sealing)
    with open_reading(database.sessions) as session:
        curve = read_points(session, [run.id], ["reward/mean"])[run.id, "reward/mean"]
    assert curve.steps.tolist() == list(range(2_000))
    assert packed_steps(database, run.id) == (ALL_PACKED, 2_000)
