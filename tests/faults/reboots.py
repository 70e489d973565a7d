"""`make up`, every process of which is killed at once; the same command goes on (row 18 of the plan)."""

import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from backend.database import open_engine, open_sessions, reading
from backend.models import Run
from tests.factories import make_run
from tests.faults.audit import audit
from tests.faults.campaign import BASE, VARIANTS, Round
from tests.faults.plant import LEASE_SECONDS, Kind, wait_for
from tests.faults.verdict import Witness, judge, record_of
from tests.system.lab import Lab

CONFIG = BASE | VARIANTS[0] | {"seed": 5, "steps": 12}


def reboot(seed: int, *, times: int = 1) -> Round:
    """One run through so many reboots beside one that nothing interrupts."""
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="gl-"))
    settings = {"LEASE_SECONDS": LEASE_SECONDS, "OMP_NUM_THREADS": 1, "WORKER_SLOTS": 1}
    started = time.monotonic()
    witness = Witness()
    lab = Lab(directory, **settings)
    try:
        lab.wait_until_up()
        engine = open_engine(f"sqlite:///{directory / 'grpolab.db'}")
        sessions = open_sessions(engine)
        with sessions.begin() as session:
            run_ids = [make_run(session, config=CONFIG, seed=CONFIG["seed"]).id for _ in range(2)]

        def has_reached(run_id: str, step: int) -> bool:
            with reading(sessions) as session:
                witness.look(session, run_ids)
                run = session.get_one(Run, run_id)
            return run.last_step >= step or run.status not in ("queued", "running")

        wait_for(lambda: has_reached(run_ids[0], CONFIG["steps"]), "the uninterrupted run ends", seconds=600)
        for _ in range(times):
            step = chance.randrange(1, CONFIG["steps"])
            wait_for(lambda step=step: has_reached(run_ids[1], step), "a step to reboot at", seconds=600)  # type: ignore[misc]
            lab.kill_all()
            lab = Lab(directory, port=lab.port, **settings).wait_until_up()
        wait_for(lambda: has_reached(run_ids[1], 10**9), "the interrupted run ends", seconds=600)
        found = audit(sessions, directory)
        with reading(sessions) as session:
            verdict = judge(session, witness, {run_ids[1]: record_of(session, run_ids[0])}, found)
        engine.dispose()
    finally:
        lab.kill_all()
        shutil.rmtree(directory, ignore_errors=True)
    faults = Counter({"reboot": times})
    return Round(Kind("sqlite", "valkey", "own"), seed, faults, verdict, time.monotonic() - started)
