"""A reward function that prints without end: its log is capped and nobody's memory grows (row 16).

`LOUD_MEGABYTES=1000 pytest tests/worker/rewards/test_loud_reward.py` is the long form.
"""

import os
import threading

import psutil
import pytest

from tests.worker.host.test_supervisor import (  # noqa: F401 - fixtures
    ROOT,
    claim,
    log_of,
    queue_run,
    read,
    sessions,
    settings,
    stopping,
    toy,
)
from worker.host.trainer_logs import LIMIT_CHARACTERS, LIMIT_NOTE

pytestmark = pytest.mark.nightly

MEGABYTES = int(os.environ.get("LOUD_MEGABYTES", "50"))
MAX_GROWTH = 30_000_000

LOUD = """
def loud(prompt, text, *, megabytes):
    lines = (b"x" * 99 + b"\\n") * 10_000
    for _ in range(megabytes):
        print(lines.decode(), end="")
    return 1.0
"""


@pytest.fixture
def loud_reward(toy, tmp_path, monkeypatch):  # noqa: F811
    """The reward, installed where a trainer's process for plugins finds it."""
    (tmp_path / "loud_rewards.py").write_text(LOUD)
    info = tmp_path / "loud_rewards-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud_rewards\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpolab.rewards]\nloud = loud_rewards:loud\n")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")


def peak_growth(work):
    """How much this process grew at most while `work` was done, in bytes."""
    process, ended, seen = psutil.Process(), threading.Event(), []

    def watch():
        while not ended.wait(0.05):
            seen.append(process.memory_info().rss)

    before = process.memory_info().rss
    thread = threading.Thread(target=watch)
    thread.start()
    work()
    ended.set()
    thread.join()
    return max(seen, default=before) - before


@pytest.mark.timeout(120 + MEGABYTES)
def test_a_reward_that_prints_without_end_fills_neither_log_nor_memory(toy, sessions, loud_reward):  # noqa: F811
    queue_run(sessions)  # loads what a supervisor needs
    toy("finish").supervise(claim(sessions))
    run_id = queue_run(sessions)
    supervisor = toy("loud", str(MEGABYTES))
    assert peak_growth(lambda: supervisor.supervise(claim(sessions))) < MAX_GROWTH
    assert (read(sessions, run_id).status, read(sessions, run_id).last_step) == ("finished", 3)
    log = log_of(sessions, run_id)
    assert LIMIT_CHARACTERS - 200 < len(log) <= LIMIT_CHARACTERS + len(LIMIT_NOTE)
    assert log.endswith(LIMIT_NOTE)
