"""Create the jobs that run pilot workers on Slurm, Kubernetes and SkyPilot. All functions are pure."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.base.errors import Conflict
from backend.base.wording import has_control

JOB_NAME = "grpolab-pilot"
"""Name of every job, by which pilots are counted."""

GRACE_SECONDS = 120
"""Seconds before its end at which a job is asked to save; the checkpoint of a large model takes time."""


def worker_command(python: str, *, runs: int, idle_seconds: int, devices: int, nodes: int = 1) -> list[str]:
    """Return the command that starts a pilot on each of its nodes."""
    limits = ["--runs", str(runs), "--idle", str(idle_seconds), "--devices", str(devices)]
    limits += ["--nodes", str(nodes)] if nodes > 1 else []
    return [python, "-m", "backend.service", "worker", *limits]


def slurm_script(
    command: Sequence[str], directory: Path, options: Sequence[str], output: str, *, nodes: int = 1
) -> str:
    """Return a batch script for `sbatch`, in which the worker replaces the shell, so that it receives
    signals.

    Slurm sends SIGTERM some time before the job's time limit, and on `scancel`; the worker then saves its
    runs and returns them to the queue. With several nodes, srun starts a worker on each of them, and all
    receive the signal. Raise Conflict for a control character in a path or option, which could start a new
    line.
    """
    node_options = [f"#SBATCH --nodes={nodes}", "#SBATCH --ntasks-per-node=1"] if nodes > 1 else []
    start = f"exec {shlex.join(command)}"
    if nodes > 1:
        srun = ["srun", "--kill-on-bad-exit=0", "--wait=0", *command]
        start = f"trap : TERM\n{shlex.join(srun)} &\nwhile kill -0 $! 2>/dev/null; do wait $!; done"
    lines = [
        "#!/bin/sh",
        f"#SBATCH --job-name={JOB_NAME}",
        f"#SBATCH --signal={'' if nodes > 1 else 'B:'}TERM@{GRACE_SECONDS}",
        *node_options,
        "#SBATCH --open-mode=append",
        f"#SBATCH --output={shlex.quote(output)}",  # an unquoted # would begin a comment
        *(f"#SBATCH {option}" for option in options),
        f"cd {shlex.quote(str(directory))} || exit 1",
    ]
    if invalid_line := next((line for line in (*lines, *command) if has_control(line)), ""):
        raise Conflict(f"{invalid_line!r:.200} has a line break or another control character: remove it")
    return "\n".join([*lines, start]) + "\n"


def kubernetes_job(
    command: Sequence[str],
    *,
    image: str,
    gpus: int,
    queue: str,
    secret: str,
    state_claim: str,
    nodes: int = 1,
) -> dict[str, Any]:
    """Return a Job of batch/v1, which Kueue admits if a queue is named.

    The service's settings (DATABASE_URL, BROKER_URL) come from a Secret, and its state from a shared volume.
    Without `state_claim` each pod has a separate directory, and checkpoints are stored in the artifact store.
    With several nodes it is an indexed Job: the index of a pod is the rank of its node, and the name of the
    job is the group.
    """
    labels = {"app": JOB_NAME} | ({"kueue.x-k8s.io/queue-name": queue} if queue else {})
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    container = {
        "name": "worker",
        "image": image,
        "command": list(command),
        "envFrom": [{"secretRef": {"name": secret}}],
        "env": [{"name": "STATE_DIR", "value": "/state"}, *(_pod_variables() if nodes > 1 else [])],
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
        "resources": resources,
    }
    volume = {"persistentVolumeClaim": {"claimName": state_claim}} if state_claim else {"emptyDir": {}}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [container],
        **({"affinity": _anti_affinity()} if nodes > 1 else {}),
        "volumes": [{"name": "state", **volume}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"{JOB_NAME}-", "labels": labels},
        "spec": {
            "suspend": bool(queue),
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 3600,
            **(
                {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes} if nodes > 1 else {}
            ),
            "template": {"metadata": {"labels": {"app": JOB_NAME}}, "spec": pod},
        },
    }


def _pod_variables() -> list[dict[str, Any]]:
    """Return variables with the job name and the address of the pod; Kubernetes adds its index."""
    fields = {
        "WORKER_GROUP": "metadata.labels['batch.kubernetes.io/job-name']",
        "NODE_ADDRESS": "status.podIP",
    }
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _anti_affinity() -> dict[str, Any]:
    """Return an affinity that places each pod of a job on a separate node."""
    term = {
        "labelSelector": {"matchLabels": {"app": JOB_NAME}},
        "matchLabelKeys": ["batch.kubernetes.io/job-name"],
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def skypilot_task(
    command: Sequence[str],
    *,
    accelerators: str,
    directory: str,
    environment: Mapping[str, str],
    nodes: int = 1,
) -> str:
    """Return a task for `sky jobs launch` as JSON, which is valid YAML, with secrets instead of values."""
    task = {
        "name": JOB_NAME,
        "workdir": directory,
        **({"num_nodes": nodes} if nodes > 1 else {}),
        "resources": {"accelerators": accelerators} if accelerators else {},
        "secrets": dict.fromkeys(environment),
        "setup": "make .venv/runtime.stamp",
        "run": shlex.join(command),
    }
    return json.dumps(task, indent=2) + "\n"


def this_python() -> str:
    """Return the interpreter of this installation, which nodes access through a shared file system."""
    return sys.executable
