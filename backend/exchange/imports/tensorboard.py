"""Event files of TensorBoard, as written by torch, tensorboardX, TensorFlow and Hugging Face.

Scalars are read from `simple_value` and tensors; images, histograms and graphs are skipped.
Format: tensorboard.compat.proto.event_pb2, versions 2.10 to 2.20.
"""

from array import array
from typing import Any

import numpy as np

from backend.exchange.imports.binary import PART_BYTES, BinaryReader, Points, joined, table_of
from backend.exchange.imports.lines import parse
from backend.exchange.imports.log import Facts, Log
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
            notes.append(f"The file ends in the middle of a record: {end - offset:,} bytes are left out.")
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
    points = joined(chunks)
    if not len(points.value):
        raise BadLog("has no scalars")
    log = Log(table_of(points, "step", _seconds(points.time)), _facts(points, metadata), step="step")
    log.facts.notes += notes
    return log


def merged_events(logs: list[Log]) -> Log:
    """Return one log of several event files of a run, ordered by their start."""
    logs = sorted(logs, key=lambda log: log.facts.started_at or 0.0)
    first = logs[0]
    for log in logs[1:]:
        delay = (log.facts.started_at or 0.0) - (first.facts.started_at or 0.0)
        if "_runtime" in log.table.columns:
            column = log.table.columns["_runtime"]
            column.values = array("d", (value + delay for value in column.values))
        first.table.append(log.table)
        first.facts.config = first.facts.config or log.facts.config
        first.facts.seed = log.facts.seed if first.facts.seed is None else first.facts.seed
        first.facts.finished_at = log.facts.finished_at or first.facts.finished_at
        first.facts.notes += log.facts.notes
    if len(logs) > 1:
        first.facts.notes.append(f"{len(logs)} event files of one directory are one run.")
    return first


def _seconds(times: Any) -> dict[str, Any]:
    """Return the seconds since the first value, under the name that W&B uses."""
    finite = times[np.isfinite(times)]
    return {"_runtime": times - finite.min()} if len(finite) else {}


def _facts(points: Points, facts: dict[str, Any]) -> Facts:
    config: Any = {}
    for name in ARGUMENTS:
        try:
            config = config or parse(str(facts.get(name, "null")).strip("`\n "))
        except ValueError:
            continue
    config = config if isinstance(config, dict) else {}
    seed, times = config.get("seed"), points.time[np.isfinite(points.time)]
    return Facts(
        config=config,
        seed=seed if type(seed) is int else None,
        started_at=float(times.min()) if len(times) else None,
        finished_at=float(times.max()) if len(times) else None,
    )
