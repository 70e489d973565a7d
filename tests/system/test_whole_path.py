"""Tests of the full path HTTP -> broker -> worker process -> SQL -> HTTP without any replacement."""

import signal

import pytest

from tests.ports import free_port
from tests.system.lab import Client, LauncherProgram, Program
from tests.waiting import wait_for


@pytest.fixture
def running_launcher(state_dir):
    """An embedded installation: SQLite, Valkey on a socket, and one process tree."""
    started_launcher = LauncherProgram(state_dir)
    yield started_launcher.wait_until_up()
    started_launcher.kill_all()


@pytest.fixture
def many_machines(state_dir, postgres_url, valkey_url):
    """The topology of docker-compose.yml: service, two workers, Postgres and Redis as processes."""
    port = free_port()
    shared_settings = {"DATABASE_URL": postgres_url, "BROKER_URL": valkey_url, "PORT": port}
    service = Program(state_dir, "serve", "service", **shared_settings)
    client = Client(port)
    wait_for(client.is_alive)
    workers = [Program(state_dir, "worker", f"worker{n}", **shared_settings) for n in range(2)]
    wait_for(lambda: len(client.get("/workers")["items"]) == 2)
    yield client, workers
    for program in (service, *workers):
        program.kill_all()


def check_finished_run(client, run_id):
    """Check that a finished run has everything that the pages need."""
    run = client.wait_for_status(run_id, "finished")
    assert run["last_step"] == 3
    series = client.get(f"/series?runs={run_id}&metrics=reward/mean,eval/accuracy")["series"]
    steps = {curve["metric"]: curve["steps"] for curve in series}
    assert steps == {"reward/mean": [1, 2, 3], "eval/accuracy": [0, 3]}
    groups = client.get(f"/rollouts?run={run_id}&step=3")["items"]
    train = [group for group in groups if group["kind"] == "train"]
    assert len(train) == 4
    assert all(len(group["completions"]) == 2 for group in train)
    completion = train[0]["completions"][0]
    tokens = client.get(f"/rollouts/{completion['id']}/tokens")
    assert len(tokens["tokens"]) == completion["tokens"] == len(tokens["arrays"]["entropy"])
    transitions = [event["message"] for event in client.get(f"/runs/{run_id}/events")["items"]]
    assert [transition for transition in transitions if transition.startswith("queued -> running")]
    assert transitions[-1].startswith("running -> finished")
    status, csv = client.call("GET", f"/api/v1/runs/{run_id}/metrics.csv")
    assert status == 200
    assert [line.split(",")[0] for line in csv.strip().splitlines()] == ["step", "0", "1", "2", "3"]


def test_a_run_finishes_on_sqlite_with_the_embedded_broker(running_launcher):
    check_finished_run(running_launcher.client, running_launcher.client.launch())


@pytest.mark.nightly
def test_runs_finish_on_postgres_with_redis_and_two_workers(many_machines):
    client, _ = many_machines
    run_ids = [client.launch() for _ in range(3)]
    for run_id in run_ids:
        check_finished_run(client, run_id)


@pytest.mark.nightly
def test_an_interrupted_run_continues_at_the_next_start(running_launcher, state_dir):
    run_id = running_launcher.client.launch(steps=40, evaluation={"every": 0})
    wait_for(lambda: running_launcher.client.get(f"/runs/{run_id}")["last_step"] >= 2, seconds=300)
    running_launcher.process.send_signal(signal.SIGTERM)
    assert running_launcher.process.wait(60) == 0
    second_launcher = LauncherProgram(state_dir).wait_until_up()
    try:
        run = second_launcher.client.wait_for_status(run_id, "finished", seconds=300)
    finally:
        second_launcher.kill_all()
    first, second = run["attempts"]
    assert first["ended_at"] is not None
    assert (first["number"], second["number"]) == (1, 2)
    assert run["last_step"] == 40
