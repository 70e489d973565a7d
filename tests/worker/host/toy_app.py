"""A Celery worker with toy trainers, for `celery --app tests.worker.host.toy_app worker`."""

import os
import sys
from pathlib import Path

from backend.base.settings import Settings
from worker.host.tasks import make_worker

TOY_TRAINER_PATH = Path(__file__).parent / "toy_trainer.py"

app = make_worker(Settings(), argv=(sys.executable, str(TOY_TRAINER_PATH), os.environ["TOY"]))
