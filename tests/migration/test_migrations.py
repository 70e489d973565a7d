"""The schema grows by migrations alone, on both databases."""

import json
import sqlite3
import threading
from contextlib import closing

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, select, text, update
from sqlalchemy.exc import OperationalError

from backend.db.engine import open_engine, open_sessions
from backend.db.migrate import NewerDatabase, downgrade, upgrade
from backend.db.models import ALL_PACKED, Attempt, Base, Metric, MetricBlock
from backend.db.rollout_words import is_index
from backend.db.schema import MIGRATIONS, known_schemas, newest_schema
from backend.metrics.sealing import seal, sealable
from backend.rollouts.conversion import convert
from backend.rollouts.packing import pack_text, unpack_text
from tests.factories import make_attempt, make_run, write_metric

pytestmark = pytest.mark.both_databases

SCRIPTS = ScriptDirectory(str(MIGRATIONS))
REVISIONS = [script.revision for script in SCRIPTS.walk_revisions()][::-1]


def is_mapped(name, kind, _parents):
    return kind != "table" or not is_index(name)


def tables(url):
    engine = open_engine(url, pool_size=1)
    found = set(inspect(engine).get_table_names())
    engine.dispose()
    return {name for name in found - {"alembic_version", "sqlite_sequence"} if not is_index(name)}


def test_a_sqlite_database_that_is_about_to_change_is_copied_first(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    upgrade(url)
    monkeypatch.setattr("backend.db.migrate.newest_schema", lambda: "a newer one")
    upgrade(url)
    (copy,) = tmp_path.glob("old.db.*.backup")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (0,)


def test_there_is_one_newest_revision():
    assert SCRIPTS.get_heads() == [newest_schema()]
    assert {script.revision for script in SCRIPTS.walk_revisions()} == known_schemas()


def test_the_migrations_make_exactly_what_the_models_say(empty_url):
    assert upgrade(empty_url) == ("", newest_schema())
    engine = open_engine(empty_url, pool_size=1)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_name": is_mapped}
        )
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_each_step_goes_up_down_and_up_again(empty_url):
    for number, revision in enumerate(REVISIONS):
        upgrade(empty_url, revision=revision)
        downgrade(empty_url, REVISIONS[number - 1] if number else "base")
        upgrade(empty_url, revision=revision)
    assert tables(empty_url) == set(Base.metadata.tables)
    downgrade(empty_url, "base")
    assert tables(empty_url) == set()


def test_a_second_upgrade_changes_nothing_and_keeps_the_rows(empty_url):
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    with open_sessions(engine).begin() as session:
        make_run(session)
    assert upgrade(empty_url) == (newest_schema(), newest_schema())
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM run")) == 1
    engine.dispose()


def test_an_older_sqlite_database_is_copied_before_it_changes(tmp_path):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    upgrade(url, revision="0001")
    (tmp_path / "old.db.0001.draft").write_text("half a copy of a process that was killed")
    assert upgrade(url) == ("0001", newest_schema())
    assert sorted(path.name for path in tmp_path.glob("*.db*") if "-" not in path.name) == [
        "old.db",
        "old.db.0001.backup",
    ]
    copy = open_engine(f"sqlite:///{tmp_path / 'old.db.0001.backup'}", pool_size=1)
    with copy.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "0001"
    copy.dispose()


