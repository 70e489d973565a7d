"""Tests of long responses in little memory: exports are streamed, and few run at a time.

`pytest tests/backend/metrics/test_exports.py` takes 60,000 points; GRPOLAB_POINTS=2000000 takes more."""

import asyncio
import os
from collections.abc import Generator
from typing import cast

import pytest
from sqlalchemy import text

from backend.http import read_budget as budget
from backend.http.read_budget import ReadBudget
from backend.metrics import windows
from backend.metrics.csv import csv_lines
from backend.metrics.store import key_ids
from backend.rollouts import reading as rollouts
from tests.api_client import client_of_service
from tests.factories import MadeCompletion, make_group, make_run, stored_completions, write_metric

POINT_COUNT = int(os.environ.get("GRPOLAB_POINTS", "60000"))
METRIC_COUNT = 20


@pytest.fixture
def long_run(database):
    """A run of many points, in which every seventh step is missing and one gap spans a million steps."""
    steps = POINT_COUNT // METRIC_COUNT
    series = {
        "sqlite": "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < :steps) "
        "SELECT i FROM s",
        "postgresql": "SELECT i FROM generate_series(1, :steps) AS s(i)",
    }[database.engine.dialect.name]
    insert = (
        "INSERT INTO metric (run_id, key_id, step, attempt, kind, value) "  # noqa: S608 - made here
        "SELECT :run, :key, i + i / 7 + CASE WHEN i > :steps / 2 THEN 1000000 ELSE 0 END, 1, 0, i * 0.1 "
        f"FROM ({series}) AS n"
    )
    with database.sessions.begin() as session:
        run = make_run(session)
        keys = key_ids(session, [f"metric/{number:02}" for number in range(METRIC_COUNT)])
        for key in keys.values():
            session.execute(text(insert), {"run": run.id, "key": key, "steps": steps})
    return run


def test_points_written_after_an_export_began_are_not_half_included(database, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_POINTS", 1)
    with database.sessions.begin() as session:
        run = make_run(session)
        write_metric(session, run, "a", {1: 1.0, 2: 2.0})
    lines = csv_lines(database.sessions, run.id, all_attempts=False)
    assert (next(lines), next(lines)) == ("step,a\n", "1,1.0\n")
    with database.sessions.begin() as session:
        write_metric(session, run, "b", {2: 3.0})
    assert "".join(lines) == "2,2.0\n"


def test_an_export_stops_when_its_client_disconnects(database, long_run, monkeypatch):
    calls = []
    find_next_window = windows.find_next_window

    def count_and_find(*arguments):
        calls.append(arguments)
        return find_next_window(*arguments)

    monkeypatch.setattr("backend.metrics.csv.find_next_window", count_and_find)
    monkeypatch.setattr(windows, "WINDOW_POINTS", 100)
    lines = csv_lines(database.sessions, long_run.id, all_attempts=False)
    next(lines), next(lines)
    cast("Generator[str]", lines).close()
    assert len(calls) == 1


def test_long_texts_make_short_pages_without_losses(database, settings, monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_PAGE_TOKENS", 250)
    with database.sessions.begin() as session:
        run = make_run(session)
        for step, length in enumerate([100, 100, 100, 600, 10, 10], start=1):
            make_group(session, run, step=step, completions=(MadeCompletion(text="x" * length),))
        assert sum(completion.tokens for completion in stored_completions(session)) == 920
    with client_of_service(settings, database.url) as client:
        pages: list[list[int]] = []
        cursor: str | None = ""
        while cursor is not None:
            page = client.get("/api/v1/rollouts", params={"run": run.id, "cursor": cursor}).json()
            pages.append([item["step"] for item in page["items"]])
            cursor = page["next"]
    assert pages == [[1, 2], [3], [4], [5, 6]]


class SlowRoutes:
    """Routes that answer when a test releases them."""

    def __init__(self):
        self.begun, self.may_end = 0, asyncio.Event()

    async def __call__(self, _scope, _receive, send):
        self.begun += 1
        await self.may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})


async def fetch_status(app, path, role="viewer", method="GET"):
    messages = []

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "state": {"role": role}}
    await app(scope, None, send)
    return messages[0]["status"]


def test_expensive_reads_of_a_token_are_limited_without_delaying_other_tokens(monkeypatch):
    monkeypatch.setattr(budget, "MAX_WAIT_SECONDS", 0.2)

    async def story():
        slow_routes = SlowRoutes()
        app = ReadBudget(slow_routes, limit=2)
        first = [asyncio.ensure_future(fetch_status(app, "/api/v1/series")) for _ in range(2)]
        await asyncio.sleep(0)
        assert await fetch_status(app, "/api/v1/rollouts") == 429
        other_requests = [
            asyncio.ensure_future(fetch_status(app, *request))
            for request in [
                ("/api/v1/series", "operator"),
                ("/api/v1/runs/x/metrics.csv",),
                ("/api/v1/runs",),
                ("/healthz",),
            ]
        ]
        await asyncio.sleep(0)
        assert slow_routes.begun == 6
        slow_routes.may_end.set()
        assert await asyncio.gather(*first, *other_requests) == [200] * 6
        assert await fetch_status(app, "/api/v1/rollouts/steps") == 200

    asyncio.run(story())


@pytest.mark.parametrize(
    "path",
    ["series", "matrix", "signal-budget", "runs/x/breakdown", "runs/x/diagnosis"]
    + [f"rollouts{end}" for end in ("", "/mismatch", "/loss", "/prompts", "/probes", "/counts", "/x/tokens")]
    + ["rollouts/prompts.jsonl", "rollouts/search/export", "runs/x/archive"],
)
def test_every_read_of_curves_and_completions_counts_towards_the_limit(monkeypatch, path):
    monkeypatch.setattr(budget, "MAX_WAIT_SECONDS", 0.01)

    async def story():
        slow_routes = SlowRoutes()
        app = ReadBudget(slow_routes, limit=1)
        first = asyncio.ensure_future(fetch_status(app, f"/api/v1/{path}"))
        await asyncio.sleep(0)
        assert await fetch_status(app, f"/api/v1/{path}") == 429
        slow_routes.may_end.set()
        assert await first == 200

    asyncio.run(story())


def test_a_failed_or_cancelled_read_no_longer_counts():
    async def fail(scope, receive, send):
        raise RuntimeError

    async def story():
        app = ReadBudget(fail, limit=1)
        for _ in range(3):
            with pytest.raises(RuntimeError):
                await fetch_status(app, "/api/v1/series")
        slow_routes = SlowRoutes()
        app = ReadBudget(slow_routes, limit=1)
        cancelled_read = asyncio.ensure_future(fetch_status(app, "/api/v1/series"))
        await asyncio.sleep(0)
        cancelled_read.cancel()
        slow_routes.may_end.set()
        assert await fetch_status(app, "/api/v1/series") == 200

    asyncio.run(story())
