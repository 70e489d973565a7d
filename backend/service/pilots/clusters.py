"""Clusters that start pilots; each class counts and submits pilots with the cluster's command-line tool."""

import json
import subprocess
from collections.abc import Sequence
from typing import Protocol

from backend.base.errors import Unavailable
from backend.service.pilots.jobs import JOB_NAME
from backend.service.pilots.need import Pilots

TIMEOUT_SECONDS = 60
"""Timeout of a command in seconds."""


class Cluster(Protocol):
    """A cluster that starts pilots."""

    def count(self) -> Pilots:
        """Return the numbers of waiting and running pilots; raise Unavailable if the cluster does not
        respond.
        """

    def submit(self) -> str:
        """Start another pilot and return its name on the cluster; raise Unavailable if that fails."""


class Slurm:
    """Batch jobs of Slurm."""

    def __init__(self, script: str) -> None:
        self._script = script

    def count(self) -> Pilots:
        """Count the jobs of this user by their name."""
        listing = run_command(["squeue", "--me", "--noheader", f"--name={JOB_NAME}", "--format=%t"])
        states = listing.split()
        waiting_count = sum(state in ("PD", "CF", "RQ", "RF", "RH", "SE") for state in states)
        return Pilots(waiting_count, len(states) - waiting_count)

    def submit(self) -> str:
        """Submit the job with `sbatch`, which reads the script from standard input."""
        return run_command(["sbatch", "--parsable"], self._script).strip()


class Kubernetes:
    """Jobs of Kubernetes, queued by Kueue if it is installed."""

    def __init__(self, job: object) -> None:
        self._job = json.dumps(job)

    def count(self) -> Pilots:
        """Count the unfinished jobs by their label."""
        listing = run_command(["kubectl", "get", "jobs", f"--selector=app={JOB_NAME}", "--output=json"])
        try:
            states = [item.get("status", {}) for item in json.loads(listing)["items"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unavailable(f"kubectl answered no list of jobs: {listing[:100]!r}") from None
        running_count = sum(bool(state.get("active")) and bool(state.get("ready")) for state in states)
        finished_count = sum(bool(state.get("succeeded") or state.get("failed")) for state in states)
        return Pilots(len(states) - running_count - finished_count, running_count)

    def submit(self) -> str:
        """Create the job with `kubectl`."""
        return run_command(["kubectl", "create", "--filename=-", "--output=name"], self._job).strip()


class SkyPilot:
    """Managed jobs of SkyPilot."""

    def __init__(self, path: str) -> None:
        self._path = path

    def count(self) -> Pilots:
        """Count the unfinished jobs by their name."""
        listing = run_command(["sky", "jobs", "queue", "--skip-finished"])
        states = [line for line in listing.splitlines() if JOB_NAME in line]
        running_count = sum("RUNNING" in line for line in states)
        return Pilots(len(states) - running_count, running_count)

    def submit(self) -> str:
        """Launch the job with `sky jobs launch`, without waiting for it."""
        return run_command(["sky", "jobs", "launch", "--yes", "--detach-run", self._path]).strip()[-200:]


def run_command(command: Sequence[str], text: str = "") -> str:
    """Return the output of a command; raise Unavailable with its message if it fails or times out."""
    try:
        process = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not answer within {TIMEOUT_SECONDS} s") from None
    if process.returncode:
        output_lines = (process.stderr or process.stdout).strip().splitlines()
        raise Unavailable(
            f"{command[0]} failed: {output_lines[-1][:300] if output_lines else process.returncode}"
        )
    return process.stdout
