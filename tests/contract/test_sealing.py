"""Tests that sealing rows into blocks loses nothing, despite kills, full disks and damaged blocks."""

import math

import numpy as np
import pytest
from sqlalchemy import event, func, select, text, update

from backend.base.errors import Unavailable
from backend.metrics import block_damage, blocks, sealing
from backend.metrics.block_check import damage_sentence, find_damaged_blocks
from backend.metrics.block_codec import BlockDamaged, encode
from backend.metrics.csv import csv_lines
from backend.metrics.reading import read_points, valid_rows
from backend.metrics.windows import load_metric_names
from backend.service.maintenance.damaged_blocks import tell_block, tell_damage
from backend.storage.models import Attempt, Event, Metric, MetricBlock
from tests.factories import make_attempt, make_run, write_metric
from tests.stored_points import stored_points

pytestmark = pytest.mark.both_databases

VALUE_BY_STEP = {1: 0.0, 2: math.nan, 3: math.inf, 4: -math.inf, 5: 1e-308, 6: 0.1 + 0.2, 7: -0.0}


class Killed(Exception):
    """Simulated end of the process."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 10)


@pytest.fixture
def run(database):
    """A run with unusual values and gaps, whose second attempt hides some steps of the first."""
    with database.sessions.begin() as session:
        run = make_run(session, status="finished", attempt=2, last_step=40)
        make_attempt(session, run, 1, from_step=-1)
        write_metric(session, run, "loss", {**VALUE_BY_STEP, **{step: step / 7 for step in range(8, 26)}})
        write_metric(session, run, "only/hidden", {22: 1.0, 25: 2.0})
        make_attempt(session, run, 2, from_step=20)
        write_metric(session, run, "loss", {step: step / 9 for step in range(21, 41)}, attempt=2)
        write_metric(session, run, "eval/accuracy", {30: 0.5, 40: 1.0}, attempt=2)
    return run


def seal_all(database):
    with database.sessions() as session:
        tasks = sealing.find_sealable(session)
    for _ in sealing.seal(database.sessions, tasks, tell_block):
        pass


def all_readings(database, run):
    """Return everything that readers see of a run, to the last bit."""
    with database.sessions() as session:
        names = load_metric_names(session, [run.id])
        curves = read_points(session, [run.id], names)
        return (
            names,
            [repr(point) for point in valid_rows(session, run.id)],
            [repr(point) for point in stored_points(session, run.id)],
            {name: (curve.steps.tolist(), curve.values.tobytes()) for (_, name), curve in curves.items()},
            "".join(csv_lines(database.sessions, run.id, all_attempts=False)),
            "".join(csv_lines(database.sessions, run.id, all_attempts=True)),
        )


def counts(database):
    with database.sessions() as session:
        return [session.scalar(select(func.count()).select_from(table)) for table in (Metric, MetricBlock)]


def test_all_readers_see_the_same_before_and_after_sealing(database, run):
    readings_before = all_readings(database, run)
    assert readings_before[4].startswith(
        "step,eval/accuracy,loss\n"
    )  # a metric with only hidden points has no column
    assert readings_before[5].startswith("step,attempt,eval/accuracy,loss,only/hidden\n")
    rows, _ = counts(database)
    seal_all(database)
    assert counts(database) == [0, 9]
    assert all_readings(database, run) == readings_before
    assert rows == len(readings_before[2])


def test_sealing_that_is_killed_at_any_statement_loses_nothing(database, run):
    readings_before = all_readings(database, run)
    survived = 0
    while True:
        left = survived

        def kill(*_):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        event.listen(database.engine, "before_cursor_execute", kill)
        try:
            seal_all(database)
            break
        except Killed:
            survived += 1
        finally:
            event.remove(database.engine, "before_cursor_execute", kill)
        assert all_readings(database, run) == readings_before
        with database.sessions() as session:  # sealed points are no longer rows
            for attempt, step in session.execute(select(Attempt.number, Attempt.packed_step)):
                unsealed_steps = select(Metric.step).where(Metric.attempt == attempt, Metric.step <= step)
                assert session.scalars(unsealed_steps).all() == []
    assert survived > 10
    assert counts(database) == [0, 9]
    assert all_readings(database, run) == readings_before


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_sealing_waits_while_the_disk_is_full(database, run, caplog):
    readings_before = all_readings(database, run)
    with database.engine.connect() as connection:
        pages = connection.scalar(text("PRAGMA page_count"))

    def fill(dbapi, _record, _proxy):
        dbapi.execute(f"PRAGMA max_page_count={pages}")

    with database.sessions.begin() as session:  # no page is free
        session.execute(text("CREATE TABLE filler (data BLOB)"))
        session.execute(text(f"PRAGMA max_page_count={pages + 1}"))
    event.listen(database.engine, "checkout", fill)
    trigger = (
        "CREATE TRIGGER full BEFORE INSERT ON metric_block BEGIN INSERT INTO filler VALUES (zeroblob(9000))"
    )
    with database.sessions.begin() as session:
        session.execute(text(f"{trigger}; END"))
    seal_all(database)
    assert "database or disk is full" in caplog.text
    assert counts(database)[1] == 0
    assert all_readings(database, run) == readings_before
    event.remove(database.engine, "checkout", fill)
    with database.sessions.begin() as session:
        session.execute(text("DROP TRIGGER full"))
        session.execute(text(f"PRAGMA max_page_count={2**30}"))
    seal_all(database)
    assert counts(database) == [0, 9]
    assert all_readings(database, run) == readings_before


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-2] + b"??",
        lambda _: encode(np.arange(10, 30), np.ones(20)),
        lambda _: encode(np.arange(10, 15), np.ones(5)),
        lambda _: encode(np.arange(0, 10), np.ones(10)),
        lambda _: encode(np.arange(20, 30), np.ones(10)),
    ],
    ids=["other bytes", "more points than were written", "fewer", "an earlier block", "a later block"],
)
def test_a_damaged_block_is_reported_once_and_others_are_read(database, run, monkeypatch, harm):
    monkeypatch.setattr(block_damage, "_recorded", {})
    monkeypatch.setattr(block_damage, "_reported", set())
    seal_all(database)
    with database.sessions.begin() as session:
        conditions = (MetricBlock.attempt == 1, MetricBlock.number == 1, MetricBlock.points > 2)
        block = session.scalars(select(MetricBlock).where(*conditions)).one()
        session.execute(update(MetricBlock).where(*conditions).values(data=harm(block.data)))
    with database.sessions() as session:
        curve = read_points(session, [run.id], ["loss"])[run.id, "loss"]
        assert curve.steps.tolist() == [*range(1, 10), 20, *range(21, 41)]
        assert [row.step for row in valid_rows(session, run.id) if row.name == "loss"] == curve.steps.tolist()
        assert len(list(find_damaged_blocks(session))) == 1
    for _ in range(2):
        with database.sessions.begin() as session:
            tell_damage(session, block_damage.recorded_damage().items())
    with database.sessions() as session:
        (event,) = session.scalars(select(Event).where(Event.run_id == run.id, Event.kind == "data"))
    assert event.level == "error"
    assert event.message.startswith("loss, steps 10 to 19 of attempt 1: the block that holds them is damaged")


def test_a_damaged_outline_is_reported_and_the_points_are_drawn(database, monkeypatch):
    monkeypatch.setattr(block_damage, "_recorded", {})
    monkeypatch.setattr(block_damage, "_reported", set())
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 1024)
    with database.sessions.begin() as session:
        run = make_run(session, status="finished", attempt=1, last_step=4095)
        make_attempt(session, run, 1, from_step=-1)
        write_metric(session, run, "loss", {step: float(step % 7) for step in range(1, 4096)}, attempt=1)
    seal_all(database)
    with database.sessions.begin() as session:
        condition = MetricBlock.number == 1
        assert session.scalars(select(MetricBlock.outline).where(condition)).one()
        session.execute(update(MetricBlock).where(condition).values(outline=b"\x01no outline"))
    with database.sessions() as session:
        outlined = blocks.Outlined([run.id], 1, 4095)
        curve = read_points(session, [run.id], ["loss"], outlined)[run.id, "loss"]
        assert set(range(1024, 2048)) <= set(curve.steps.tolist())
        ((damaged_block, reason),) = find_damaged_blocks(session)
        (recorded_block,) = block_damage.recorded_damage()
        assert recorded_block == damaged_block
        assert "outline" in damage_sentence(session, damaged_block, reason)
        assert "themselves are whole" in damage_sentence(session, damaged_block, reason)


def test_a_block_with_the_steps_of_another_is_not_merged(database, run):
    seal_all(database)
    with database.sessions.begin() as session:
        block = session.scalars(select(MetricBlock).where(MetricBlock.number == 0)).first()
        block.data = encode(np.array([1, 2**31 - 1]), np.ones(2))
        block.points, block.last_step, key_id = 2, 2**31 - 1, block.key_id
        attempt = block.attempt
    block_points = blocks.Stored(np.array([3]), np.array([attempt]), np.array([1.0]))
    with database.sessions() as session, pytest.raises(BlockDamaged):
        sealing.put_into_blocks(session, run.id, attempt, {key_id: block_points})


def test_a_point_is_not_written_into_a_damaged_block(database, run, monkeypatch):
    """Whoever brings it keeps it and tries again; the history of the run will name the block."""
    monkeypatch.setattr(block_damage, "_recorded", {})
    monkeypatch.setattr(block_damage, "_reported", set())
    seal_all(database)
    with database.sessions.begin() as session:
        session.execute(update(MetricBlock).values(data=b"\x01no block"))
    with (
        pytest.raises(Unavailable, match=r"of metric .* cannot be read"),
        database.sessions.begin() as session,
    ):
        write_metric(session, run, "loss", {30: 1.0}, attempt=2)
    assert [(block.attempt, block.number) for block in block_damage.recorded_damage()] == [(2, 3)]
    assert counts(database) == [0, 9]
