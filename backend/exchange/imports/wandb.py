"""Offline runs of W&B: the `.wandb` file in `wandb/offline-run-*`, with its history, config and exit code.

Format: wandb.proto.wandb_internal_pb2, versions 0.16 to 0.31.
"""

from typing import Any

from backend.exchange.imports.binary import BinaryReader, Points, joined, table_of
from backend.exchange.imports.log import Facts, Log
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
    points = joined(chunks)
    if not len(points.value):
        raise BadLog("has no history")
    log = Log(table_of(points, "_step", {}), _facts(metadata, config))
    if end - offset > HEADER_BYTES:
        log.facts.notes.append(
            f"The file ends in the middle of a record: {end - offset:,} bytes are left out."
        )
    return log


def _facts(facts: dict[str, Any], config: dict[str, Any]) -> Facts:
    config = {name: value for name, value in config.items() if name and name != "_wandb"}
    seed, code, started_at = config.get("seed"), facts.get("exit_code"), as_number(facts.get("started_at"))
    return Facts(
        name=str(facts.get("name") or ""),
        config=config,
        seed=seed if type(seed) is int else None,
        started_at=started_at,
        failure=f"the process ended with exit code {code}" if isinstance(code, int) and code else "",
    )
