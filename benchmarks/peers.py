"""TRL in an environment of its own, `.venv-trl`, which is made when it is first needed."""

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-trl"
REQUIREMENTS = Path(__file__).parent / "step" / "requirements.txt"


def python_of_trl() -> Path:
    """The interpreter that can import TRL."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print("installing TRL into .venv-trl (once)", flush=True)
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-r", REQUIREMENTS], check=True)
    return python


def run(python: Path | str, script: Path, job: dict[str, Any]) -> Any:
    """What a script answers to a job, both JSON, in a process of its own; job["threads"] of them."""
    variables = {
        "OMP_NUM_THREADS": str(job["threads"]),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    output = subprocess.run(
        [python, script],
        input=json.dumps(job),
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return json.loads(output.splitlines()[-1])
