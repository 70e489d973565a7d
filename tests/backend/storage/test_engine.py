"""Tests that both databases agree on the behaviour that the code relies on."""

from typing import cast

import pytest
from fastapi import FastAPI
from sqlalchemy import select, text

from backend.storage.models import Experiment
from tests.api_client import client_of_service, replace_endpoint

pytestmark = pytest.mark.both_databases


def test_an_uncommitted_row_is_invisible_to_others(database):
    with database.sessions() as session:
        session.add(Experiment(name="half", request={}, request_hash=""))
        session.flush()
        session.rollback()
    with database.sessions() as session:
        assert session.scalars(select(Experiment)).all() == []


def test_postgres_ends_slow_statements_of_the_service(postgres_url, settings):
    with client_of_service(settings, postgres_url) as client:
        engine = cast("FastAPI", client.app).state.lab.engine

        def run_slow_query():
            with engine.begin() as connection:
                connection.execute(text("SET LOCAL statement_timeout = '50ms'"))
                connection.execute(text("SELECT pg_sleep(30)"))

        replace_endpoint(client, "/api/v1/experiments", run_slow_query)
        response = client.get("/api/v1/experiments")
        with engine.connect() as connection:
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            limits = [connection.execute(text(f"SHOW {name}")).scalar_one() for name in names]
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert response.json()["detail"] == "the database is too busy to answer in time: try again"
    assert limits == ["10s", "5s", "1min"]
