"""The command that brings a database back to the schema of an older version."""

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import select, text

from backend.cli import main
from backend.db.engine import open_engine, open_sessions
from backend.db.migrate import upgrade
from backend.db.models import Attempt, Metric, MetricBlock, Worker
from backend.db.schema import newest_schema, schema_of
from backend.metrics.sealing import seal, sealable
from backend.process.instance_lock import hold_instance
from backend.settings import Settings, service_url
from tests.factories import make_attempt, make_run, write_metric

pytestmark = pytest.mark.nightly

OLDER = "0028"


@pytest.fixture
def settings(tmp_path, empty_url, monkeypatch):
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DATABASE_URL", empty_url)
    return Settings()


def schema(url):
    engine = open_engine(url, pool_size=1)
    with engine.connect() as connection:
        found = schema_of(connection)
    engine.dispose()
    return found


def test_every_point_is_there_after_the_way_down_and_up(settings, empty_url, capsys):
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    sessions = open_sessions(engine)
    values = {step: step / 7 for step in range(1_500)}
    with sessions.begin() as session:
        run = make_run(session, status="finished", attempt=1)
        make_attempt(session, run, 1, from_step=-1)
        write_metric(session, run, "reward/mean", values)
    with sessions() as session:
        tasks = sealable(session)
    assert list(seal(sessions, tasks))
    with sessions() as session:
        assert session.scalars(select(MetricBlock.points)).all()
    engine.dispose()

    assert main(["downgrade", "0020"]) == 0
    assert f"from schema {newest_schema()}" in capsys.readouterr().out
    assert schema(empty_url) == "0020"
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    with open_sessions(engine)() as session:
        assert set(session.scalars(select(Attempt.packed_step))) == {-1}
        found = session.execute(select(Metric.step, Metric.value)).all()
        assert {row.step: row.value for row in found} == values
    engine.dispose()


def test_a_copy_of_sqlite_stays_and_is_never_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    url = f"sqlite:///{tmp_path / 'grpolab.db'}"
    upgrade(url)
    assert main(["downgrade", OLDER]) == 0
    copy = tmp_path / f"grpolab.db.{newest_schema()}.backup"
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (newest_schema(),)
    before = copy.read_bytes()
    upgrade(url)
    assert main(["downgrade", OLDER]) == 1
    assert f"{copy} exists: move it away" in capsys.readouterr().err
    assert (copy.read_bytes(), schema(url)) == (before, newest_schema())


@pytest.mark.parametrize("wanted", ["0099", newest_schema(), "", "base", "0028; DROP TABLE run"])
def test_a_schema_that_is_not_an_older_one_is_refused(settings, empty_url, capsys, wanted):
    upgrade(empty_url)
    assert main(["downgrade", wanted]) == 1
    assert "is not an older schema that this version knows" in capsys.readouterr().err
    assert schema(empty_url) == newest_schema()


def test_where_somebody_works_nothing_changes(settings, empty_url, capsys):
    upgrade(empty_url)
    settings.run_dir.mkdir(parents=True)
    with hold_instance(settings, service_url(settings)):
        assert main(["downgrade", OLDER]) == 1
    assert "stop it first" in capsys.readouterr().err
    engine = open_engine(empty_url, pool_size=1)
    with open_sessions(engine).begin() as session:
        session.add(Worker(id="w-0", host="h", pid=1, slot=0, device="cpu", stats={}))
    engine.dispose()
    assert main(["downgrade", OLDER]) == 1
    assert "stop all workers first" in capsys.readouterr().err
    assert schema(empty_url) == newest_schema()


def test_a_database_of_another_version_is_left_to_it(settings, empty_url, capsys):
    upgrade(empty_url, revision=OLDER)
    assert main(["downgrade", "0020"]) == 1
    assert f"has schema {OLDER}" in capsys.readouterr().err
    engine = open_engine(empty_url, pool_size=1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    assert main(["downgrade", "0020"]) == 1
    assert "has schema 9999" in capsys.readouterr().err


def test_without_a_database_nothing_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "state"))
    assert main(["downgrade", OLDER]) == 1
    assert "there is no database" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
