"""Configs of runs that were stored before a default changed keep the meaning that they had."""

import json

import pytest
from sqlalchemy import text

from backend.config.merge import config_hash, resolve
from backend.config.run import RunConfig
from backend.db.engine import open_engine
from backend.db.migrate import downgrade, upgrade

KLS = {"with": {"type": "k3", "coef": 0.1}, "without": {"type": "none"}, "one_k1": {"type": "k1"}}


def stored(name: str) -> dict[str, object]:
    """A config as the version before wrote it down."""
    config = resolve({"objective": {"kl": KLS[name]}}).model_dump(mode="json")
    config["objective"]["kl"].pop("k3_limit", None)
    del config["environment"]
    return config


def insert(connection, name: str) -> None:
    names = "id, name, variant, seed, config, config_hash, steps, status, reason, wish, attempt, lease_until"
    names += ", priority, run_after, own_failures, last_step, summary, tags, notes, created_at"
    names += ", queued_at, changed_at"
    values = "'v', 0, :config, 'of before', 1, 'finished', '', '', 1, 0, 0, 0, 0, 1, '{}', '[]', '', 0, 0, 0"
    connection.execute(
        text(f"INSERT INTO run ({names}) VALUES (:id, :name, {values})"),  # noqa: S608
        {"id": name, "name": name, "config": json.dumps(stored(name))},
    )


def configs(connection) -> dict[str, dict[str, object]]:
    rows = connection.execute(text("SELECT id, config FROM run")).all()
    return {row.id: row.config if isinstance(row.config, dict) else json.loads(row.config) for row in rows}


@pytest.fixture
def upgraded(empty_url):
    """A database of the version before with a run of each kind, brought up to date."""
    upgrade(empty_url, revision="0007")
    engine = open_engine(empty_url, pool_size=1)
    with engine.begin() as connection:
        for name in KLS:
            insert(connection, name)
    upgrade(empty_url)
    yield empty_url, engine
    engine.dispose()


def test_stored_runs_keep_their_limit_and_new_ones_have_none(upgraded):
    _, engine = upgraded
    with engine.connect() as connection:
        found = {name: RunConfig.model_validate(config) for name, config in configs(connection).items()}
        hashes = dict(connection.execute(text("SELECT id, config_hash FROM run")).all())
    assert found["with"].objective.largest_k3 == found["one_k1"].objective.largest_k3 == 10
    assert (
        found["without"].objective.largest_k3
        == resolve({"objective": {"kl": KLS["with"]}}).objective.largest_k3
    )
    assert hashes["without"] == "of before"
    assert hashes["with"] == config_hash(found["with"])


def test_going_back_takes_the_field_away_again(upgraded):
    url, engine = upgraded
    engine.dispose()
    downgrade(url, revision="0007")
    with engine.connect() as connection:
        assert configs(connection) == {name: stored(name) for name in KLS}
