"""Large and hostile bodies against a real service: what they cost in memory, and how long a reader waits."""

import gzip
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import psutil
import pytest

from backend.base.settings import Settings
from backend.http.auth.tokens import writer_token
from tests.ports import free_port
from tests.system.lab import Client, Program
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

BYTES = 15_900_000
MEGABYTE = 1_000_000
WRITER_KEY = "k" * 40


def lists():
    """Nothing but empty lists: 5.3 million values."""
    return b'{"session":"%s","first":1,"records":[' % (b"a" * 32) + b"[]," * (BYTES // 3) + b"[]]}"


def short_completions():
    """As many completions as fit: nothing of it is wrong but their number."""
    row = b'{"text":""},'
    record = b'{"kind":"completions","step":1,"index":%d,"prompt":"","completions":[%s]},'
    rows = row * 1023 + row[:-1]
    records = b"".join(record % (number, rows) for number in range(BYTES // (len(rows) + 90)))
    head = b'{"session":"%s","first":1,"run":{"name":"x"},"records":[' % (b"a" * 32)
    return head + records[:-1] + b"]}"


def long_completions():
    """The largest group that is promised to fit: 512 completions of 8,000 tokens."""
    text = "let me compute, step by step: 85+60=145. " * 720
    group = {"prompt": "85+60=", "completions": [{"text": text}] * 512}
    record = {"kind": "completions", "step": 1, "index": 0, **group}
    body = {"session": "a" * 32, "first": 1, "run": {"name": "x"}, "records": [record]}
    return json.dumps(body).encode()


def most_values():
    """20,000 completions with as many rewards as a body may have values."""
    rewards = {f"r{number}": 0.5 for number in range(8)}
    group = {"prompt": "1+1=", "completions": [{"text": "", "rewards": rewards}] * 1000}
    records = [{"kind": "completions", "step": 1, "index": index, **group} for index in range(20)]
    body = {"session": "a" * 32, "first": 1, "run": {"name": "x"}, "records": records}
    return json.dumps(body).encode()


def wrong_values():
    """Metrics none of which is a number: an error for each."""
    values = {f"m{number}": "?" for number in range(1000)}
    records = [{"kind": "metrics", "step": step, "values": values} for step in range(240)]
    return json.dumps({"session": "a" * 32, "first": 1, "run": {"name": "x"}, "records": records}).encode()


def unknown_fields():
    """As many fields that nobody knows."""
    return json.dumps({"session": "a" * 32, **{f"f{number}": 1 for number in range(240_000)}}).encode()


@pytest.fixture
def service(tmp_path):
    port = free_port()
    program = Program(tmp_path, "serve", PORT=port, GRPOLAB_WRITER_KEY=WRITER_KEY)
    client = Client(port)
    wait_for(client.is_alive)
    client.get("/runs")
    yield SimpleNamespace(base=client.base, process=psutil.Process(program.process.pid))
    program.kill_all()


class Watch:
    """A reader of the list of runs, and the memory of the service, until the block ends."""

    def __init__(self, service):
        self._service, self._is_over = service, threading.Event()
        self.waits, self.most, self.before = [0.0], 0.0, service.process.memory_info().rss
        self._threads = [threading.Thread(target=work) for work in (self._read, self._measure)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _read(self):
        headers = {"Authorization": "Bearer a-token-for-tests"}
        with httpx.Client(base_url=self._service.base, headers=headers, timeout=300) as client:
            while not self._is_over.wait(0.02):
                began = time.monotonic()
                assert client.get("/api/v1/runs").status_code in {200, 503}
                self.waits.append(time.monotonic() - began)

    def _measure(self):
        while not self._is_over.wait(0.02):
            self.most = max(self.most, self._service.process.memory_info().rss)

    def summary(self, name):
        left = self._service.process.memory_info().rss
        sizes = [f"{size / MEGABYTE:,.0f}" for size in (self.before, self.most, left)]
        memory = f"{sizes[0]} MB before, {sizes[1]} at most, {sizes[2]} after"
        return f"{name}: {memory}; a reader waited {max(self.waits):.1f} s"


@pytest.mark.parametrize(
    ("make", "times", "statuses", "megabytes"),
    [
        (lists, 8, {413}, 300),
        (short_completions, 1, {413}, 300),
        (long_completions, 8, {200, 429}, 300),
        (most_values, 8, {200, 429, 503}, 300),
        (wrong_values, 8, {422, 429}, 300),
        (unknown_fields, 8, {422, 429}, 300),
    ],
    ids=["lists", "short completions", "long completions", "most values", "wrong values", "unknown fields"],
)
def test_large_bodies_take_little_memory_and_readers_are_answered(service, make, times, statuses, megabytes):
    body = gzip.compress(make(), 9)

    def push(number):
        token = writer_token(Settings(grpolab_writer_key=WRITER_KEY), f"writer-{number}")
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
        }
        answer = httpx.post(f"{service.base}/api/v1/pushes/x", content=body, headers=headers, timeout=600)
        return answer.status_code, answer.text[:300]

    with Watch(service) as watch, ThreadPoolExecutor(times) as pool:
        answers = list(pool.map(push, range(times)))
    print(
        watch.summary(f"{times} x {make.__name__}, {len(body):,} bytes packed"), [code for code, _ in answers]
    )
    print(answers[0])
    if os.environ.get("BASELINE"):
        return
    assert {status for status, _ in answers} <= statuses, answers
    assert watch.most - watch.before < megabytes * MEGABYTE
