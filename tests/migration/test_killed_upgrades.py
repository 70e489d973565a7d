"""Tests of first starts that are killed while they create the schema, in separate processes.

GRPOLAB_ALL_POINTS=1 kills at every point instead of a sample."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect

from backend.storage.engine import open_engine
from backend.storage.models import Base
from backend.storage.schema import newest_schema

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parent.parent.parent
IS_LONG = os.environ.get("GRPOLAB_ALL_POINTS") == "1"


@pytest.fixture(scope="module")
def request_upgrades():
    """A function that returns the outcome of each process of a request (see upgrading.py)."""
    argv = [sys.executable, "-m", "tests.migration.upgrading"]
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as parent:

        def run_request(form, number, url):
            parent.stdin.write(f"{form} {number} {url}\n")
            return json.loads(parent.stdout.readline())

        yield run_request
        parent.stdin.close()


def test_a_first_start_killed_during_the_upgrade_is_completed_by_the_next(empty_url, request_upgrades):
    *killed_processes, last_process = request_upgrades("die", 1 if IS_LONG else 20, empty_url)
    assert len(killed_processes) >= (70 if IS_LONG else 4)
    assert {(death["code"], death["schema"]) for death in killed_processes} == {(-signal.SIGKILL, "")}, (
        killed_processes
    )
    assert (last_process["code"], last_process["schema"]) == (0, newest_schema())
    engine = open_engine(empty_url, pool_size=1)
    assert set(inspect(engine).get_table_names()) >= set(Base.metadata.tables)
    engine.dispose()


def test_concurrent_upgrades_all_succeed(empty_url, request_upgrades):
    ended_processes = request_upgrades("race", 3, empty_url)
    assert [process["code"] for process in ended_processes] == [0, 0, 0], ended_processes
