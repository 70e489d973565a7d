"""Local runs of SwanLab: the file `run-*.swanlab` or `backup.swanlab` in `swanlog/run-*`.

The config is not in it, but in `files/config.yaml` beside it.
Format: swanlab.proto.swanlab.record.v1.record_pb2, version 0.10; JSON in versions 0.6 and 0.7.
"""

from backend.exchange.imports.binary import BinaryReader, build_table, sort_by_step, times_of
from backend.exchange.imports.leveldb_log import HEADER_BYTES
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog


def read_swanlab(file: LogFile) -> Log:
    """Return the scalars of the run; raise BadLog if the file is damaged. A truncated end is noted."""
    contents = BinaryReader("swanlab", file).read_all(HEADER_BYTES, file.content.seek(0, 2))
    points = sort_by_step(contents.points)  # without `step`, each metric has a count of its own
    if not len(points.value):
        raise BadLog("has no scalars")
    times = times_of(points)
    metadata = LogMetadata(
        name=str(contents.facts.get("name") or ""),
        started_at=times.started_at,
        finished_at=times.finished_at,
        failure=str(contents.facts.get("failure") or ""),
        notes=contents.note(),
    )
    return Log(build_table(points, "_step", times.columns), metadata)
