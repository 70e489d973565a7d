"""One run of the default sizes that is kept and not kept by turns: for the benchmark."""

import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.config.run import RunConfig
from backend.runs import lifecycle
from backend.storage.engine import open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Run
from benchmarks.common.nothing import Nothing
from worker.checkpoints.store import Checkpoints
from worker.recording.recorder import Recorder
from worker.training.step_records import step_records
from worker.training.trainer import Trainer

STILL = 1e-12
"""Learning rate: the work of a step stays what it was, and nothing is computed less."""


class Turns:
    """Blocks of steps, one to warm up and then in pairs: not kept and kept, kept and not kept, and so on.

    A block ends with its checkpoint, before which the writer has caught up; so each pays for all its steps.
    """

    def __init__(self, trainer: Trainer, block: int) -> None:
        self._trainer = trainer
        self._block = block
        self._kept = trainer.recorder, trainer.checkpoints
        self._steps = 0
        self._begun: dict[str, float] = {}
        self.is_kept = True
        self.calls: dict[str, list[float]] = {}
        self.blocks: list[dict[str, Any]] = []
        """Seconds of each block by clock, without the warm-up."""
        self._collect = trainer.collector.collect
        trainer.collector.collect = self._counted  # type: ignore[method-assign]

    def _counted(self, *args: Any, **kwargs: Any) -> Any:
        """The beginning of a step."""
        if self._steps % self._block == 0:
            self.turn()
        self._steps += 1
        return self._collect(*args, **kwargs)

    def turn(self) -> None:
        """End a block, and begin the next."""
        number = self._steps // self._block
        if number > 1:
            taken = {name: now - self._begun[name] for name, now in _now().items()}
            self.blocks.append({"is_kept": self.is_kept, **taken})
        self.is_kept = number == 0 or number % 4 in {2, 3}
        keeper: Any = Nothing()
        self._trainer.recorder, self._trainer.checkpoints = self._kept if self.is_kept else (keeper, keeper)
        self._begun = _now()

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, in blocks that are kept; its processor time is kept too."""

        def timing(*args: Any, **kwargs: Any) -> Any:
            if not self.is_kept:
                return ()
            started = time.thread_time()
            result = call(*args, **kwargs)
            self.calls.setdefault(name, []).append(time.thread_time() - started)
            return result

        return timing


def _now() -> dict[str, float]:
    """Clocks, in seconds: processor time of training thread, writer and every thread, and the wall's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    writers = [thread.ident or 0 for thread in threading.enumerate() if thread.name == "recorder"]
    return {
        "thread": time.thread_time(),
        "writer": sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in writers),
        "process": used.ru_utime + used.ru_stime,
        "wall": time.perf_counter(),
    }


@contextmanager
def _recorder(config: RunConfig, state: Path) -> Iterator[tuple[Recorder, Checkpoints]]:
    """Of a run that is claimed, in a database of its own."""
    url = f"sqlite:///{state}/lab.db"
    upgrade(url)
    engine = open_engine(url)
    sessions = open_sessions(engine)
    with sessions.begin() as session:
        document = config.model_dump(mode="json")
        about = {"name": "r", "variant": "", "seed": 0, "config_hash": "", "status": "queued"}
        session.add(Run(config=document, steps=config.steps, **about))
        session.flush()
        claim = lifecycle.claim_run(session, "worker", "host")
        if claim is None:
            raise LookupError("the run was queued a moment ago")
    with Recorder(sessions, claim.run_id, claim.attempt, config=config) as recorder:
        root = state / "runs" / claim.run_id
        yield (
            recorder,
            Checkpoints(root, recorder, run_id=claim.run_id, attempt=claim.attempt, config=config),
        )
    engine.dispose()


def main() -> None:
    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    block, pairs = job["block"], job["pairs"]
    changes = {"evaluation": {"every": 0}, "checkpointing": {"every": block}, "optimizer": {"lr": STILL}}
    config = resolve({"steps": block * (1 + 2 * pairs), **changes}, {}, 0)
    with (
        tempfile.TemporaryDirectory(dir=job["directory"]) as state,
        _recorder(config, Path(state)) as (recorder, checkpoints),
    ):
        trainer = Trainer(
            config,
            recorder,
            settings=Settings(state_dir=Path(state)),
            checkpoints=checkpoints,
            device="cpu",
            stopping=threading.Event(),
        )
        turns = Turns(trainer, block)
        recorder.record_step = turns.timed("hand over", recorder.record_step)  # type: ignore[method-assign]
        checkpoints.save = turns.timed("checkpoint", checkpoints.save)  # type: ignore[method-assign]
        with patch("worker.training.trainer.step_records", turns.timed("records", step_records)):
            trainer.train()
            turns.turn()
    print(json.dumps({"blocks": turns.blocks, "calls": turns.calls}))


if __name__ == "__main__":
    main()
