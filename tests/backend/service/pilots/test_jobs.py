"""Tests of cluster jobs: what they run, and errors if no cluster answers."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backend.base.errors import Conflict, Unavailable
from backend.service.pilots.clusters import Kubernetes, run_command
from backend.service.pilots.command import job_text
from backend.service.pilots.jobs import kubernetes_job, skypilot_task, slurm_script, worker_command

COMMAND = worker_command("/opt/a b/python", runs=1, idle_seconds=60, devices=2)


def test_the_worker_replaces_the_shell_process():
    text = slurm_script(COMMAND, Path("/shared/the lab"), ["--partition=gpu"], "/the #1 state/%j.log")
    assert "#SBATCH --partition=gpu\n" in text
    assert "#SBATCH --signal=B:TERM@120\n" in text
    assert "#SBATCH --output='/the #1 state/%j.log'\n" in text
    assert text.endswith(
        "cd '/shared/the lab' || exit 1\n"
        "exec '/opt/a b/python' -m backend.service worker --runs 1 --idle 60 --devices 2\n"
    )
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def test_a_kubernetes_job_is_suspended_only_for_a_queue():
    options: dict[str, Any] = {"image": "worker", "gpus": 2, "secret": "s", "state_claim": "v"}
    job = kubernetes_job(COMMAND, queue="", **options)
    assert (job["apiVersion"], job["kind"], job["spec"]["suspend"]) == ("batch/v1", "Job", False)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert container["command"] == COMMAND
    queued_job = kubernetes_job(COMMAND, queue="lab", **options)
    assert queued_job["spec"]["suspend"]
    assert queued_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab"


def test_a_job_on_two_nodes_starts_a_worker_on_each():
    command = worker_command("python", runs=1, idle_seconds=60, devices=8, nodes=2)
    assert command[-2:] == ["--nodes", "2"]
    text = slurm_script(command, Path("/lab"), ["--gres=gpu:8"], "/state/%j.log", nodes=2)
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" in text
    assert "#SBATCH --signal=TERM@120\n" in text  # the variable goes to the workers, not to the shell
    assert "srun --kill-on-bad-exit=0 --wait=0 python -m backend.service worker" in text
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    options: dict[str, Any] = {"image": "worker", "gpus": 8, "secret": "s", "state_claim": "v", "queue": ""}
    job = kubernetes_job(command, nodes=2, **options)["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 2, 2)
    names = {variable["name"]: variable for variable in job["template"]["spec"]["containers"][0]["env"]}
    assert names["NODE_ADDRESS"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    task = json.loads(skypilot_task(command, accelerators="H100:8", directory="/d", environment={}, nodes=2))
    assert task["num_nodes"] == 2


def test_a_skypilot_task_gets_the_variables_of_the_storage(settings, monkeypatch):
    options: dict[str, Any] = {"runs": 1, "idle": 60, "devices": 1, "nodes": 1, "accelerators": ""}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up-secret")
    plain_task = json.loads(job_text(settings, cluster="skypilot", **options))
    assert sorted(plain_task["secrets"]) == ["BROKER_URL", "DATABASE_URL", "GRPOLAB_TOKEN"]
    settings_with_storage = settings.model_copy(update={"artifacts_url": "s3://bucket/lab"})
    text = job_text(settings_with_storage, cluster="skypilot", **options)
    assert {"ARTIFACTS_URL", "AWS_SECRET_ACCESS_KEY"} <= json.loads(text)["secrets"].keys()
    assert "made-up-secret" not in text


def test_an_unreachable_cluster_is_reported_with_its_own_message():
    with pytest.raises(Unavailable, match="not installed"):
        run_command(["no-such-command-of-a-cluster"])
    with pytest.raises(Unavailable, match="sh failed: queue is full"):
        run_command(["sh", "-c", "echo queue is full >&2; exit 3"])


@pytest.mark.parametrize("answer", ["", "Unable to connect", "[]", '{"items": null}', '{"items": ["x"]}'])
def test_an_answer_that_is_not_a_job_list_is_requested_again(tmp_path, monkeypatch, answer):
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(Unavailable, match="kubectl answered no list of jobs"):
        Kubernetes({}).count()


@pytest.mark.parametrize("control", ["\n", "\r", "\0", "\x85", "\u2028", "\x1b"])
def test_no_path_and_no_option_starts_a_new_line(control):
    hostile_option = f"x{control}#SBATCH --uid=0"
    for text in (
        {"options": [hostile_option]},
        {"output": hostile_option},
        {"directory": Path(hostile_option)},
        {"command": [hostile_option, *COMMAND]},
    ):
        arguments: dict[str, Any] = {
            "command": COMMAND,
            "directory": Path("/lab"),
            "options": [],
            "output": "o",
        }
        for nodes in (1, 2):
            with pytest.raises(Conflict, match="has a line break or another control character: remove it"):
                slurm_script(**(arguments | text), nodes=nodes)
