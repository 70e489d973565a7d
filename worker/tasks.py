"""The one Celery task: somebody rang, so look into SQL."""

from celery import Celery

from backend.queue import TASK
from worker.station import Station


def register_tasks(app: Celery, station: Station) -> None:
    """Let the doorbell open this worker's station."""

    @app.task(name=TASK)
    def train() -> None:
        station.serve()
