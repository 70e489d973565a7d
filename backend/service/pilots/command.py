"""The command `pilots`, which keeps as many pilot workers on a cluster as the queue needs."""

import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from backend.base.errors import Conflict, GrpoLabError
from backend.base.locations import CODE_ROOT, FILES_ROOT
from backend.base.settings import Settings
from backend.service.pilots import jobs
from backend.service.pilots.clusters import Cluster, Kubernetes, SkyPilot, Slurm
from backend.service.pilots.need import compute_need
from backend.storage.artifacts.store import STORAGE_VARIABLES
from backend.storage.engine import open_engine, open_read_session, open_sessions


def keep_pilots(
    settings: Settings, *, most: int, every: float, once: bool, devices: int, nodes: int, **options: Any
) -> Iterator[str]:
    """Poll the queue regularly and submit missing pilots; yield lines for the terminal.

    If the cluster or the database is unavailable, this is reported once, and polling continues. SIGTERM and
    Ctrl-C end the command, but not the pilots.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    sessions = open_sessions(open_engine(settings.effective_database_url))
    last_error = ""
    with _cluster(settings, devices=devices, nodes=nodes, **options) as cluster:
        while not stopping.is_set():
            try:
                pilots = cluster.count()
                with open_read_session(sessions) as session:
                    need = compute_need(session, pilots, max_pilots=most, devices=devices, nodes=nodes)
                for _ in range(need.pilots):
                    waiting_note = f"{need.runs} runs waited for {sum(pilots)} pilots"
                    yield f"started pilot {cluster.submit()}: {waiting_note}"
                last_error = ""
            except (GrpoLabError, SQLAlchemyError) as error:
                message = error.detail if isinstance(error, GrpoLabError) else str(error).splitlines()[0]
                if once:
                    raise
                if message != last_error:
                    yield f"trying again every {every:g} s: {message}"
                last_error = message
            if once:
                return
            stopping.wait(every)


@contextmanager
def _cluster(
    settings: Settings, *, cluster: str, runs: int, idle: int, devices: int, nodes: int, **options: Any
) -> Iterator[Cluster]:
    limits = {"runs": runs, "idle_seconds": idle, "devices": devices, "nodes": nodes}
    match cluster:
        case "slurm":
            yield Slurm(_slurm_script(settings, options["option"], limits))
        case "kubernetes":
            yield Kubernetes(_kubernetes_job(settings, options, limits))
        case _:
            with tempfile.TemporaryDirectory(prefix="grpolab-pilots-") as directory:
                path = Path(directory) / "task.yaml"
                path.write_text(_skypilot_task(settings, options, limits), encoding="utf-8")
                yield SkyPilot(str(path))


def job_text(
    settings: Settings, *, cluster: str, runs: int, idle: int, devices: int, nodes: int, **options: Any
) -> str:
    """Return the job that will be sent to the cluster, for review."""
    limits = {"runs": runs, "idle_seconds": idle, "devices": devices, "nodes": nodes}
    match cluster:
        case "slurm":
            return _slurm_script(settings, options["option"], limits)
        case "kubernetes":
            return json.dumps(_kubernetes_job(settings, options, limits), indent=2) + "\n"
    return _skypilot_task(settings, options, limits)


def _slurm_script(settings: Settings, options: list[str], limits: dict[str, int]) -> str:
    output = settings.state / "pilots"
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = jobs.worker_command(jobs.this_python(), **limits)
    return jobs.slurm_script(command, CODE_ROOT, options, str(output / "%j.log"), nodes=limits["nodes"])


def _kubernetes_job(settings: Settings, options: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    if not options["volume"]:
        if not settings.artifacts_url:
            raise Conflict("pods without a volume lose checkpoints: set ARTIFACTS_URL, or name a --volume")
        if limits["nodes"] > 1:
            raise Conflict("the nodes of one run share a state directory: name a --volume")
    return jobs.kubernetes_job(
        jobs.worker_command("python", **limits),
        image=options["image"],
        gpus=options["gpus"],
        queue=options["queue"],
        secret=options["secret"],
        state_claim=options["volume"],
        nodes=limits["nodes"],
    )


def _skypilot_task(settings: Settings, options: dict[str, Any], limits: dict[str, int]) -> str:
    if FILES_ROOT != CODE_ROOT:
        raise Conflict("SkyPilot copies a checkout to its machines: run this command from one")
    names = ["DATABASE_URL", "BROKER_URL", "GRPOLAB_TOKEN"]
    if settings.artifacts_url:
        variables = sorted(name for name in os.environ if name.startswith(STORAGE_VARIABLES))
        names += ["ARTIFACTS_URL", *variables]
    return jobs.skypilot_task(
        jobs.worker_command(".venv/bin/python", **limits),
        accelerators=options["accelerators"],
        directory=str(CODE_ROOT),
        environment=dict.fromkeys(names, ""),
        nodes=limits["nodes"],
    )
