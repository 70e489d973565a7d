"""Event files of TensorBoard, as written by torch, tensorboardX, TensorFlow and Hugging Face.

Scalars are read from `simple_value` and tensors; images, histograms and graphs are skipped.
Format: tensorboard.compat.proto.event_pb2, versions 2.10 to 2.20.
"""

from array import array
from typing import Any

from backend.exchange.imports.binary import (
    PART_BYTES,
    BinaryReader,
    Points,
    Times,
    build_table,
    incomplete_record_note,
    join_points,
    times_of,
)
from backend.exchange.imports.lines import parse
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog
from backend.exchange.imports.tfrecord import HEADER_BYTES, record_bytes

ARGUMENTS = ("args/text_summary", "args")
"""Names of the text with the training arguments as JSON, which the callback of Hugging Face writes."""


def read_tensorboard(log_file: LogFile) -> Log:
    """Return all scalars of an event file; raise BadLog if it is damaged. A truncated end is noted."""
    file = log_file.content
    end, offset, chunks, metadata = file.seek(0, 2), 0, list[Points](), dict[str, Any]()
    notes = []
    reader = BinaryReader("tensorboard", log_file)
    while offset < end:
        file.seek(offset)
        size = record_bytes(file.read(HEADER_BYTES))
        if size is None or offset + size > end:
            notes.append(incomplete_record_note(end - offset))
            break
        if size > PART_BYTES:  # an image or a histogram
            offset += size
            continue
        answer = reader.read(offset)
        if answer is None:
            break
        chunks.append(answer.points)
        metadata |= answer.facts
        offset += answer.used
    points = join_points(chunks)
    if not len(points.value):
        raise BadLog("has no scalars")
    times = times_of(points)
    log = Log(build_table(points, "step", times.columns), _read_metadata(times, metadata), step="step")
    log.metadata.notes += notes
    return log


def merged_events(logs: list[Log]) -> Log:
    """Return one log of several event files of a run, ordered by their start."""
    logs = sorted(logs, key=lambda log: log.metadata.started_at or 0.0)
    first = logs[0]
    for log in logs[1:]:
        delay = (log.metadata.started_at or 0.0) - (first.metadata.started_at or 0.0)
        if "_runtime" in log.table.columns:
            column = log.table.columns["_runtime"]
            column.values = array("d", (value + delay for value in column.values))
        first.table.append(log.table)
        first.metadata.config = first.metadata.config or log.metadata.config
        first.metadata.seed = log.metadata.seed if first.metadata.seed is None else first.metadata.seed
        first.metadata.finished_at = log.metadata.finished_at or first.metadata.finished_at
        first.metadata.notes += log.metadata.notes
    if len(logs) > 1:
        first.metadata.notes.append(f"{len(logs)} event files of one directory are one run.")
    return first


def _read_metadata(times: Times, metadata: dict[str, Any]) -> LogMetadata:
    config: Any = {}
    for name in ARGUMENTS:
        try:
            config = config or parse(str(metadata.get(name, "null")).strip("`\n "))
        except ValueError:
            continue
    config = config if isinstance(config, dict) else {}
    seed = config.get("seed")
    return LogMetadata(
        config=config,
        seed=seed if type(seed) is int else None,
        started_at=times.started_at,
        finished_at=times.finished_at,
    )
