"""Runs modules that import torch from commands that do not, in the trainer's environment."""

import os
import subprocess
import sys
from collections.abc import Sequence

from backend.base.errors import Conflict
from backend.base.settings import Settings


def run_trainer_module(settings: Settings, module: str, arguments: Sequence[str], *, secret: str = "") -> str:
    """Run a module in the trainer's environment and return its output; raises Conflict with the last line if
    it fails.

    `secret` is written to its standard input.
    """
    environment = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    environment |= {"HF_HUB_OFFLINE": "0" if settings.hf_online else "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        input=secret,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"{module} ended with exit code {done.returncode}"])[-1]
        if "No module named 'torch'" in last or "No module named 'huggingface_hub'" in last:
            last = "the packages of the trainer are not installed here: run this where the workers are"
        raise Conflict((last.replace(secret, "[token]") if secret else last)[:500])
    return done.stdout.strip()
