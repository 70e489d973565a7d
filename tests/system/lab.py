"""A complete installation as separate processes, and a client that uses it over HTTP."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from tests.ports import free_port
from tests.waiting import wait_for

ROOT = Path(__file__).parent.parent.parent
TOKEN = "a-token-for-tests"

QUICK_CONFIG = {
    "steps": 3,
    "sampling": {"prompts_per_step": 4, "group_size": 2, "max_new_tokens": 24},
    "evaluation": {"every": 3, "prompts": 8},
}
"""Config of a run that takes seconds on the tiny policy."""


class Client:
    """A client of the HTTP API with the operator's token."""

    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def call(self, method, path, body=None, **headers):
        """Return status and body, with JSON decoded."""
        headers = {"Authorization": f"Bearer {TOKEN}", **headers}
        response = httpx.request(method, self.base + path, json=body, headers=headers, timeout=30)
        is_json = "json" in response.headers.get("Content-Type", "")
        return response.status_code, response.json() if is_json else response.text

    def is_alive(self):
        """Return True if the service answers."""
        try:
            return self.call("GET", "/healthz")[0] == 200
        except httpx.TransportError:
            return False

    def get(self, path):
        """Return the body of a successful GET below /api/v1."""
        status, body = self.call("GET", f"/api/v1{path}")
        assert status == 200, body
        return body

    def post(self, path, body=None, **headers):
        """Return the body of a successful POST below /api/v1."""
        status, answer = self.call("POST", f"/api/v1{path}", body or {}, **headers)
        assert status in (200, 201, 202), answer
        return answer

    def launch(self, **changes):
        """Launch one new run and return its id."""
        body = {
            "name": "test",
            "base": {**QUICK_CONFIG, **changes},
            "variants": [{"name": "only"}],
            "seeds": [0],
        }
        return self.post("/experiments", body)["runs"][0]["id"]

    def wait_for_status(self, run_id, *statuses, seconds=400.0):
        """Wait until the run has one of these statuses, and return it."""

        def arrived():
            run = self.get(f"/runs/{run_id}")
            assert run["status"] in (*statuses, "queued", "running", "paused"), run["reason"]
            return run if run["status"] in statuses else None

        return wait_for(arrived, seconds=seconds)


class Program:
    """One of our commands as a process."""

    def __init__(self, state_dir, command, name="terminal", **settings):
        self.state_dir = state_dir
        self.output = state_dir / f"{name}.txt"
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "STATE_DIR": str(state_dir),
            "GRPOLAB_TOKEN": TOKEN,
            "WRITES_PER_SECOND": "0",
            "STREAMS_PER_TOKEN": "0",
            **{key: str(setting) for key, setting in settings.items()},
        }
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "backend.service", command],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def output_text(self):
        """Return everything that the process has printed."""
        return self.output.read_text()

    def family(self):
        """Return all child processes, at any depth."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, phrase):
        """Return the child process whose command line contains these words."""
        return next(process for process, line in command_lines(self.family()) if phrase in " ".join(line))

    def kill_all(self):
        """Kill the process and all its children at once."""
        if self.process.poll() is None:
            family = self.family()
            self.process.kill()
            for process in family:
                _kill(process)
        self.process.wait()


def _kill(process):
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


class LauncherProgram(Program):
    """A launcher started with `make up`, and all its processes."""

    def __init__(self, state_dir, command="up", port=None, name="terminal", **settings):
        self.port = port or free_port()
        self.client = Client(self.port)
        (state_dir / f"{name}.txt").unlink(missing_ok=True)
        super().__init__(state_dir, command, name, PORT=self.port, **settings)

    def wait_until_up(self):
        """Return once the launcher has shown its link."""
        wait_for(lambda: "Ctrl-C stops everything" in self.output_text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.output_text()
        return self


def command_lines(processes):
    """Yield each process that still runs, with its command line."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a zombie does not count
            yield process, process.cmdline()


def are_gone(processes):
    """Return True if all of them have ended; a zombie counts as ended."""
    return lambda: (
        not [
            process
            for process in processes
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        ]
    )
