"""The Celery worker's process: its slots, its only task, and the signals that open and close the slots."""

import warnings
from typing import Any

from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_init, worker_shutdown, worker_shutting_down

from backend.base.logs import set_up_logging
from backend.base.settings import Settings
from backend.runs.queue.doorbell import TASK_NAME, worker_queue
from backend.runs.workers.devices import Slot, find_slots
from backend.service.process.lifeline import follow_launcher
from backend.storage.engine import open_engine, open_sessions
from worker.host.gpu_lock import lock_gpu
from worker.host.slots import SlotPool
from worker.host.trainer_process import TRAINER


def make_worker(settings: Settings, *, argv: tuple[str, ...] = TRAINER) -> Celery:
    """Create the Celery app of a worker whose trainers are started by `argv`."""
    # Celery warns root because of pickle; this queue accepts only JSON.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app = worker_queue(settings)
    sessions = open_sessions(open_engine(settings.effective_database_url))
    pool = SlotPool(settings, sessions, free_slots(settings), argv=argv)

    @app.task(name=TASK_NAME)
    def train() -> None:
        """Claim runs after a message of the broker."""
        pool.serve()

    def open_pool(**_: Any) -> None:
        # The pool opens before the broker is reached, so that it also works without one.
        follow_launcher()
        pool.open()

    setup_logging.connect(lambda **_: set_up_logging(settings), weak=False)
    worker_init.connect(open_pool, weak=False)
    worker_shutting_down.connect(lambda **_: pool.stop(), weak=False)
    worker_shutdown.connect(lambda **_: pool.close(), weak=False)
    return app


def free_slots(settings: Settings) -> list[Slot]:
    """Return this machine's slots, except those whose GPU another worker holds."""
    return [slot for slot in find_slots(settings) if not slot.gpu or lock_gpu(slot.gpu)]
