"""The other trainers and trackers of the benchmarks, each in a separate environment such as `.venv-trl`.

python -m benchmarks.common.peers trl          installs TRL once and prints its interpreter
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BENCHMARKS_DIRECTORY = ROOT / "benchmarks"
REQUIREMENTS_BY_PEER = {
    "trl": BENCHMARKS_DIRECTORY / "step" / "requirements.txt",
    "manifests": ROOT / "tests" / "manifests" / "requirements.txt",
    "vllm": ROOT / "tests" / "vllm" / "requirements.txt",
    "openenv": ROOT / "tests" / "openenv" / "requirements.txt",
    "rlwatch": BENCHMARKS_DIRECTORY / "diagnosis" / "requirements.txt",
    **{
        peer: BENCHMARKS_DIRECTORY / "curves" / f"requirements-{peer}.txt"
        for peer in ("mlflow", "aim", "trackio", "tensorboard")
    },
}


def ensure_python(peer: str) -> Path:
    """Return the interpreter of a peer's environment, which is created when first needed."""
    environment = ROOT / f".venv-{peer}"
    python = environment / "bin" / "python"
    if not python.exists():
        print(f"installing {peer} into .venv-{peer} (once)", flush=True)
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-r", REQUIREMENTS_BY_PEER[peer]], check=True)
    return python


def read_commit(checkout: Path) -> str:
    """Return the abbreviated commit of a peer."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=8"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run(python: Path | str, script: Path, job: dict[str, Any], root: Path = ROOT) -> Any:
    """Return a script's answer to a job, both in JSON, from a process with job["threads"] threads.

    The script imports the modules of the checkout at `root`.
    """
    variables = {
        "OMP_NUM_THREADS": str(job["threads"]),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    output = subprocess.run(
        [python, script],
        input=json.dumps(job),
        env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=root,
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return json.loads(output.splitlines()[-1])


if __name__ == "__main__":
    print(ensure_python(sys.argv[1]))