def test_of_two_that_upgrade_at_once_one_does_it_and_both_succeed(empty_url):
    done = []
    threads = [threading.Thread(target=lambda: done.append(upgrade(empty_url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(before for before, _ in done) == ["", newest_schema(), newest_schema()]


def test_runs_whose_gaps_were_packed_wrongly_are_packed_again_and_no_others(empty_url):
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    sessions = open_sessions(engine)
    with sessions.begin() as session:
        runs = [make_run(session, status="finished", attempt=1) for _ in range(2)]
        for run in runs:
            make_attempt(session, run, 1, from_step=-1)
            write_metric(session, run, "a", dict.fromkeys(range(0, 5_000, 10), 1.0))
    downgrade(empty_url, "0008")
    with sessions.begin() as session:  # as version 0008 left it: one block of a log of every tenth step
        session.execute(update(Attempt).values(packed_step=ALL_PACKED))
        key = session.scalars(select(Metric.key_id).limit(1)).one()
        for run, counts in zip(runs, ((103,), (103, 102, 103, 102, 90)), strict=True):
            for number, points in enumerate(counts):
                place = {"run_id": run.id, "key_id": key, "attempt": 1, "number": number}
                session.add(MetricBlock(**place, last_step=0, points=points, outline=b"", data=b""))
    upgrade(empty_url, revision="0009")
    with sessions() as session:
        reached = {row[0]: row[1] for row in session.execute(select(Attempt.run_id, Attempt.packed_step))}
        blocks = session.scalars(select(MetricBlock.run_id)).all()
    assert reached == {runs[0].id: -1, runs[1].id: ALL_PACKED}
    assert blocks == [runs[1].id] * 5
    upgrade(empty_url)
    with sessions() as session:  # their rows are there, and are sealed again
        assert session.scalars(select(MetricBlock.run_id)).all() == []
        assert set(session.scalars(select(Attempt.packed_step))) == {-1}
        tasks = sealable(session)
    assert list(seal(sessions, tasks))
    with sessions() as session:
        assert sum(session.scalars(select(MetricBlock.points))) == 1_000
        assert session.scalars(select(Metric.step)).all() == []
    engine.dispose()


def test_a_newer_database_is_refused_with_what_to_do(empty_url):
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(NewerDatabase, match="schema 9999, which is newer than this version knows"):
        upgrade(empty_url)


def test_an_upgrade_that_fails_in_the_middle_leaves_no_table_behind(empty_url, monkeypatch):
    real = command.upgrade

    def interrupted(config, revision):
        real(config, revision)
        raise OperationalError("COMMIT", {}, Exception("killed"))

    monkeypatch.setattr(command, "upgrade", interrupted)
    with pytest.raises(OperationalError):
        upgrade(empty_url)
    assert tables(empty_url) == set()
    monkeypatch.undo()
    upgrade(empty_url)
    assert tables(empty_url) == set(Base.metadata.tables)


ROWS_OF_BEFORE = """
INSERT INTO rollout_group
(id, run_id, step, attempt, kind, prompt_index, prompt_id, problem, domain, prompt, answer)
VALUES ('{group}', :run, 1, 1, 'train', 0, 'p', '', '', :text, :text);
INSERT INTO rollout
(id, group_id, position, text, clean_text, reward, rewards, tokens, finish_reason, non_finite, flags)
VALUES ('{group}', '{group}', 0, :text, 'hello', 1, '{{}}', 3, 'stop', '{{}}', '["odd"]');
INSERT INTO rollout
(id, group_id, position, text, clean_text, rewards, tokens, finish_reason, non_finite, flags)
VALUES
('of-the-first-version', '{group}', 1, :text, 'hello', '{{"a": 0.5}}', 3, '', '{{"reward": "NaN"}}', '[]');
INSERT INTO rollout_label (rollout_id, label, run_id, note, role, version, changed_at)
VALUES ('of-the-first-version', 'weird', :run, 'why', 'operator', 2, 5.5)
"""


def test_completions_and_labels_of_before_are_packed_and_written_back(empty_url):
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    sessions = open_sessions(engine)
    with sessions.begin() as session:
        run = make_run(session).id
    downgrade(empty_url, "0028")
    with engine.begin() as connection:
        for statement in ROWS_OF_BEFORE.format(group="01hzzzzzzz0000010000000000").split(";"):
            names = {"run": run, "text": pack_text("hello")}
            given = {name: value for name, value in names.items() if f":{name}" in statement}
            connection.execute(text(statement), given)
        before = {name: rows_of(connection, name) for name in ("rollout", "rollout_label")}
    upgrade(empty_url)
    assert len(list(convert(sessions))) == 1
    with engine.connect() as connection:
        assert rows_of(connection, "rollout") == []
        assert rows_of(connection, "rollout_alias") == [
            ("of-the-first-version", "01hzzzzzzz0000010000000000")
        ]
        assert connection.scalar(text("SELECT group_id FROM rollout_label")) == "01hzzzzzzz0000010000000000"
    downgrade(empty_url, "0028")
    with engine.connect() as connection:
        assert {name: rows_of(connection, name) for name in before} == before
    engine.dispose()


def rows_of(connection, table):
    found = connection.execute(text(f"SELECT * FROM {table}"))  # noqa: S608
    return sorted((tuple(map(plain, row)) for row in found), key=str)


def plain(value):
    """JSON as a document, whatever the driver makes of it; packed text as text, whatever its checksum."""
    if isinstance(value, bytes):
        return unpack_text(value)
    return json.loads(value) if isinstance(value, str) and value.startswith(("[", "{")) else value
