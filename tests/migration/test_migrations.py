"""Tests that migrations alone create the schema, on both databases."""

import re
import sqlite3
import threading
from contextlib import closing

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import OperationalError

from backend.storage.engine import open_engine, open_sessions
from backend.storage.migrate import UnknownSchema, upgrade
from backend.storage.models import Base
from backend.storage.rollout_words import is_index
from backend.storage.schema import MIGRATIONS, known_schemas, newest_schema, read_schema
from tests.factories import make_run

pytestmark = pytest.mark.both_databases

SCRIPTS = ScriptDirectory(str(MIGRATIONS))


def is_mapped(name, kind, _parents):
    return kind != "table" or not is_index(name)


def tables(url):
    engine = open_engine(url, pool_size=1)
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return {name for name in names - {"alembic_version", "sqlite_sequence"} if not is_index(name)}


def test_a_sqlite_database_is_copied_before_an_upgrade(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    upgrade(url)
    monkeypatch.setattr("backend.storage.migrate.newest_schema", lambda: "9998")
    monkeypatch.setattr("backend.storage.migrate.upgrade_within", lambda *_: None)
    upgrade(url)
    (copy,) = tmp_path.glob("old.db.*.backup")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (0,)


def test_there_is_one_newest_revision():
    assert SCRIPTS.get_heads() == [newest_schema()]
    assert {script.revision for script in SCRIPTS.walk_revisions()} == known_schemas()


def test_the_migrations_create_exactly_the_schema_of_the_models(empty_url):
    assert upgrade(empty_url) == ("", newest_schema())
    engine = open_engine(empty_url, pool_size=1)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_name": is_mapped}
        )
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_a_second_upgrade_changes_nothing_and_keeps_the_rows(empty_url):
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    with open_sessions(engine).begin() as session:
        make_run(session)
    assert upgrade(empty_url) == (newest_schema(), newest_schema())
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM run")) == 1
    engine.dispose()


def test_of_two_concurrent_upgrades_one_does_the_work_and_both_succeed(empty_url):
    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(upgrade(empty_url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(schema_before for schema_before, _ in outcomes) == ["", newest_schema(), newest_schema()]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("9999", "schema 9999, which is newer than this version knows (0101): start the newer version again"),
        ("0100", "schema 0100, of a version before the first release, which is not read any more: export"),
    ],
)
def test_a_database_of_an_unknown_schema_is_refused_and_unchanged(empty_url, schema, reason):
    upgrade(empty_url)
    engine = open_engine(empty_url, pool_size=1)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :schema"), {"schema": schema})
    with pytest.raises(UnknownSchema, match=re.escape(reason)):
        upgrade(empty_url)
    with engine.connect() as connection:
        assert read_schema(connection) == schema
    engine.dispose()


def test_an_upgrade_that_fails_midway_leaves_no_table(empty_url, monkeypatch):
    real_upgrade = command.upgrade

    def interrupt_upgrade(config, revision):
        real_upgrade(config, revision)
        raise OperationalError("COMMIT", {}, Exception("killed"))

    monkeypatch.setattr(command, "upgrade", interrupt_upgrade)
    with pytest.raises(OperationalError):
        upgrade(empty_url)
    assert tables(empty_url) == set()
    monkeypatch.undo()
    upgrade(empty_url)
    assert tables(empty_url) == set(Base.metadata.tables)
