"""Test of episodes with a server of the real openenv package: `make test-openenv`."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from backend.storage.engine import open_read_session
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.verdict import read_record
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PYTHON_PATH = ROOT / ".venv-openenv" / "bin" / "python"
SESSION_COUNT = 3
STEP_COUNT = int(os.environ.get("GRPOLAB_OPENENV_STEPS", "4"))
START_SECONDS = 300

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(
        not PYTHON_PATH.exists(), reason="openenv is not installed: `make test-openenv` does it"
    ),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address of a real server that accepts three sessions at a time."""
    port = free_port()
    script = str(Path(__file__).with_name("environment.py"))
    log = tmp_path_factory.mktemp("openenv") / "log"
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [str(PYTHON_PATH), script, str(port), str(SESSION_COUNT)], stdout=log_file, stderr=log_file
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(httpx2.HTTPError):
            if httpx2.get(f"{url}/health").status_code == 200:
                break
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text(encoding="utf-8")[-4_000:])
        time.sleep(0.2)
    yield url
    process.kill()
    process.wait()


def test_a_run_trains_in_an_environment_of_openenv(url, capsys):
    """More concurrent episodes are requested than the server accepts, and each is played to its end."""
    config = {
        "preset": "grpo",
        "steps": STEP_COUNT,
        "environment": {"type": "openenv", "server": "two", "max_turns": 3, "sessions": 8},
        "problems": [{"name": "episodes", "instruction": "?"}],
        "rewards": [{"name": "environment"}],
        "sampling": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 96},
        "evaluation": {"every": STEP_COUNT, "prompts": 8},
    }
    with FaultyInstallation(Kind("sqlite", "filesystem"), workers=0, slots=1) as installation:
        installation.start_worker(OPENENV_URLS=f"two={url}")
        (run,) = installation.queue([config])
        installation.wait_until_ended([run], seconds=6000)
        assert installation.read(run).reason == ""
        assert installation.read(run).status == "finished"
        with open_read_session(installation.sessions) as session:
            record = read_record(session, run)
    steps = range(1, STEP_COUNT + 1)
    curves = {
        name: [round(record[name, step].value, 3) for step in steps]
        for name in ("environment/done_frac", "reward/mean", "tools/turns")
    }
    accuracy = [record["eval/accuracy", step].value for step in (0, STEP_COUNT)]
    with capsys.disabled():
        print(f"\n{curves}\naccuracy before and after: {accuracy}")
    assert {record["environment/lost_frac", step].value for step in steps} == {0.0}
    assert max(curves["environment/done_frac"]) > 0
    assert max(curves["tools/turns"]) > 2
