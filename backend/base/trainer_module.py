"""Run modules that import torch in a child process, for commands that do not import it themselves."""

import os
import subprocess
import sys
from collections.abc import Sequence

from backend.base.errors import Conflict
from backend.base.settings import Settings


def run_trainer_module(settings: Settings, module: str, arguments: Sequence[str], *, secret: str = "") -> str:
    """Run a module in the trainer's environment and return its standard output.

    `secret` is written to its standard input. Raises Conflict with the last line of its standard error if the
    module fails.
    """
    environment = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    environment |= {"HF_HUB_OFFLINE": "0" if settings.hf_online else "1", "TRANSFORMERS_VERBOSITY": "error"}
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        input=secret,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        message = (
            result.stderr.strip().splitlines() or [f"{module} ended with exit code {result.returncode}"]
        )[-1]
        if "No module named 'torch'" in message or "No module named 'huggingface_hub'" in message:
            message = "the packages of the trainer are not installed here: run this where the workers are"
        raise Conflict((message.replace(secret, "[token]") if secret else message)[:500])
    return result.stdout.strip()
