"""The worker's Celery app for the fault tests, whose trainers may be forked and which may die at a point.

It is started as `celery --app tests.faults.worker_app worker`. Without the two variables, it equals
`worker.host.app`."""

import faulthandler
import json
import os
import signal

from backend.base.settings import Settings
from tests.faults.failpoints import arm_worker
from worker.host.tasks import make_worker
from worker.host.trainer_process import TRAINER

VARIABLE = "FAULTS_TRAINER"
"""Environment variable with the command that starts a trainer, as JSON."""

faulthandler.register(signal.SIGUSR2, all_threads=True)
arm_worker()
app = make_worker(Settings(), argv=tuple(json.loads(os.environ.get(VARIABLE, "null")) or TRAINER))
