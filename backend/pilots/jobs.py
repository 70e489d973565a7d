"""Jobs that run a pilot worker, in the languages of Slurm, Kubernetes and SkyPilot. Pure."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NAME = "grpolab-pilot"
"""Name of every job, by which pilots are counted."""

GRACE_SECONDS = 120
"""How long before its end a job is told to save; a checkpoint of a large model takes a while."""


def worker_command(python: str, *, runs: int, idle_seconds: int, devices: int) -> list[str]:
    """The command of a pilot."""
    limits = ["--runs", str(runs), "--idle", str(idle_seconds), "--devices", str(devices)]
    return [python, "-m", "backend.cli", "worker", *limits]


def slurm_script(command: Sequence[str], directory: Path, options: Sequence[str], output: str) -> str:
    """A batch script for `sbatch`: the worker takes the shell's place, so that signals reach it.

    Slurm sends SIGTERM some time before the job's limit, and on `scancel`; the worker then saves its runs and
    gives them back.
    """
    lines = [
        "#!/bin/sh",
        f"#SBATCH --job-name={NAME}",
        f"#SBATCH --signal=B:TERM@{GRACE_SECONDS}",
        "#SBATCH --open-mode=append",
        f"#SBATCH --output={shlex.quote(output)}",  # a # would begin a comment
        *(f"#SBATCH {option}" for option in options),
        f"cd {shlex.quote(str(directory))} || exit 1",
        f"exec {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"


def kubernetes_job(
    command: Sequence[str], *, image: str, gpus: int, queue: str, secret: str, state_claim: str
) -> dict[str, Any]:
    """A Job of batch/v1, which Kueue admits where a queue is named.

    The service's settings (DATABASE_URL, BROKER_URL) come from a Secret, its state from a shared volume.
    """
    labels = {"app": NAME} | ({"kueue.x-k8s.io/queue-name": queue} if queue else {})
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    container = {
        "name": "worker",
        "image": image,
        "command": list(command),
        "envFrom": [{"secretRef": {"name": secret}}],
        "env": [{"name": "STATE_DIR", "value": "/state"}],
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
        "resources": resources,
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [container],
        "volumes": [{"name": "state", "persistentVolumeClaim": {"claimName": state_claim}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"{NAME}-", "labels": labels},
        "spec": {
            "suspend": bool(queue),
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"labels": {"app": NAME}}, "spec": pod},
        },
    }


def skypilot_task(
    command: Sequence[str], *, accelerators: str, directory: str, environment: Mapping[str, str]
) -> str:
    """A task for `sky jobs launch`, as YAML (JSON is YAML); SkyPilot asks for no value of a secret twice."""
    task = {
        "name": NAME,
        "workdir": directory,
        "resources": {"accelerators": accelerators} if accelerators else {},
        "secrets": dict.fromkeys(environment),
        "setup": "make .venv/runtime.stamp",
        "run": shlex.join(command),
    }
    return json.dumps(task, indent=2) + "\n"


def this_python() -> str:
    """The interpreter of this installation, which a shared file system shows to every node."""
    return sys.executable
