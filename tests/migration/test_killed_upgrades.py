"""Upgrades that are killed in the middle, and several at once, in processes of their own (row 28).

GRPOLAB_ALL_POINTS=1 dies at every point instead of a sample.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import MetaData, select

from backend.db.engine import open_engine, open_sessions
from backend.db.migrate import downgrade, upgrade
from backend.db.schema import newest_schema
from backend.runs.events import add_event
from tests.factories import make_attempt, make_experiment, make_run, write_metric
from tests.faults.audit_tables import damage, rows_of_nobody

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parent.parent.parent
OLDEST = "0001"
IS_LONG = os.environ.get("GRPOLAB_ALL_POINTS") == "1"


@pytest.fixture(scope="module")
def processes():
    """Gives what became of each process of a request: see upgrading.py."""
    argv = [sys.executable, "-m", "tests.migration.upgrading"]
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as parent:

        def ask(form, number, url):
            parent.stdin.write(f"{form} {number} {url}\n")
            return json.loads(parent.stdout.readline())

        yield ask
        parent.stdin.close()


def rows_of(url):
    """Every row of every table as it is."""
    engine = open_engine(url, pool_size=1)
    known = MetaData()
    known.reflect(engine)
    with engine.connect() as connection:
        found = {
            name: [dict(row) for row in connection.execute(select(table)).mappings()]
            for name, table in known.tables.items()
            if name != "alembic_version"
        }
    engine.dispose()
    return found


@pytest.fixture
def old_url(empty_url):
    """A database of the oldest schema with a few runs in it."""
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    with open_sessions(engine).begin() as session:
        for number in range(3):
            experiment = make_experiment(session, name=f"e{number}")
            run = make_run(session, experiment_id=experiment.id, attempt=1, last_step=5)
            make_attempt(session, run, 1)
            write_metric(session, run, "reward/mean", {step: 0.1 * step for step in range(1, 6)})
            add_event(session, "lifecycle", "queued", run_id=run.id, data={"to": "queued"})
    engine.dispose()
    downgrade(empty_url, OLDEST)
    return empty_url


def check_whole(url, before):
    """All rows are there with what they held, the schema is the newest, and nothing is damaged."""
    after = rows_of(url)
    for name, rows in before.items():
        kept = [{column: row[column] for column in rows[0]} for row in after[name]] if rows else after[name]
        assert sorted(kept, key=str) == sorted(rows, key=str)
    engine = open_engine(url, pool_size=1)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").all() == [
            (newest_schema(),)
        ]
    sessions = open_sessions(engine)
    with sessions() as session:
        assert list(rows_of_nobody(session)) == []
    assert damage(sessions) == []
    engine.dispose()


def test_an_upgrade_killed_at_any_point_is_done_by_the_next_start(old_url, processes):
    before = rows_of(old_url)
    assert before["run"]
    *killed, last = processes("die", 1 if IS_LONG else 3, old_url)
    assert len(killed) >= (30 if IS_LONG else 10)
    assert {(each["code"], each["schema"]) for each in killed} == {(-signal.SIGKILL, OLDEST)}, killed
    assert (last["code"], last["schema"]) == (0, newest_schema())
    check_whole(old_url, before)


def test_a_first_start_killed_while_it_makes_the_schema_is_done_by_the_next(empty_url, processes):
    *killed, last = processes("die", 1 if IS_LONG else 20, empty_url)
    assert len(killed) >= (70 if IS_LONG else 4)
    assert {(each["code"], each["schema"]) for each in killed} == {(-signal.SIGKILL, "")}, killed
    assert (last["code"], last["schema"]) == (0, newest_schema())
    check_whole(empty_url, {})


def test_of_several_processes_that_upgrade_at_once_all_succeed(old_url, processes):
    before = rows_of(old_url)
    ended = processes("race", 3, old_url)
    assert [each["code"] for each in ended] == [0, 0, 0], ended
    check_whole(old_url, before)
