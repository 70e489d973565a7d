"""Kill the service with -9 during all kinds of requests of its clients (row 4 of the plan)."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
from sqlalchemy import update

from backend.runs import lifecycle
from backend.storage.models import Run
from tests.factories import make_checkpoint, make_run, write_metric
from tests.faults.audit import audit
from tests.faults.callers import Caller, Follower, Maker, Reader, Target, Uploader
from tests.faults.campaign import Round
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.processes import ROOT
from tests.faults.verdict import Verdict
from tests.faults.warm_service import LOG_VARIABLE
from tests.ports import free_port
from tests.system.lab import TOKEN, Client
from tests.waiting import wait_for

STEP_COUNT = 300
CHECKPOINT_CONTENT = bytes(range(256)) * 8192
"""Content of the downloaded checkpoint, 2 MB."""

LIFE_SECONDS = (0.05, 0.8)
"""Range of the time between the start of the clients and the death of the service."""


class Service:
    """An API process on an installation's database, which always has the same address."""

    def __init__(self, installation: FaultyInstallation, parent: "subprocess.Popen[str]") -> None:
        self._parent = parent
        self.port = free_port()
        self.client = Client(self.port)
        self.datasets = installation.directory / "datasets"
        self._environment = {
            "STATE_DIR": str(installation.settings.state),
            "DATABASE_URL": installation.settings.database_url,
            "BROKER_URL": installation.settings.broker_url,
            "DATASETS_DIR": str(self.datasets),
            "PORT": str(self.port),
            "GRPOLAB_TOKEN": TOKEN,
            "WRITES_PER_SECOND": "0",
            LOG_VARIABLE: str(installation.directory / "service.log"),
        }
        self.start()

    def start(self) -> None:
        """Start the service and wait until it answers."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(self._environment) + "\n")
        self._process = psutil.Process(int(self._parent.stdout.readline()))
        wait_for(self.client.is_alive, "the service answers")

    def kill(self) -> None:
        """Kill the service with -9."""
        self._process.kill()
        self._process.wait()


@contextmanager
def running_service(installation: FaultyInstallation) -> Iterator[Service]:
    """Yield a service that is forked at each start (see warm_service.py)."""
    argv = [sys.executable, "-m", "tests.faults.warm_service"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as parent:
        service = Service(installation, parent)
        try:
            yield service
        finally:
            service.kill()
            assert parent.stdin is not None
            parent.stdin.close()


def kill_service(database: str, seed: int, *, times: int) -> Round:
    """Kill the service this number of times under five clients, which then repeat interrupted requests."""
    rng = random.Random(seed)
    kind = Kind(database, trainers="none")
    with FaultyInstallation(kind, workers=0) as installation, running_service(installation) as service:
        target = _target(installation, service)
        callers = [Maker(target), Maker(target, experiments=False), Uploader(target), Reader(target)]
        for caller in callers:
            caller.send_request()
        all_callers: list[Caller] = [*callers, Follower(target)]
        start_time = time.monotonic()
        for _ in range(times):
            _storm(service, all_callers, rng.uniform(*LIFE_SECONDS))
            for caller in all_callers:
                caller.make_good()
        for caller in all_callers:
            caller.check()
        seconds = time.monotonic() - start_time
        sentences = [sentence for caller in all_callers for sentence in caller.failures]
        verdict = Verdict(sentences=sentences + audit(installation.sessions, installation.settings.state))
    figures = {
        "cut": sum(caller.cut_count for caller in all_callers),
        "answered": {caller.name: caller.success_count for caller in all_callers},
        "cut_by": {caller.name: caller.cut_count for caller in all_callers},
        "kept": {caller.name: caller.survived for caller in all_callers if caller.survived},
    }
    return Round(kind, seed, Counter({"service_killed": times}), verdict, seconds, figures)


def _storm(service: Service, callers: Sequence[Caller], seconds: float) -> None:
    """Let the clients work, kill the service, wait until all have noticed, and start it again."""
    with ThreadPoolExecutor(len(callers)) as threads:
        working = [threads.submit(caller.run_until_gone) for caller in callers]
        time.sleep(seconds)
        service.kill()
    for future in working:
        future.result()
    service.start()


def _target(installation: FaultyInstallation, service: Service) -> Target:
    """Return a finished run with a curve and a checkpoint."""
    with installation.sessions.begin() as session:
        run = make_run(session, config={"steps": STEP_COUNT})
        lifecycle.claim_run(session, "w", "h")
        lifecycle.begin_attempt(session, run.id, 1, -1)
        for name in ("reward/mean", "loss/total", "tokens/total"):
            write_metric(session, run, name, {step: step / 7 for step in range(1, STEP_COUNT + 1)})
        step = STEP_COUNT // 2
        checkpoint = make_checkpoint(
            session, run, installation.settings.state, step=step, content=CHECKPOINT_CONTENT
        )
        session.execute(update(Run).where(Run.id == run.id).values(last_step=STEP_COUNT))
        lifecycle.finish_run(session, run.id, 1, "finished")
    file = f"{checkpoint.path}/model.safetensors"
    return Target(
        service.client.base, installation.sessions, service.datasets, run.id, step, file, CHECKPOINT_CONTENT
    )
