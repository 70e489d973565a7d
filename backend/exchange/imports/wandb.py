"""Offline runs of W&B: the `.wandb` file in `wandb/offline-run-*`, with its history, config and exit code.

Format: wandb.proto.wandb_internal_pb2, versions 0.16 to 0.31.
"""

from typing import Any

from backend.exchange.imports.binary import BinaryReader, Points, build_table, join_points
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog, as_number
from backend.exchange.imports.wandb_file import HEADER_BYTES


def read_wandb(file: LogFile) -> Log:
    """Return the history of the run; raise BadLog if the file is damaged. A truncated end is noted."""
    end, offset, chunks, metadata = file.content.seek(0, 2), HEADER_BYTES, list[Points](), dict[str, Any]()
    config: dict[str, Any] = {}
    reader = BinaryReader("wandb", file)
    while offset < end and (answer := reader.read(offset)) is not None:
        chunks.append(answer.points)
        config_part = answer.facts.pop("config", None)
        config |= config_part if isinstance(config_part, dict) else {}
        metadata |= answer.facts
        offset += answer.used
    points = join_points(chunks)
    if not len(points.value):
        raise BadLog("has no history")
    log = Log(build_table(points, "_step", {}), _read_metadata(metadata, config))
    if end - offset > HEADER_BYTES:
        log.metadata.notes.append(
            f"The file ends in the middle of a record: {end - offset:,} bytes are left out."
        )
    return log


def _read_metadata(metadata: dict[str, Any], config: dict[str, Any]) -> LogMetadata:
    config = {name: value for name, value in config.items() if name and name != "_wandb"}
    seed, code, started_at = (
        config.get("seed"),
        metadata.get("exit_code"),
        as_number(metadata.get("started_at")),
    )
    return LogMetadata(
        name=str(metadata.get("name") or ""),
        config=config,
        seed=seed if type(seed) is int else None,
        started_at=started_at,
        failure=f"the process ended with exit code {code}" if isinstance(code, int) and code else "",
    )
