"""Tests of runs on several nodes, with two real workers on this machine as the nodes of one group."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from backend.base.settings import Settings
from backend.config.merge import merge
from backend.runs import lifecycle
from backend.runs.queue.broker import Broker, prepare_broker
from backend.runs.store import load_log_chunks
from backend.runs.workers.nodes import load_seats
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Attempt, Metric, MetricKey, Run, Worker
from tests.api_client import TOKEN
from tests.factories import make_run
from tests.worker.training.ranks import CASES, SMALL_CONFIG, train

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]

CONFIG = {**merge(SMALL_CONFIG, CASES["GRPO"]), "checkpointing": {"every": 1}}


class WorkerGroup:
    """A database, a state directory and the workers of one group."""

    def __init__(self, settings, sessions, url):
        self.settings, self.sessions, self.url = settings, sessions, url
        self.workers = {}
        self.logs = []

    def start(self, rank, **variables):
        """Start the worker of a node."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "STATE_DIR": str(self.settings.state),
            "DATABASE_URL": self.url,
            "BROKER_URL": "filesystem://",
            "LEASE_SECONDS": "4",
            "POLL_SECONDS": "0.3",
            "WORKER_SLOTS": "1",
            "WORKER_NODES": "2",
            "WORKER_NODE_RANK": str(rank),
            "WORKER_GROUP": "pair",
            "NODE_ADDRESS": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            **variables,
        }
        argv = [sys.executable, "-m", "celery", "--app", "worker.host.app", "--quiet", "worker"]
        argv += ["--pool", "threads", "--concurrency", "1", "--queues", "gpu"]
        argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        path = self.settings.state / f"worker{len(self.logs)}.log"
        self.logs.append(path)
        with path.open("wb") as log:
            self.workers[rank] = subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=log, stderr=log)

    def kill(self, rank):
        """Send SIGKILL to the worker of a node."""
        worker = self.workers.pop(rank)
        worker.kill()
        worker.wait()

    def close(self):
        for worker in self.workers.values():
            worker.kill()
            worker.wait()

    def queue(self, **changes):
        steps, resources = changes.pop("steps", 6), {"nodes": 2, **changes.pop("resources", {})}
        config = {**CONFIG, "steps": steps, "resources": resources, **changes}
        with self.sessions.begin() as session:
            sizes = {"nodes": resources["nodes"], "devices": resources.get("devices", 1)}
            return make_run(session, config=config, **sizes).id

    def run(self, run_id):
        with self.sessions() as session:
            return session.get_one(Run, run_id)

    def wait(self, condition, seconds=600):
        deadline = time.monotonic() + seconds
        while not (outcome := condition()):
            assert time.monotonic() < deadline, self.format_logs()
            assert all(worker.poll() is None for worker in self.workers.values()), self.format_logs()
            time.sleep(0.05)
        return outcome

    def wait_for_end(self, run_id, status="finished"):
        self.wait(lambda: self.run(run_id).status not in ("queued", "running"))
        run = self.run(run_id)
        assert run.status == status, (run.reason, self.format_logs())
        return run

    def wait_for_step(self, run_id, step):
        self.wait(lambda: self.run(run_id).last_step >= step)

    def format_logs(self):
        """Return the end of the workers' logs."""
        with self.sessions() as session:
            seats = "\n".join(map(str, load_seats(session, "pair")))
        return "\n".join([seats, *(path.read_text()[-3000:] for path in self.logs)])

    def find_first_rank(self, rank):
        """Return the process id of a node's first rank, the trainer of its worker."""
        trainers = [
            process
            for process in psutil.Process(self.workers[rank].pid).children(recursive=True)
            if "worker.train" in process.cmdline()
        ]
        return next(trainer.pid for trainer in trainers if trainer.net_connections())

    def log(self, run_id, attempt):
        """Return the output of an attempt as the run's page shows it."""
        with self.sessions() as session:
            return "".join(
                chunk.text
                for chunk in load_log_chunks(
                    session, run_id, attempt=attempt, after_key=None, limit=100, backwards=False
                )
            )

    def attempt(self, run_id, number):
        with self.sessions() as session:
            return session.get_one(Attempt, (run_id, number))

    def is_idle(self):
        """Return whether no slot of the group has a run."""
        with self.sessions() as session:
            return not any(worker.run_id for worker in session.scalars(select(Worker)))

    def metrics(self, run_id):
        """Return every value of every step that describes the training."""
        query = (
            select(Metric.step, MetricKey.name, Metric.value, Metric.attempt)
            .join(MetricKey, MetricKey.id == Metric.key_id)
            .where(Metric.run_id == run_id)
            .order_by(Metric.attempt)
        )
        with self.sessions() as session:
            rows = session.execute(query).all()
        of_the_machine = ("time/", "memory/", "machine/", "gpu/", "throughput/", "mismatch/")
        return {
            (step, name): metric_value
            for step, name, metric_value, _ in rows
            if not name.startswith(of_the_machine)
        }


