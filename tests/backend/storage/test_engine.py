"""The two databases agree on what the code relies on."""

from typing import cast

import pytest
from fastapi import FastAPI
from sqlalchemy import select, text

from backend.storage.engine import db_now
from backend.storage.models import Experiment
from tests.api_client import put_in_place_of, serving

pytestmark = pytest.mark.both_databases


def test_the_databases_clock_is_utc_and_moves(database):
    with database.sessions() as session:
        first, second = (session.execute(select(db_now())).scalar_one() for _ in range(2))
    assert second >= first > 1.7e9


def test_an_uncommitted_row_is_not_there_for_others(database):
    with database.sessions() as session:
        session.add(Experiment(name="half", request={}, request_hash=""))
        session.flush()
        session.rollback()
    with database.sessions() as session:
        assert session.scalars(select(Experiment)).all() == []


def test_each_test_gets_an_empty_database(session):
    session.add(Experiment(name="mine", request={}, request_hash=""))
    session.commit()
    assert session.execute(text("select count(*) from experiment")).scalar_one() == 1


def test_postgres_ends_what_takes_the_service_too_long(postgres_url, settings):
    with serving(settings, postgres_url) as client:
        engine = cast("FastAPI", client.app).state.lab.engine

        def slow():
            with engine.begin() as connection:
                connection.execute(text("SET LOCAL statement_timeout = '50ms'"))
                connection.execute(text("SELECT pg_sleep(30)"))

        put_in_place_of(client, "/api/v1/experiments", slow)
        answer = client.get("/api/v1/experiments")
        with engine.connect() as connection:
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            limits = [connection.execute(text(f"SHOW {name}")).scalar_one() for name in names]
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["detail"] == "the database is too busy to answer in time: try again"
    assert limits == ["10s", "5s", "1min"]
