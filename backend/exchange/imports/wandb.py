"""Offline runs of W&B: the `.wandb` file in `wandb/offline-run-*`, with its history, config and exit code.

Format: wandb.proto.wandb_internal_pb2, versions 0.16 to 0.31.
"""

from backend.exchange.imports.binary import BinaryReader, FileContents, build_table
from backend.exchange.imports.leveldb_log import HEADER_BYTES
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog, as_number


def read_wandb(file: LogFile) -> Log:
    """Return the history of the run; raise BadLog if the file is damaged. A truncated end is noted."""
    contents = BinaryReader("wandb", file).read_all(HEADER_BYTES, file.content.seek(0, 2))
    if not len(contents.points.value):
        raise BadLog("has no history")
    return Log(build_table(contents.points, "_step", {}), _read_metadata(contents))


def _read_metadata(contents: FileContents) -> LogMetadata:
    config = {name: value for name, value in contents.config.items() if name and name != "_wandb"}
    seed, code = config.get("seed"), contents.facts.get("exit_code")
    return LogMetadata(
        name=str(contents.facts.get("name") or ""),
        config=config,
        seed=seed if type(seed) is int else None,
        started_at=as_number(contents.facts.get("started_at")),
        failure=f"the process ended with exit code {code}" if isinstance(code, int) and code else "",
        notes=contents.note(),
    )
