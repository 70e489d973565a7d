"""The pictures that the dashboard draws of the kept runs, where Chromium and playwright are installed."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backend.base.settings import Settings
from backend.config.merge import config_hash, resolve
from backend.metrics.store import write_points
from backend.metrics.summary import Summary
from backend.storage.engine import Sessions, open_engine, open_sessions
from backend.storage.models import Experiment, Run
from benchmarks.common.browser import chromium, fresh_page
from benchmarks.common.pictures import shrink
from benchmarks.common.service import Service
from benchmarks.evidence.claims import CLAIMS
from benchmarks.evidence.store import wanted

HERE = Path(__file__).parent
MOST_VARIANTS = 8
"""Of a claim with more nobody can tell the curves apart."""


def take_pictures(claims: Iterable[str]) -> None:
    """Compare with all kept runs of each claim, as a person sees it."""
    with tempfile.TemporaryDirectory(prefix="grpolab-evidence-") as state:
        service = Service(state)
        try:
            service.wait()
            engine = open_engine(Settings(state_dir=Path(state)).effective_database_url)
            kept = {key: _bring_back(open_sessions(engine), key) for key in claims if _is_pictured(key)}
            engine.dispose()
            with chromium() as browser:
                for key, runs in kept.items():
                    if runs:
                        _take(fresh_page(browser, service), service, runs, HERE / f"{key}.png")
        finally:
            service.stop()


def _is_pictured(key: str) -> bool:
    return len(CLAIMS[key].variants) <= MOST_VARIANTS


def _bring_back(sessions: Sessions, key: str) -> list[str]:
    """The kept runs of a claim as rows, with the values of their files; their ids."""
    with sessions.begin() as session:
        name = f"({key}) {CLAIMS[key].title}"
        experiment = Experiment(name=name, request={"variants": [], "seeds": []}, request_hash="0" * 64)
        session.add(experiment)
        session.flush()
        ids = []
        for one in wanted(key):
            if (result := one.found()) is None:
                continue
            summary = Summary()
            for step, values in _points(result):
                summary.take(step, values)
            config = resolve(one.asked["base"], one.asked["variant"], one.seed)
            run = Run(
                name=f"{one.variant}, seed {one.seed}",
                experiment_id=experiment.id,
                variant=one.variant,
                seed=one.seed,
                config=config.model_dump(mode="json"),
                config_hash=config_hash(config),
                steps=config.steps,
                last_step=max(result["steps"]),
                summary=summary.document(),
                status=result["status"],
                reason=result["reason"],
            )
            session.add(run)
            session.flush()
            write_points(session, run.id, 1, _points(result))
            ids.append(run.id)
    return ids


def _points(result: dict[str, Any]) -> Iterable[tuple[int, dict[str, float]]]:
    for place, step in enumerate(result["steps"]):
        values = {name: column[place] for name, column in result["series"].items()}
        yield step, {name: float(value) for name, value in values.items() if value is not None}


def _take(page: Any, service: Service, runs: list[str], file: Path) -> None:
    page.goto(f"{service.url}/compare?runs={','.join(runs)}")
    page.locator("[data-metric='reward/mean'] .js-plotly-plot .trace").first.wait_for(timeout=60_000)
    page.wait_for_timeout(4_000)
    page.screenshot(path=file)
    shrink(file)
    page.context.close()
