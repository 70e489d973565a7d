"""The cost of forcing each SQLite commit to the disk: launches and recorded steps, with and without.

    python -m benchmarks.durability

Both sides take turns on one database. Writes results.md beside this file; `make docs` brings it into docs/.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from sqlalchemy import event, select

from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.experiments.launch import launch
from backend.experiments.schemas import ExperimentRequest
from backend.http.dependencies import Lab
from backend.runs import lifecycle
from backend.service.doctor.storage import sync_seconds
from backend.storage.engine import open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Run
from benchmarks.common.recorded_step import COMPLETIONS, PROMPTS, recorded_step
from benchmarks.common.service import machine
from worker.recording.recorder import Recorder

HERE = Path(__file__).parent
LEVELS = ("NORMAL", "FULL")
REQUEST = ExperimentRequest(name="e", base={}, variants=[{"name": "GRPO", "preset": "grpo"}], seeds=[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of commits that reach the disk")
    parser.add_argument("--times", type=int, default=100, help="launches and steps on each side")
    parser.add_argument("--directory", default=None, help="on the disk to be measured (default: temporary)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="grpolab-durability-", dir=arguments.directory) as directory:
        text = table(measure(Path(directory), arguments.times), sync_seconds(Path(directory)))
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def measure(directory: Path, times: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each launch and each stored step, by level."""
    settings = Settings(state_dir=directory)
    upgrade(settings.effective_database_url)
    labs = {level: _lab(settings, level) for level in LEVELS}
    launches = {level: _launcher(lab) for level, lab in labs.items()}
    recorders = {level: _recorder(lab) for level, lab in labs.items()}
    found: dict[str, dict[str, list[float]]] = {"launch": {}, "step": {}}
    for number in range(times):
        for level in LEVELS if number % 2 else LEVELS[::-1]:
            found["launch"].setdefault(level, []).append(_seconds(launches[level]))
            found["step"].setdefault(level, []).append(_seconds(recorders[level]))
    return found


def _lab(settings: Settings, level: str) -> Lab:
    engine = open_engine(settings.effective_database_url)

    @event.listens_for(engine, "connect")
    def choose(dbapi: Any, _record: Any) -> None:
        dbapi.execute(f"PRAGMA synchronous={level}")

    return Lab(settings, engine, open_sessions(engine))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _launcher(lab: Lab) -> Callable[[], object]:
    return lambda: launch(lab, REQUEST, key=os.urandom(8).hex())


def _recorder(lab: Lab) -> Callable[[], object]:
    """Stores one step, as it is stored when a checkpoint waits for it."""
    launch(lab, REQUEST, key="")
    with lab.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "w", "h")
        if claim is None:
            raise SystemExit("somebody else has taken the run")
        config = RunConfig.model_validate(
            session.scalars(select(Run.config).where(Run.id == claim.run_id)).one()
        )
    recorder = Recorder(lab.sessions, claim.run_id, claim.attempt, config=config)
    recorder.__enter__()
    numbers = count(1)

    def store() -> None:
        recorder.record_step(recorded_step(next(numbers)))
        recorder.flush()

    return store


def table(found: dict[str, dict[str, list[float]]], sync: float) -> str:
    """The figures in Markdown."""
    facts = machine()
    times = len(found["launch"]["FULL"])
    titles = {
        "launch": "launching an experiment of one run",
        "step": f"storing a step of {PROMPTS} x {COMPLETIONS} completions at once",
    }
    setting = (
        f"SQLite on a disk that confirms a write after {sync * 1000:.1f} ms, {facts['cores']} cores, Python "
        f"{facts['python']}; {times} times each by turns; median and 95th percentile."
    )
    lines = [
        setting,
        "",
        "| what | NORMAL: log forced now and then | FULL: at each commit | within a pair, median |",
        "|---|---|---|---|",
    ]
    for what, title in titles.items():
        cells = [
            f"{median(one) * 1000:.1f} / {quantiles(one, n=20)[-1] * 1000:.1f} ms"
            for one in (found[what]["NORMAL"], found[what]["FULL"])
        ]
        pairs = zip(found[what]["NORMAL"], found[what]["FULL"], strict=True)
        more = median(full - normal for normal, full in pairs)
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {more * 1000:+.1f} ms |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
