"""The Celery worker's own process: no torch here. Started by `python -m backend.cli worker`."""

from backend.process.gc_freeze import gc_frozen

with gc_frozen():
    from backend.settings import Settings
    from worker.host.tasks import make_worker

    app = make_worker(Settings())
