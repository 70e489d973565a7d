"""Formats of logs: what a file is by its content, and which function reads it."""

from collections.abc import Callable
from typing import IO, NamedTuple

from backend.imports import tfrecord, wandb_file
from backend.imports.lines import parse
from backend.imports.table import BadLog, Log
from backend.imports.tensorboard import read_tensorboard
from backend.imports.text_formats import delimiter_of, read_csv, read_jsonl
from backend.imports.trl import read_trl
from backend.imports.verl import CONSOLE_LINE, read_verl_console, read_verl_file
from backend.imports.wandb import read_wandb

HEAD_BYTES = 65_536

Reader = Callable[[IO[bytes]], Log]


class Format(NamedTuple):
    """A kind of file."""

    title: str
    origin: str
    """As in `backend.runs.origin`."""
    read: Reader


FORMATS: dict[str, Format] = {
    "csv": Format("CSV with a header", "csv", read_csv),
    "jsonl": Format("JSONL, an object a line", "jsonl", read_jsonl),
    "trl": Format("TRL trainer_state.json", "trl", read_trl),
    "verl": Format("verl JSONL", "verl", read_verl_file),
    "verl-console": Format("verl console output", "verl", read_verl_console),
    "tensorboard": Format("TensorBoard event file", "tensorboard", read_tensorboard),
    "wandb": Format("W&B .wandb file", "wandb", read_wandb),
}

FOREIGN = (
    (b"PAR1", "is a Parquet file: export it as CSV, e.g. with pandas"),
    (b"\x1f\x8b", "is compressed with gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd: unpack it first"),
    (b"PK", "is a zip archive: unpack it and import one log"),
    (b"SQLite format 3", "is a SQLite database, which is not read: export the metrics as CSV"),
    (b"%PDF", "is a PDF"),
    (b"\xff\xfe", "is UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text: save it as UTF-8"),
)
"""Beginnings of files that are not read, and what to do."""


def detect(file: IO[bytes]) -> str:
    """The format by content; raises BadLog for a file of none."""
    file.seek(0)
    head = file.read(HEAD_BYTES)
    if not head.strip():
        raise BadLog("is empty")
    if head.startswith(wandb_file.IDENT):
        return "wandb"
    if tfrecord.is_framed(head):
        return "tensorboard"
    for beginning, reason in FOREIGN:
        if head.startswith(beginning):
            raise BadLog(reason)
    if b"\0" in head:
        raise BadLog(f"is a binary file of an unknown kind; {_known()} are read")
    return _text_format(head.decode("utf-8-sig", errors="replace"))


def _text_format(head: str) -> str:
    text = head.lstrip()
    first = text.split("\n", 1)[0].rstrip()
    if text.startswith("{") and '"log_history"' in head and not _is_object(first):
        return "trl"
    if text.startswith(("{", "[")):
        return _json_format(first)
    if any(CONSOLE_LINE.search(line) for line in head.split("\n")):
        return "verl-console"
    if delimiter_of(first) is not None:
        return "csv"
    raise BadLog(f"is text of an unknown kind; {_known()} are read")


def _json_format(first: str) -> str:
    row = parse(first) if _is_object(first) else {}
    if isinstance(row.get("log_history"), list):
        return "trl"
    return "verl" if isinstance(row.get("data"), dict) and "step" in row else "jsonl"


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except ValueError:
        return False


def _known() -> str:
    titles = [each.title for each in FORMATS.values()]
    return f"{', '.join(titles[:-1])} and {titles[-1]}"


def read_log(file: IO[bytes], name: str | None = None) -> tuple[str, Log]:
    """(format, log). `name` chooses the format, else the content does. Raises BadLog."""
    chosen = name or detect(file)
    file.seek(0)
    log = FORMATS[chosen].read(file)
    log.origin = log.origin or FORMATS[chosen].origin
    return chosen, log
