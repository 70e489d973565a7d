"""The Celery worker's own process: no torch here. Started by `python -m backend.cli worker`."""

import fcntl
import logging
from typing import IO, Any

from celery.signals import setup_logging, worker_init, worker_shutdown, worker_shutting_down

from backend.database import open_engine, open_sessions
from backend.devices import Slot, find_slots
from backend.lifeline import follow_launcher
from backend.queue import worker_queue
from backend.settings import Settings
from worker.station import Station
from worker.tasks import register_tasks

logger = logging.getLogger(__name__)

_locks: list[IO[str]] = []  # held until the process ends; the kernel releases them


def free_slots(settings: Settings) -> list[Slot]:
    """This machine's slots without the GPUs that another worker holds."""
    return [slot for slot in find_slots(settings) if not slot.gpu or _lock_gpu(settings, slot.gpu)]


def _lock_gpu(settings: Settings, uuid: str) -> bool:
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (settings.run_dir / f"gpu-{uuid}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.warning("GPU %s is held by another worker of this state directory", uuid)
        file.close()
        return False
    _locks.append(file)
    return True


settings = Settings()
app = worker_queue(settings)
station = Station(settings, open_sessions(open_engine(settings.effective_database_url)), free_slots(settings))
register_tasks(app, station)


@setup_logging.connect
def _log_lines(**_: Any) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")


@worker_init.connect
def _open(**_: Any) -> None:
    # Before the broker is reached, and without it if need be.
    follow_launcher()
    station.open()


@worker_shutting_down.connect
def _stop(**_: Any) -> None:
    station.stop()


@worker_shutdown.connect
def _close(**_: Any) -> None:
    station.close()
