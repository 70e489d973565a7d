"""The Celery worker's main process, which does not import torch. Started by `grpolab worker`."""

from backend.service.process.gc_freeze import freeze_gc

with freeze_gc():
    from backend.base.settings import Settings
    from worker.host.tasks import make_worker

    app = make_worker(Settings())