@pytest.fixture
def worker_group(state_dir, sqlite_url):
    settings = Settings(state_dir=state_dir, database_url=sqlite_url, lease_seconds=4, grpolab_token=TOKEN)
    engine = open_engine(settings.effective_database_url)
    prepare_broker(Broker("filesystem://", ""), settings)
    group = WorkerGroup(settings, open_sessions(engine), sqlite_url)
    yield group
    group.close()
    engine.dispose()


MAX_DIFFERENCE = 5e-5
"""Largest difference of a metric due to the order of float32 sums, relative for values above 1.

Most values of twenty steps agree within 3e-7. A step whose gradient is ten times as large as the others'
(rare tokens, a ratio far from 1) amplifies earlier differences: 1.1e-5 of its norm was measured."""


def max_difference(first_metrics, second_metrics):
    """Return the largest difference and its metric. Shares may cross a limit by rounding."""
    assert first_metrics.keys() == second_metrics.keys()
    return max(
        (abs(first_metrics[key] - second_metrics[key]) / max(1.0, abs(second_metrics[key])), key)
        for key in first_metrics
        if not key[1].endswith("_frac")
    )


def test_a_rank_killed_on_the_second_node_loses_nothing_and_a_stop_reaches_both(worker_group):
    for rank in (0, 1):
        worker_group.start(rank)
    run_id = worker_group.queue(steps=5)
    worker_group.wait_for_step(run_id, 2)
    os.kill(worker_group.find_first_rank(1), signal.SIGUSR1)  # the rank prints its stack traces
    worker_group.wait(lambda: "most recent call first" in worker_group.logs[1].read_text())
    os.kill(worker_group.find_first_rank(1), signal.SIGKILL)
    assert worker_group.wait_for_end(run_id).attempt == 2
    assert (
        worker_group.attempt(run_id, 1).outcome
        == f"node 1 ({platform.node()}): the trainer was ended by SIGKILL"
    )
    lines = [line for line in worker_group.log(run_id, 1).splitlines() if line.startswith("node 1 (")]
    assert any("most recent call first" in line for line in lines)
    expected = index_metrics(train(CONFIG, ranks=1, steps=5))
    metrics = worker_group.metrics(run_id)
    shared_keys = metrics.keys() & expected.keys()
    assert (5, "reward/mean") in shared_keys
    assert (
        max_difference(
            {key: metrics[key] for key in shared_keys}, {key: expected[key] for key in shared_keys}
        )[0]
        < MAX_DIFFERENCE
    )
    stopped_run = worker_group.queue(steps=900)
    worker_group.wait_for_step(stopped_run, 1)
    with worker_group.sessions.begin() as session:
        lifecycle.request_action(session, stopped_run, "stop")
    worker_group.wait_for_end(stopped_run, "stopped")
    worker_group.wait(worker_group.is_idle)


def index_metrics(trained_run):
    """Return the values of each step of a run in one process, as `WorkerGroup.metrics` names them."""
    return {
        (step, name): metric_value
        for step, metrics in enumerate(trained_run.steps, 1)
        for name, metric_value in metrics.items()
    }


@pytest.mark.nightly
@pytest.mark.parametrize("devices", [1, 2])
def test_twenty_steps_on_two_nodes_match_those_of_one_process(worker_group, devices):
    worker_group.start("alone", WORKER_NODES="1", WORKER_NODE_RANK="0")
    worker_group.start(0)
    worker_group.start(1)
    single_node_run = worker_group.queue(steps=20, resources={"nodes": 1})
    on_two_nodes = worker_group.queue(steps=20, resources={"devices": devices})
    worker_group.wait_for_end(single_node_run)
    worker_group.wait_for_end(on_two_nodes)
    difference, (step, name) = max_difference(
        worker_group.metrics(single_node_run), worker_group.metrics(on_two_nodes)
    )
    print(f"2 nodes x {devices}: {difference:.1e} ({name} of step {step})")
    assert difference < MAX_DIFFERENCE


@pytest.mark.nightly
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_of_the_group_loses_nothing(worker_group, victim):
    worker_group.start("alone", WORKER_NODES="1", WORKER_NODE_RANK="0")
    worker_group.start(0)
    worker_group.start(1)
    single_node_run, two_node_run = (
        worker_group.queue(steps=9, resources={"nodes": 1}),
        worker_group.queue(steps=9),
    )
    worker_group.wait_for_step(two_node_run, 3)
    worker_group.kill(victim)
    worker_group.start(victim)
    assert worker_group.wait_for_end(two_node_run).attempt >= 2
    worker_group.wait_for_end(single_node_run)
    assert (
        max_difference(worker_group.metrics(single_node_run), worker_group.metrics(two_node_run))[0]
        < MAX_DIFFERENCE
    )
