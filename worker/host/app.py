"""The Celery worker's own process: no torch here. Started by `grpolab worker`."""

from backend.service.process.gc_freeze import gc_frozen

with gc_frozen():
    from backend.base.settings import Settings
    from worker.host.tasks import make_worker

    app = make_worker(Settings())
