"""The Celery worker's main process, which does not import torch. Started by `grpolab worker`."""

from backend.service.process.gc_freeze import gc_frozen

with gc_frozen():
    from backend.base.settings import Settings
    from worker.host.tasks import make_worker

    app = make_worker(Settings())
