"""One run of the default sizes, with everything that is kept of it or with nothing: for the benchmark."""

import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from backend.config.merge import resolve
from backend.config.run import RunConfig
from backend.database import open_engine, open_sessions
from backend.migrate import upgrade
from backend.models import Run
from backend.runs import lifecycle
from backend.settings import Settings
from worker.checkpoints import Checkpoints
from worker.recorder import Recorder
from worker.recording import step_records
from worker.rollout.collector import Collector
from worker.trainer import Trainer

WARM_UP_STEPS = 5
"""Steps that are run but not counted."""


class Nothing:
    """Takes the place of recorder and checkpoints: keeps nothing."""

    wish = ""

    def restore(self, *_args: object) -> None:
        return None

    def begin(self, *_args: object) -> None: ...

    def record_step(self, _record: object) -> None: ...

    def save(self, *_args: object, **_kwargs: object) -> None: ...

    def flush(self) -> None: ...

    def event(self, *_args: object, **_kwargs: object) -> None: ...


class Clock:
    """Wall and processor time of the counted steps, and how long single calls take."""

    def __init__(self) -> None:
        self.steps = 0
        self.begun: dict[str, float] = {}
        self.calls: dict[str, list[float]] = {}

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call; its processor time is kept."""

        def timing(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            result = call(*args, **kwargs)
            self.calls.setdefault(name, []).append(time.thread_time() - started)
            return result

        return timing

    def follow(self, collector: Collector) -> None:
        """Count steps by what each begins with; the clock starts after the warm-up."""
        collect = collector.collect

        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.steps == WARM_UP_STEPS:
                self.begun = _now()
            self.steps += 1
            return collect(*args, **kwargs)

        collector.collect = counted  # type: ignore[method-assign]

    def report(self) -> dict[str, Any]:
        """What the parent process wants to know."""
        counted = self.steps - WARM_UP_STEPS
        seconds = {name: (end - self.begun[name]) / counted for name, end in _now().items()}
        in_thread = sum(map(sum, self.calls.values()))
        return seconds | {
            "calls": {name: median(taken) for name, taken in self.calls.items()},
            "own_share": in_thread / self.steps / seconds["process"],
            "share": (in_thread + _writer_seconds()) / self.steps / seconds["process"],
        }


def _writer_seconds() -> float:
    """Processor time of the recorder's thread so far; 0 without one."""
    writers = [thread for thread in threading.enumerate() if thread.name == "recorder"]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident or 0)) for each in writers)


def _now() -> dict[str, float]:
    """Clocks, in seconds: processor time of the training thread and of every thread, and the wall's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "thread": time.thread_time(),
        "process": used.ru_utime + used.ru_stime,
        "wall": time.perf_counter(),
    }


def main() -> None:
    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    config = resolve({"steps": job["steps"], "evaluation": {"every": 0}}, {}, 0)
    clock = Clock()
    with tempfile.TemporaryDirectory(dir=job["directory"]) as state:
        report = (_kept if job["is_kept"] else _bare)(config, Path(state), clock)
    print(json.dumps(report))


def _bare(config: RunConfig, state: Path, clock: Clock) -> dict[str, Any]:
    with patch("worker.trainer.step_records", return_value=()):
        _train(config, Nothing(), Nothing(), state, clock)
    return clock.report()


def _kept(config: RunConfig, state: Path, clock: Clock) -> dict[str, Any]:
    url = f"sqlite:///{state}/lab.db"
    upgrade(url)
    engine = open_engine(url)
    sessions = open_sessions(engine)
    with sessions.begin() as session:
        document = config.model_dump(mode="json")
        session.add(
            Run(
                name="r",
                variant="",
                seed=0,
                config=document,
                config_hash="",
                steps=config.steps,
                status="queued",
            )
        )
        session.flush()
        claim = lifecycle.claim_run(session, "worker", "host")
        if claim is None:
            raise LookupError("the run was queued a moment ago")
    recorder = Recorder(sessions, claim.run_id, claim.attempt, config=config)
    laying_out = clock.timed("records", step_records)
    with recorder, patch("worker.trainer.step_records", laying_out):
        recorder.record_step = clock.timed("hand over", recorder.record_step)  # type: ignore[method-assign]
        root = state / "runs" / claim.run_id
        checkpoints = Checkpoints(root, recorder, run_id=claim.run_id, attempt=claim.attempt, config=config)
        checkpoints.save = clock.timed("checkpoint", checkpoints.save)  # type: ignore[method-assign]
        _train(config, recorder, checkpoints, state, clock)
        report = clock.report()
    engine.dispose()
    return report


def _train(config: RunConfig, recorder: Any, checkpoints: Any, state: Path, clock: Clock) -> None:
    trainer = Trainer(
        config,
        recorder,
        settings=Settings(state_dir=state),
        checkpoints=checkpoints,
        device="cpu",
        stopping=threading.Event(),
    )
    clock.follow(trainer.collector)
    trainer.train()


if __name__ == "__main__":
    main()
