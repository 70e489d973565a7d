"""The Celery worker's own process: no torch here. Started by `python -m backend.cli worker`."""

from backend.collector import spared

with spared():
    from backend.settings import Settings
    from worker.tasks import make_worker

    app = make_worker(Settings())
