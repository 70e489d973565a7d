"""The Celery worker's process: its slots, its one task, and the signals that open and close them."""

import fcntl
import logging
import warnings
from pathlib import Path
from typing import IO, Any

from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_init, worker_shutdown, worker_shutting_down

from backend.database import open_engine, open_sessions
from backend.devices import Slot, find_slots
from backend.lifeline import follow_launcher
from backend.logs import set_up_logging
from backend.queue import TASK, worker_queue
from backend.settings import Settings
from worker.process import TRAINER
from worker.station import Station

logger = logging.getLogger(__name__)

_locks: list[IO[str]] = []  # held until the process ends; the kernel releases them


def make_worker(settings: Settings, *, argv: tuple[str, ...] = TRAINER) -> Celery:
    """The Celery app of a worker whose trainers are started by `argv`."""
    # Celery warns root because of pickle; this queue takes JSON only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app = worker_queue(settings)
    sessions = open_sessions(open_engine(settings.effective_database_url))
    station = Station(settings, sessions, free_slots(settings), argv=argv)

    @app.task(name=TASK)
    def train() -> None:
        """Somebody rang, so look into SQL."""
        station.serve()

    def open_station(**_: Any) -> None:
        # Before the broker is reached, and without it if need be.
        follow_launcher()
        station.open()

    setup_logging.connect(lambda **_: set_up_logging(settings), weak=False)
    worker_init.connect(open_station, weak=False)
    worker_shutting_down.connect(lambda **_: station.stop(), weak=False)
    worker_shutdown.connect(lambda **_: station.close(), weak=False)
    return app


def free_slots(settings: Settings) -> list[Slot]:
    """This machine's slots without the GPUs that another worker holds."""
    return [slot for slot in find_slots(settings) if not slot.gpu or _lock_gpu(settings.run_dir, slot.gpu)]


def _lock_gpu(directory: Path, uuid: str) -> bool:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (directory / f"gpu-{uuid}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.warning("GPU %s is held by another worker of this state directory", uuid)
        file.close()
        return False
    _locks.append(file)
    return True
