"""The end of `make up`, by the death of all its processes or on request, and the restart of the command.

reboot            every process is killed at once (row 18 of the plan)
up_asked          SIGTERM: running work is saved, and no step is lost (row 17)
up_asked_twice    a second SIGTERM immediately afterwards: no checkpoint is waited for"""

import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from sqlalchemy import func, select

from backend.storage.engine import Sessions, open_engine, open_read_session, open_sessions
from backend.storage.models import Attempt, Checkpoint, Run
from tests.factories import make_run
from tests.faults.audit import audit
from tests.faults.campaign import BASE_CONFIG, VARIANT_CONFIGS, Round
from tests.faults.plant import LEASE_SECONDS, Kind
from tests.faults.verdict import Witness, judge, read_record
from tests.system.lab import LauncherProgram
from tests.waiting import wait_for

RUN_CONFIG = BASE_CONFIG | VARIANT_CONFIGS[0] | {"seed": 5, "steps": 12}

MAX_END_SECONDS = 120.0
"""Maximum duration of an end: a trainer has 30 s, its worker 45 s, and the other processes less."""


def reboot(seed: int, *, times: int = 1, shutdowns: Sequence[str] = ("reboot",)) -> Round:
    """End one run this number of times, in each way in turn, and compare it with an uninterrupted run."""
    rng = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="gl-"))
    settings = {"LEASE_SECONDS": LEASE_SECONDS, "OMP_NUM_THREADS": 1, "WORKER_SLOTS": 1}
    start_time = time.monotonic()
    witness, seconds, sentences = Witness(), dict[str, list[float]](), list[str]()
    launcher = LauncherProgram(directory, **settings)
    try:
        launcher.wait_until_up()
        engine = open_engine(f"sqlite:///{directory / 'grpolab.db'}")
        sessions = open_sessions(engine)
        with sessions.begin() as session:
            run_ids = [make_run(session, config=RUN_CONFIG, seed=RUN_CONFIG["seed"]).id for _ in range(2)]

        def has_reached(run_id: str, step: int) -> bool:
            with open_read_session(sessions) as session:
                witness.observe(session, run_ids)
                run = session.get_one(Run, run_id)
            return run.last_step >= step or run.status not in ("queued", "running")

        wait_for(
            lambda: has_reached(run_ids[0], RUN_CONFIG["steps"]), "the uninterrupted run ends", seconds=600
        )
        ended_attempt = 0
        for shutdown in islice(cycle(shutdowns), times):
            step = rng.randrange(1, RUN_CONFIG["steps"])
            wait_for(lambda step=step: has_reached(run_ids[1], step), "a step to reboot at", seconds=600)  # type: ignore[misc]
            if shutdown == "reboot":
                launcher.kill_all()
            else:
                wait_for(lambda e=ended_attempt: _trains(sessions, run_ids[1], e), "it trains", seconds=600)  # type: ignore[misc]
                seconds.setdefault(shutdown, []).append(_ask(launcher, twice=shutdown == "up_asked_twice"))
                sentences += _unsaved(sessions, run_ids[1], shutdown)
            with open_read_session(sessions) as session:
                ended_attempt = session.get_one(Run, run_ids[1]).attempt
            launcher = LauncherProgram(directory, port=launcher.port, **settings).wait_until_up()
        wait_for(lambda: has_reached(run_ids[1], 10**9), "the interrupted run ends", seconds=600)
        findings = audit(sessions, directory)
        with open_read_session(sessions) as session:
            verdict = judge(session, witness, {run_ids[1]: read_record(session, run_ids[0])}, findings)
        engine.dispose()
    finally:
        launcher.kill_all()
        shutil.rmtree(directory, ignore_errors=True)
    verdict.sentences.extend(sentences)
    figures = {
        f"{shutdown}_seconds": [round(median(durations), 1), round(max(durations), 1)]
        for shutdown, durations in seconds.items()
    }
    faults = Counter(islice(cycle(shutdowns), times))
    kind = Kind("sqlite", "valkey", "own")
    return Round(kind, seed, faults, verdict, time.monotonic() - start_time, figures)


def _trains(sessions: Sessions, run_id: str, ended_attempt: int) -> bool:
    """Return True if an attempt after the ended one has trained a step, or no step is left to train."""
    with open_read_session(sessions) as session:
        run = session.get_one(Run, run_id)
        attempt = session.get(Attempt, (run_id, run.attempt))
    is_on = attempt is not None and run.attempt > ended_attempt and run.last_step > attempt.from_step
    return run.status == "finished" or is_on


def _ask(launcher: LauncherProgram, *, twice: bool) -> float:
    """Send SIGTERM to the command, and return the duration of its orderly end."""
    asked_at = time.monotonic()
    launcher.process.send_signal(signal.SIGTERM)
    if twice:
        time.sleep(0.3)
        launcher.process.send_signal(signal.SIGTERM)
    code = launcher.process.wait(MAX_END_SECONDS)
    assert code == 0, launcher.output_text()
    return time.monotonic() - asked_at


def _unsaved(sessions: Sessions, run_id: str, shutdown: str) -> list[str]:
    """Return what is wrong with a run that was asked to end.

    It must be queued again, and everything must be saved if it was asked only once."""
    with open_read_session(sessions) as session:
        run = session.get_one(Run, run_id)
        newest_query = select(func.max(Checkpoint.step)).where(Checkpoint.run_id == run_id)
        saved_step = session.scalar(newest_query) or 0
    if run.status not in ("queued", "finished"):
        return [f"after {shutdown} the run is {run.status}"]
    if shutdown == "up_asked" and saved_step != run.last_step:
        return [f"after {shutdown} the run is at step {run.last_step}, its newest checkpoint at {saved_step}"]
    return []
