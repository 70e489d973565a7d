"""Load the same curves into a peer through its Python API, in the peer's environment.

The job is JSON on standard input with `peer`, `directory`, `curves` (a directory with a file for each run,
or null), `names` (the runs to create) and `within` (seconds after which no more runs are started). Runs
with curves get `reward/mean` at each step, and the others get one value. The process prints the ids of the
runs, the seconds it took and the peer's version.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

METRIC_NAME = "reward/mean"
Curves = Iterator[tuple[str, list[float]]]


def main() -> None:
    job = json.load(sys.stdin)
    directory = Path(job["directory"])
    curves = [
        (name, json.loads(Path(job["curves"], name).read_text()) if job["curves"] else [0.5])
        for name in job["names"]
    ]
    os.environ |= {
        "TRACKIO_DIR": str(directory),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "AIM_LOG_LEVEL": "error",
    }
    started_at = time.perf_counter()
    in_time = takewhile(lambda _: time.perf_counter() - started_at < job["within"], curves)
    ids = LOADER_BY_PEER[job["peer"]](directory, in_time)
    seconds = time.perf_counter() - started_at
    print(json.dumps({"ids": ids, "seconds": seconds, "version": version(job["peer"])}))


def into_mlflow(directory: Path, curves: Curves) -> list[str]:
    """Write batches of 1,000 points, the limit of a call, to a tracking store in SQLite."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{directory}/mlflow.db")
    existing_experiment = client.get_experiment_by_name("curves")
    experiment = (
        existing_experiment.experiment_id
        if existing_experiment
        else client.create_experiment("curves", f"file://{directory}/artifacts")
    )
    ids = []
    for name, values in curves:
        run = client.create_run(experiment, run_name=name).info.run_id
        points = [
            Metric(METRIC_NAME, reward, 1_700_000_000_000 + step, step)
            for step, reward in enumerate(values, 1)
        ]
        for first in range(0, len(points), 1_000):
            client.log_batch(run, metrics=points[first : first + 1_000])
        client.set_terminated(run)
        ids.append(run)
    return ids


def into_aim(directory: Path, curves: Curves) -> list[str]:
    """Write point by point, because the client has no batches."""
    import aim

    ids = []
    for name, values in curves:
        run = aim.Run(
            repo=str(directory), experiment="curves", system_tracking_interval=None, log_system_params=False
        )
        run.name = name
        for step, reward in enumerate(values, 1):
            run.track(reward, name=METRIC_NAME, step=step)
        ids.append(run.hash)
        run.close()
    return ids


def into_trackio(directory: Path, curves: Curves) -> list[str]:
    """Write a run's points at once, as its client sends a full buffer."""
    from trackio.sqlite_storage import SQLiteStorage

    ids = []
    for name, values in curves:
        ids.append(name)
        SQLiteStorage.bulk_log(
            "curves",
            name,
            [{METRIC_NAME: reward} for reward in values],
            steps=list(range(1, len(values) + 1)),
            run_id=name,
        )
    return ids


def into_tensorboard(directory: Path, curves: Curves) -> list[str]:
    """Write a file of events for each run."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    ids = []
    for name, values in curves:
        ids.append(name)
        writer = EventFileWriter(str(directory / name), max_queue_size=len(values))
        for step, reward in enumerate(values, 1):
            summary = Summary(value=[Summary.Value(tag=METRIC_NAME, simple_value=reward)])
            writer.add_event(Event(wall_time=1_700_000_000.5 + step, step=step, summary=summary))
        writer.close()
    return ids


LOADER_BY_PEER: dict[str, Callable[[Path, Curves], list[str]]] = {
    "mlflow": into_mlflow,
    "aim": into_aim,
    "trackio": into_trackio,
    "tensorboard": into_tensorboard,
}

if __name__ == "__main__":
    main()
