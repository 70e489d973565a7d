"""Measure the response times of a user, over HTTP with a kept connection and in a browser."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from sqlalchemy import insert, select

from backend.storage.engine import Sessions
from backend.storage.models import Experiment, Run
from benchmarks.common.browser import chromium, fresh_page
from benchmarks.common.service import Service
from benchmarks.scale.fill import CURVE_METRICS, RARE_WORD, WIDE_METRICS, Filled, Size, run_row

FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"

Params = dict[str, str | int | float]
Request = tuple[str, Params]


@dataclass(slots=True)
class Figures:
    """Seconds of each kind of request, and results of the checks."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    walked_runs: int = 0
    """Number of runs that a walk through all pages met while others were added."""
    walked_twice: int = 0
    missed_runs: int = 0
    added_runs: int = 0
    """Number of runs that were added during the walk."""
    pages: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds until the first paint and until the data are drawn, by page."""


def measure(service: Service, sessions: Sessions, size: Size, contents: Filled, *, rounds: int) -> Figures:
    """Measure everything, with each kind of request at random positions."""
    figures = Figures()
    for name, request in requests(size, contents).items():
        figures.seconds[name] = [measure_request(service, *request()) for _ in range(rounds)]
    _walk(service, sessions, figures)
    _pages(service, contents, figures)
    return figures


def percentile(seconds: list[float], share: float) -> float:
    """Return a percentile by nearest rank."""
    sorted_seconds = sorted(seconds)
    return sorted_seconds[min(len(sorted_seconds) - 1, int(share * len(sorted_seconds)))]


def requests(size: Size, contents: Filled) -> dict[str, Callable[[], Request]]:
    """Return typical requests at random positions."""
    chance = random.Random(1)
    chart = ",".join(contents.chart_runs)

    def zoomed() -> Params:
        low = chance.randint(0, size.long_steps * 3 // 4)
        return {"x_min": low, "x_max": low + size.long_steps // 4}

    def series(**params: str | float) -> Request:
        return "/series", {"metrics": "reward/mean", "max_points": 2_000, **params}

    def rollouts(**params: str | float) -> Request:
        return "/rollouts", {"run": contents.rollout_run, "limit": 20, **params}

    return {
        "list of runs, first page": lambda: ("/runs", {"limit": 50}),
        "list of runs, part of a name, sorted by a metric": lambda: (
            "/runs",
            {"limit": 50, "query": f"run-0{chance.randint(0, 9)}", "sort": "-summary.reward/mean"},
        ),
        "list of runs, status and variant, sorted by name": lambda: (
            "/runs",
            {"limit": 50, "status": "failed", "variant": "dapo", "sort": "name"},
        ),
        f"a curve of {size.long_steps:,} points": lambda: series(runs=contents.long_run),
        "a quarter of it": lambda: series(runs=contents.long_run, **zoomed()),
        f"a chart of {size.chart_runs} runs x {size.chart_steps:,} steps": lambda: series(
            runs=chart, metrics=chance.choice(CURVE_METRICS[:9]), max_points=500
        ),
        f"one of {len(WIDE_METRICS)} metrics at irregular steps, with NaN": lambda: series(
            runs=contents.wide_run, metrics=chance.choice(WIDE_METRICS)
        ),
        "twelve of them": lambda: series(
            runs=contents.wide_run, metrics=",".join(chance.sample(WIDE_METRICS, 12)), max_points=500
        ),
        "rollouts of a step": lambda: rollouts(step=chance.randint(1, size.rollouts // 256)),
        "rollouts, lowest reward first": lambda: rollouts(sort="reward"),
        f"rollouts with a rare word, of {size.rollouts // 2:,}": lambda: rollouts(q=RARE_WORD),
    }


def measure_request(service: Service, path: str, params: Params) -> float:
    """Return the seconds of a request, which must succeed."""
    started_at = time.perf_counter()
    response = service.http.get(f"/api/v1{path}", params=params)
    seconds = time.perf_counter() - started_at
    if not response.is_success:
        raise SystemExit(f"{path} {params}: {response.status_code} {response.text[:300]}")
    return seconds


def _walk(service: Service, sessions: Sessions, figures: Figures) -> None:
    """Read the list of runs page by page while another thread adds runs."""
    with sessions() as session:
        expected = set(session.scalars(select(Run.id)))
    finished = threading.Event()
    adding_thread = threading.Thread(target=_add_runs, args=(sessions, finished, figures))
    adding_thread.start()
    try:
        met = list(_all_runs(service))
    finally:
        finished.set()
        adding_thread.join()
    figures.walked_runs = len(met)
    figures.walked_twice = len(met) - len(set(met))
    figures.missed_runs = len(expected - set(met))


def _all_runs(service: Service) -> Iterator[str]:
    cursor: str | None = ""
    while cursor is not None:
        params: Params = {"limit": 100, "sort": "-created_at"}
        if cursor:
            params["cursor"] = cursor
        page = service.http.get("/api/v1/runs", params=params).raise_for_status().json()
        yield from (run["id"] for run in page["items"])
        cursor = page["next"]


def _add_runs(sessions: Sessions, finished: threading.Event, figures: Figures) -> None:
    chance = random.Random(2)
    with sessions() as session:
        experiment = session.scalar(select(Experiment.id).limit(1)) or ""
    while not finished.wait(0.02):
        with sessions.begin() as session:
            session.execute(insert(Run), [run_row(90_000 + figures.added_runs, experiment, chance)])
        figures.added_runs += 1


def _pages(service: Service, contents: Filled, figures: Figures, *, visits: int = 5) -> None:
    """Measure the pages in Chromium, each visit with an empty cache."""
    pages = {
        "Runs": ("/", "text=/run-\\d{5}/"),
        "Compare, 50 runs": (
            f"/compare?runs={','.join(contents.chart_runs)}",
            "[data-metric='reward/mean'] .js-plotly-plot .trace",
        ),
        "Rollouts": (f"/rollouts?run={contents.rollout_run}", "text=boxed"),
    }
    with chromium() as browser:
        for name, (path, selector) in pages.items():
            timings = (
                _visit(fresh_page(browser, service), service.url + path, selector) for _ in range(visits)
            )
            paints, data_times = zip(*timings, strict=True)
            figures.pages[name] = (median(paints), median(data_times))


def _visit(page: Any, address: str, selector: str) -> tuple[float, float]:
    started_at = time.perf_counter()
    page.goto(address)
    page.locator(selector).first.wait_for(timeout=60_000)
    seconds = time.perf_counter() - started_at
    paint = page.evaluate(FIRST_PAINT) / 1000
    page.context.close()
    return paint, seconds
