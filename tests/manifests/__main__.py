"""Validate manifests of pilots with kubernetes-validate and SkyPilot: `make test-manifests`.

Both are installed in a separate environment, `.venv-manifests`, on the first run. No cluster is needed."""

import itertools
import json
from pathlib import Path

from backend.service.pilots.jobs import kubernetes_job, skypilot_task, worker_command
from benchmarks.common.peers import ensure_python, run

JUDGE_PATH = Path(__file__).parent / "judge.py"
WORKER_COMMAND = worker_command("/opt/a b/python", runs=1, idle_seconds=60, devices=2)
VARIABLES = {"DATABASE_URL": "x", "BROKER_URL": "y"}


def main() -> None:
    jobs = [
        kubernetes_job(
            WORKER_COMMAND,
            image="registry/worker:1",
            gpus=gpus,
            queue=queue,
            secret="s",
            state_claim=claim,
            nodes=nodes,
        )
        for gpus, queue, nodes, claim in itertools.product((0, 2), ("", "lab"), (1, 2), ("v", ""))
    ]
    tasks = [
        json.loads(
            skypilot_task(
                WORKER_COMMAND, accelerators=accelerators, directory="/d", environment=names, nodes=nodes
            )
        )
        for accelerators, names, nodes in itertools.product(("", "H100:1"), ({}, VARIABLES), (1, 2))
    ]
    report = run(ensure_python("manifests"), JUDGE_PATH, {"jobs": jobs, "tasks": tasks, "threads": 1})
    for line in report["refused"]:
        print(f"refused: {line}")
    print(f"{report['valid']} valid, {len(report['refused'])} refused ({report['by']})")
    if report["refused"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
