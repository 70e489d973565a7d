"""Compare the bytes per metric point of a sealed run with TensorBoard, Trackio and Parquet.

    python -m benchmarks.storage            20 runs x 10,000 steps, some minutes
    python -m benchmarks.storage --quick    a small size, whose result is not kept

The peers are installed into separate environments, `.venv-tensorboard` and `.venv-trackio`. The results
are written to results.md in this directory; `make docs` copies them into docs/.
"""

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert

from backend.metrics.store import write_points
from backend.storage.engine import open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Attempt, Run
from benchmarks.common.installation import installation
from benchmarks.common.peers import ensure_python, run
from benchmarks.curves.data import METRIC_NAME, make_names, make_values
from benchmarks.scale.fill import attempt_row, seal_all
from benchmarks.storage.rows import run_row
from benchmarks.storage.used import used_bytes

HERE = Path(__file__).parent
SIDES_PATH = HERE.parent / "curves" / "sides.py"
PEER_NAMES = ("tensorboard", "trackio")
TABLE_NAMES = ("metric", "metric_block")

Curves = dict[str, NDArray[np.float64]]


def main() -> None:
    parser = argparse.ArgumentParser(description="bytes of a point beside other stores")
    parser.add_argument("--quick", action="store_true", help="a small size, whose result is not kept")
    quick = parser.parse_args().quick
    runs, steps = (3, 2_000) if quick else (20, 10_000)
    curves = {name: np.array(make_values(number, steps)) for number, name in enumerate(make_names(runs))}
    rounded_curves = {name: values.astype(np.float32).astype(np.float64) for name, values in curves.items()}
    columns = [measured(curves), measured(rounded_curves)]
    setting = (
        f"{runs} runs x {steps:,} steps of one metric, noise around a rise with a spike and a NaN in each; "
        "files and tables, vacuumed, divided by points; "
        f"{platform.machine()}, Python {platform.python_version()}."
    )
    lines = [
        setting,
        "",
        "| bytes a point | random float64 | the same as float32 |",
        "|---|---|---|",
        *(f"| {name} | {columns[0][name]:.1f} | {columns[1][name]:.1f} |" for name in columns[0]),
    ]
    print("\n".join(lines))
    if not quick:
        (HERE / "results.md").write_text("\n".join(lines) + "\n")


def measured(curves: Curves) -> dict[str, float]:
    """Return the bytes per point of each store."""
    points = sum(map(len, curves.values()))
    byte_counts: dict[str, float] = {}
    for database in ("sqlite", "postgres"):
        row_bytes, sealed_bytes = measure_bytes(database, curves)
        byte_counts |= {
            f"GRPO Lab, {database}, sealed": sealed_bytes,
            f"GRPO Lab, {database}, while it trains": row_bytes,
        }
    byte_counts["Parquet, a file for each run, zstd"] = parquet(curves)
    for peer in PEER_NAMES:
        size, version = peer_bytes(peer, curves)
        byte_counts[f"{peer} {version}"] = size
    return {name: size / points for name, size in byte_counts.items()}


def measure_bytes(database: str, curves: Curves) -> tuple[int, int]:
    """Return the bytes of the points as rows and in blocks."""
    with installation(database) as installed:
        upgrade(installed.url)
        engine = open_engine(installed.url, pool_size=2)
        sessions = open_sessions(engine)
        empty_bytes = used_bytes(sessions, TABLE_NAMES)
        for number, (name, values) in enumerate(curves.items()):
            with sessions.begin() as session:
                row = run_row(number, name, len(values))
                session.execute(insert(Run), [row])
                session.execute(insert(Attempt), [attempt_row(row["id"])])
                points = ((step, {METRIC_NAME: reward}) for step, reward in enumerate(values.tolist(), 1))
                write_points(session, row["id"], 1, points)
        row_bytes = used_bytes(sessions, TABLE_NAMES)
        seal_all(sessions)
        sealed_bytes = used_bytes(sessions, TABLE_NAMES)
        engine.dispose()
    return row_bytes - empty_bytes, sealed_bytes - empty_bytes


def parquet(curves: Curves) -> int:
    """Return the bytes of Parquet columns of step and value."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as directory:
        for name, values in curves.items():
            steps = pa.array(np.arange(1, len(values) + 1), pa.int32())
            table = pa.table({"step": steps, "value": pa.array(values, pa.float64())})
            pq.write_table(table, f"{directory}/{name}.parquet", compression="zstd")
        return sum(file_sizes(Path(directory)))


def peer_bytes(peer: str, curves: Curves) -> tuple[int, str]:
    """Return the bytes that a peer's own client writes, and its version."""
    with tempfile.TemporaryDirectory() as root:
        curves_directory, directory = Path(root, "curves"), Path(root, "stored")
        curves_directory.mkdir()
        directory.mkdir()
        for name, values in curves.items():
            (curves_directory / name).write_text(json.dumps(values.tolist()))
        job = {
            "peer": peer,
            "directory": str(directory),
            "curves": str(curves_directory),
            "names": list(curves),
        }
        created = run(ensure_python(peer), SIDES_PATH, job | {"within": 600.0, "threads": 1})
        if len(created["ids"]) < len(curves):
            raise SystemExit(f"{peer} stored {len(created['ids'])} of {len(curves)} runs")
        return sum(file_sizes(directory)), created["version"]


def file_sizes(directory: Path) -> Iterator[int]:
    """Yield the size of every file in a directory, in bytes."""
    return (path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
