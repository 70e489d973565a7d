"""Clusters that start pilots: each counts those that exist and submits more, by its own command line."""

import json
import subprocess
from collections.abc import Sequence
from typing import Protocol

from backend.base.errors import Unavailable
from backend.service.pilots.jobs import NAME
from backend.service.pilots.need import Pilots

SECONDS = 60
"""A command line of a cluster may take so long."""


class Cluster(Protocol):
    """Something that starts pilots."""

    def count(self) -> Pilots:
        """Return the pilots that wait and run there; raises Unavailable."""

    def submit(self) -> str:
        """Start one more; its name there. Raises Unavailable."""


class Slurm:
    """Batch jobs of Slurm."""

    def __init__(self, script: str) -> None:
        self._script = script

    def count(self) -> Pilots:
        """Return the jobs of this user by their name."""
        listing = run_command(["squeue", "--me", "--noheader", f"--name={NAME}", "--format=%t"])
        states = listing.split()
        waiting = sum(state in ("PD", "CF", "RQ", "RF", "RH", "SE") for state in states)
        return Pilots(waiting, len(states) - waiting)

    def submit(self) -> str:
        """Submit with `sbatch`, which reads the script from its input."""
        return run_command(["sbatch", "--parsable"], self._script).strip()


class Kubernetes:
    """Jobs of Kubernetes, queued by Kueue if it is installed."""

    def __init__(self, job: object) -> None:
        self._job = json.dumps(job)

    def count(self) -> Pilots:
        """Return the jobs with the label that have not finished."""
        listing = run_command(["kubectl", "get", "jobs", f"--selector=app={NAME}", "--output=json"])
        try:
            states = [item.get("status", {}) for item in json.loads(listing)["items"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unavailable(f"kubectl answered no list of jobs: {listing[:100]!r}") from None
        running = sum(bool(state.get("active")) and bool(state.get("ready")) for state in states)
        done = sum(bool(state.get("succeeded") or state.get("failed")) for state in states)
        return Pilots(len(states) - running - done, running)

    def submit(self) -> str:
        """Create with `kubectl`."""
        return run_command(["kubectl", "create", "--filename=-", "--output=name"], self._job).strip()


class SkyPilot:
    """Managed jobs of SkyPilot."""

    def __init__(self, path: str) -> None:
        self._path = path

    def count(self) -> Pilots:
        """Return the unfinished jobs by their name."""
        listing = run_command(["sky", "jobs", "queue", "--skip-finished"])
        states = [line for line in listing.splitlines() if NAME in line]
        running = sum("RUNNING" in line for line in states)
        return Pilots(len(states) - running, running)

    def submit(self) -> str:
        """Launch with `sky jobs launch`, without waiting for the job."""
        return run_command(["sky", "jobs", "launch", "--yes", "--detach-run", self._path]).strip()[-200:]


def run_command(command: Sequence[str], text: str = "") -> str:
    """Return the output of a command. Raises Unavailable with the command's message if it fails or hangs."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not answer within {SECONDS} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{command[0]} failed: {words[-1][:300] if words else done.returncode}")
    return done.stdout
