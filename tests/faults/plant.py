"""An installation under fault, with a separate database, broker and workers, and ways to disturb them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
import redis
from sqlalchemy import select, text

from backend.base.settings import Settings
from backend.runs.queue.broker import choose_broker, is_ready, prepare_broker
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.engine import Sessions, open_engine, open_read_session, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Attempt, Run, Worker
from tests import servers
from tests.api_client import close_connections
from tests.factories import make_run
from tests.faults import failpoints, worker_app
from tests.faults.processes import ROOT, is_alive
from tests.waiting import TookTooLong, wait_for

STUB_PATH = Path(__file__).parent / "stub.py"

LEASE_SECONDS = 2.0
POLL_SECONDS = 0.5


class Kind(NamedTuple):
    """The kinds of database, broker and trainers of an installation."""

    database: str = "sqlite"
    """"sqlite" or "postgres"."""
    broker: str = "valkey"
    """"valkey" or "filesystem"."""
    trainers: str = "forked"
    """"own" if each trainer imports its modules, or "forked" if a parent has imported them (see warm.py)."""


class Trainer(NamedTuple):
    """A running trainer."""

    run_id: str
    attempt: int
    pid: int
    """Id of the process that trains."""
    worker_pid: int
    began_at: int
    """Step that the attempt continued from."""
    step: int


@dataclass
class FaultyInstallation:
    """A context with an installation except for the service, whose reconciler runs in this process."""

    kind: Kind
    warm: Path | None = None
    """Socket of the parent of forked trainers."""
    workers: int = 2
    slots: int = 2
    poll_seconds: float = POLL_SECONDS
    lease_seconds: float = LEASE_SECONDS
    failpoint: Sequence[str] = ()
    """Arguments of `failpoints.arm` for the workers."""
    trainer_failpoint: Sequence[str] = ()
    """Arguments of `failpoints.arm` for forked trainers."""
    trainer: Sequence[str] = ()
    """Command of another trainer."""
    reconciles: bool = True
    """Whether the plant runs the reconciler; otherwise a service of the test does."""
    artifacts_url: str = ""
    """Store to which checkpoints are copied, or empty for none."""
    crew: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)
    """Checkpoints that were damaged on purpose, as `<run id>/<name>`.

    A damaged checkpoint that is no longer the newest is never read again and stays, so that later rounds
    must not report it as a violation."""

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="gl-"))
        self.directory.chmod(0o711)  # Postgres may run as nobody
        self.postgres: servers.Server | None = None
        if self.kind.database == "postgres":
            self.postgres = servers.start_postgres(self.directory / "pg", durable=True)
        self.settings = Settings(
            state_dir=self.directory / "state",
            database_url=self.postgres.url if self.postgres else "",
            broker_url="filesystem://" if self.kind.broker == "filesystem" else "",
            lease_seconds=self.lease_seconds,
            poll_seconds=self.poll_seconds,
            worker_slots=self.slots,
            artifacts_url=self.artifacts_url,
        )
        self.settings.state.mkdir(mode=0o700)
        upgrade(self.settings.effective_database_url)
        self.engine = open_engine(self.settings.effective_database_url)
        self.sessions: Sessions = open_sessions(self.engine)
        self.broker: subprocess.Popen[bytes] | None = None
        self.start_broker()
        self.reconciler = Reconciler(self.settings, self.sessions)
        if self.reconciles:
            self.reconciler.start()
        for _ in range(self.workers):
            self.start_worker()
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if self.reconciles:
            self.reconciler.stop()
        if error_type is not None:
            self._note_where_workers_are()
        for process in [*self.crew, self.broker]:
            if process is not None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        close_connections(self.engine.pool)
        if self.postgres is not None:
            servers.shut_down(self.postgres.pid)
        if error_type is None:
            shutil.rmtree(self.directory)

    def _note_where_workers_are(self) -> None:
        """Write every thread's stack to the workers' logs, to help with a failure."""
        for process in self.alive():
            process.send_signal(signal.SIGUSR2)
        time.sleep(1.0)

    def start_broker(self) -> None:
        """Start a Valkey, or nothing for a broker of files."""
        broker = choose_broker(self.settings)
        prepare_broker(broker, self.settings)
        if broker.socket is not None:
            socket = broker.socket
            self.broker = subprocess.Popen(broker.command, stdout=subprocess.DEVNULL)
            wait_for(lambda: is_ready(socket), "the broker is ready")

    def start_worker(
        self, failpoint: Sequence[str] | None = None, **environment: str
    ) -> "subprocess.Popen[bytes]":
        """Start a worker process like `grpolab worker`."""
        environment = {
            **self.environment,
            **environment,
            failpoints.VARIABLE: json.dumps(list(self.failpoint if failpoint is None else failpoint)),
            worker_app.VARIABLE: json.dumps(self._trainer_command()),
        }
        app = "tests.faults.worker_app" if self.warm or self.failpoint or self.trainer else "worker.host.app"
        argv = [sys.executable, "-m", "celery", "--app", app, "--quiet", "worker", "--pool", "threads"]
        argv += ["--concurrency", str(self.slots), "--queues", "gpu"]
        argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        with (self.directory / f"worker{len(self.crew)}.log").open("wb") as log:
            process = subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=log, stderr=log)
        self.crew.append(process)
        return process

    @property
    def environment(self) -> dict[str, str]:
        """Environment of every process of this installation."""
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "STATE_DIR": str(self.settings.state),
            "ARTIFACTS_URL": self.artifacts_url,
            "DATABASE_URL": self.settings.database_url,
            "BROKER_URL": self.settings.broker_url,
            "LEASE_SECONDS": str(self.settings.lease_seconds),
            "POLL_SECONDS": str(self.settings.poll_seconds),
            "WORKER_SLOTS": str(self.slots),
        }

    def _trainer_command(self) -> list[str] | None:
        if self.trainer:
            return list(self.trainer)
        if self.warm is None:
            return None
        return [sys.executable, "-I", "-S", str(STUB_PATH), str(self.warm), *self.trainer_failpoint]

    def alive(self) -> "list[subprocess.Popen[bytes]]":
        """Return the running workers."""
        return [process for process in self.crew if process.poll() is None]

    def wait_for_workers(self) -> None:
        """Wait until every running worker has registered its slots."""
        for process in self.alive():
            wait_for(lambda pid=process.pid: self._is_registered(pid), "a worker registers")  # type: ignore[misc]

    def _is_registered(self, pid: int) -> bool:
        with open_read_session(self.sessions) as session:
            return session.scalar(select(Worker.id).where(Worker.pid == pid).limit(1)) is not None

    def queue(self, configs: Sequence[dict[str, Any]]) -> list[str]:
        """Queue new runs and return their ids."""
        with self.sessions.begin() as session:
            return [make_run(session, config=config, seed=config.get("seed", 0)).id for config in configs]

    def read(self, run_id: str) -> Run:
        """Return the current state of a run."""
        with open_read_session(self.sessions) as session:
            return session.get_one(Run, run_id)

    def unended(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that are queued or train."""
        query = select(Run.id).where(Run.id.in_(run_ids), Run.status.in_(("queued", "running")))
        with open_read_session(self.sessions) as session:
            return list(session.scalars(query))

    def wait_until_ended(self, run_ids: Sequence[str], *, seconds: float = 300.0) -> None:
        """Wait until none of the runs is queued or trains, and fail if nothing changes for too long."""
        standing: object = None
        deadline = 0.0
        while self.unended(run_ids):
            if (new_standing := self._standing(run_ids)) != standing:
                standing, deadline = new_standing, time.monotonic() + seconds
            if time.monotonic() > deadline:
                raise TookTooLong(f"nothing moved for {seconds:.0f} s; {self.describe(run_ids)}")
            time.sleep(0.1)

    def _standing(self, run_ids: Sequence[str]) -> list[tuple[Any, ...]]:
        columns = (Run.id, Run.status, Run.attempt, Run.last_step, Run.worker_id, Run.reason)
        with open_read_session(self.sessions) as session:
            rows = session.execute(select(*columns).where(Run.id.in_(run_ids)).order_by(Run.id)).all()
        return [tuple(row) for row in rows]

    def describe(self, run_ids: Sequence[str]) -> str:
        """Keep the directory and describe the state of everything, to help with a failure."""
        codes = [process.poll() for process in self.crew]
        return f"workers ended with {codes}; runs {self._standing(run_ids)}; see {self.directory}"

    def trainers(self) -> list[Trainer]:
        """Return the trainers whose processes are known and alive."""
        query = (
            select(
                Run.id.label("run_id"),
                Run.attempt,
                Attempt.pid,
                Worker.pid.label("worker_pid"),
                Attempt.from_step.label("began_at"),
                Run.last_step.label("step"),
            )
            .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
            .join(Worker, Worker.id == Run.worker_id)
            .where(Run.status == "running", Attempt.pid.is_not(None))
        )
        with open_read_session(self.sessions) as session:
            rows = session.execute(query).mappings().all()
        recorded_trainers = [Trainer(**row)._replace(pid=self._find_process(row["pid"])) for row in rows]
        return [trainer for trainer in recorded_trainers if trainer.pid and is_alive(trainer.pid)]

    def _find_process(self, pid: int) -> int:
        """Return the training process for the `pid` that its supervisor knows, or 0 if it has not started."""
        if self.warm is None:
            return pid
        note = self.warm.with_suffix(".pids") / str(pid)
        return int(note.read_text() or 0) if note.exists() else 0

    def crash_postgres(self, *, away_seconds: float = 0.0) -> None:
        """Crash Postgres with `pg_ctl restart -m immediate`."""
        assert self.postgres is not None
        servers.crash_postgres(self.postgres)
        time.sleep(away_seconds)
        self.postgres = servers.serve_postgres(self.directory / "pg", durable=True)

    def postgres_processes(self) -> list[int]:
        """Return the server process and all its children."""
        assert self.postgres is not None
        server = psutil.Process(self.postgres.pid)
        return [server.pid, *(child.pid for child in server.children(recursive=True))]

    def end_backends(self) -> None:
        """Terminate every connection to the database."""
        with self.engine.connect() as connection:
            end_others = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            )
            connection.execute(text(f"{end_others} AND backend_type = 'client backend'"))

    def kill_broker(self, *, away_seconds: float = 0.0) -> None:
        """Kill the broker with -9 and start a new one."""
        assert self.broker is not None
        self.broker.kill()
        self.broker.wait()
        time.sleep(away_seconds)
        self.start_broker()

    def flush_broker(self) -> None:
        """Delete all data of the broker with FLUSHALL."""
        with redis.Redis(unix_socket_path=str(choose_broker(self.settings).socket)) as client:
            client.flushall()
