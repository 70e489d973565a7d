"""Formats of logs: detect the format of a file by its content, and read it."""

import codecs
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import IO, NamedTuple

from backend.exchange.imports import leveldb_log, tfrecord
from backend.exchange.imports.archive import read_archive, read_gzip
from backend.exchange.imports.collectors import HEAD_BYTES, unwrapped_lines
from backend.exchange.imports.console.trainings import read_console
from backend.exchange.imports.databases import read_database
from backend.exchange.imports.dumps import is_dump, read_dump, read_torch_dump, split_of_file
from backend.exchange.imports.guess import step_candidates
from backend.exchange.imports.lines import NotUtf8, parse
from backend.exchange.imports.log import Log
from backend.exchange.imports.log_file import ImportSandbox, LogFile
from backend.exchange.imports.mlflow import is_metric_file, read_metric_file
from backend.exchange.imports.parquet import read_parquet
from backend.exchange.imports.runs import split_trainings
from backend.exchange.imports.swanlab import read_swanlab
from backend.exchange.imports.table import BadLog
from backend.exchange.imports.tensorboard import read_tensorboard
from backend.exchange.imports.text_formats import is_csv, read_csv, read_jsonl
from backend.exchange.imports.token_exports import is_token_export, read_token_export
from backend.exchange.imports.trl import read_trl
from backend.exchange.imports.verl import read_verl_file, read_verl_rollouts
from backend.exchange.imports.wandb import read_wandb
from backend.exchange.imports.web_pages import read_html, read_notebook

MAX_WRAPPERS = 2
"""Maximum number of log collectors whose additions are undone, such as Docker's around those of `ts`."""
GZIP = b"\x1f\x8b"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16 text, which PowerShell writes."""
WESTERN = "windows-1252"
"""Encoding of text that is not UTF-8: Excel's default in Western languages, and a superset of Latin-1."""
ROLLOUT_FIELDS = {"input", "output", "score", "step"}
"""Fields of a completion in a rollout dump of verl."""

Reader = Callable[[LogFile], list[Log]]
"""A function that returns a log for each run of a file and raises BadLog."""


class Format(NamedTuple):
    """A format of files."""

    title: str
    origin: str
    """Origin of the runs, see `backend.runs.origin`."""
    read: Reader
    restarts: bool = False
    """Whether a file may contain several consecutive trainings."""


_NOTEBOOK_PATTERN = re.compile(r'"(?:cells|nbformat|worksheets)"\s*:')
_JSON_PATTERN = re.compile(r"""\{\s*(?:"|\}|$)|\[\s*(?:[\[{"\]]|-?\d[\d.eE+-]*\s*[,\]]|$)""")
"""Pattern of the start of JSON, which Python's dicts and the timestamps of loggers do not match."""
_PAGE_PATTERN = re.compile(r"<(?:table|html|!doctype|head|body)\b", re.IGNORECASE)

FORMATS: dict[str, Format] = {
    "csv": Format("CSV with a header", "csv", read_csv, restarts=True),
    "jsonl": Format("JSONL, an object a line", "jsonl", read_jsonl, restarts=True),
    "parquet": Format("Parquet", "parquet", read_parquet),
    "trl": Format("TRL trainer_state.json", "trl", read_trl),
    "verl": Format("verl JSONL", "verl", lambda file: [read_verl_file(file)], restarts=True),
    "verl-rollouts": Format(
        "verl rollout dump",
        "verl",
        lambda file: [read_verl_rollouts(file, split=split_of_file(file.name))],
    ),
    "rollouts": Format("dump of completions", "jsonl", lambda file: [read_dump(file)]),
    "token-export": Format("token export of prime-rl", "jsonl", lambda file: [read_token_export(file)]),
    "torch-rollouts": Format("rollouts of slime or miles", "", lambda file: [read_torch_dump(file)]),
    "console": Format("printed lines of metrics", "text", read_console, restarts=True),
    "verl-console": Format("verl console output", "verl", read_console, restarts=True),
    "notebook": Format("Jupyter notebook", "text", read_notebook, restarts=True),
    "html": Format("HTML page with a table", "text", read_html, restarts=True),
    "mlflow": Format("metric file of MLflow", "mlflow", read_metric_file),
    "tensorboard": Format("TensorBoard event file", "tensorboard", lambda file: [read_tensorboard(file)]),
    "wandb": Format("W&B .wandb file", "wandb", lambda file: [read_wandb(file)]),
    "swanlab": Format("SwanLab .swanlab file", "swanlab", lambda file: [read_swanlab(file)]),
    "sqlite": Format("database of Trackio or MLflow", "", read_database),
    "zip": Format("zip archive of logs", "", lambda file: read_archive(file, "zip", _read_member)),
    "tar": Format("tar archive of logs", "", lambda file: read_archive(file, "tar", _read_member)),
}
ARCHIVES = ("zip", "tar")

ZIP = b"PK\x03\x04"
TORCH = b"/data.pkl"
"""Suffix of the name of the first file in a zip archive that torch has written."""
MAX_MEMBER_CHARACTERS = 400
MAGIC_BYTES = (
    (leveldb_log.WANDB, "wandb"),
    (leveldb_log.SWANLAB, "swanlab"),
    (b"PAR1", "parquet"),
    (ZIP, "zip"),
    (b"SQLite format 3\0", "sqlite"),
)

FOREIGN = (
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd: unpack it first"),
    (b"PK\x05\x06", "is an empty zip archive"),
    (b"7z\xbc\xaf", "is a 7z archive: unpack it and make a zip or tar file of it"),
    (b"%PDF", "is a PDF"),
)
"""First bytes of unsupported files, and what to do."""


def detect(file: IO[bytes]) -> str:
    """Return the format of a file by its content; raise BadLog if it is not supported."""
    file.seek(0)
    head = file.read(HEAD_BYTES)
    if not head.strip():
        raise BadLog("is empty")
    if tfrecord.is_framed(head):
        return "tensorboard"
    if head.startswith(ZIP) and TORCH in head[:MAX_MEMBER_CHARACTERS]:
        return "torch-rollouts"
    for magic, name in MAGIC_BYTES:
        if head.startswith(magic):
            return name
    if head[257:262] == b"ustar":
        return "tar"
    for magic, reason in FOREIGN:
        if head.startswith(magic):
            raise BadLog(reason)
    if b"\0" in head:
        raise BadLog(f"is a binary file of an unknown kind; {_format_titles()} are read")
    return _text_format(head.decode("utf-8-sig", errors="replace"))


def _text_format(head: str) -> str:
    text = head.lstrip()
    first, _, remaining_text = text.partition("\n")
    if text.startswith("{") and '"log_history"' in head and not _is_object(first):
        return "trl"
    if text.startswith("{") and _NOTEBOOK_PATTERN.search(head):
        return "notebook"
    if _JSON_PATTERN.match(text) and _may_be_json(first.rstrip(), remaining_text):
        return _json_format(first.rstrip())
    if is_metric_file(first, remaining_text):
        return "mlflow"
    if text.startswith("<") and _PAGE_PATTERN.search(head):
        return "html"
    return "csv" if is_csv(first, remaining_text) else "console"


def _may_be_json(first: str, remaining_text: str) -> bool:
    """Return whether text that starts like JSON also continues like it; `[0] step=1` does not."""
    return not remaining_text or first[-1] in "{[,]}" or _is_json(first)


def _json_format(first: str) -> str:
    row = parse(first) if _is_object(first) else {}
    if isinstance(row.get("log_history"), list):
        return "trl"
    if row.keys() >= ROLLOUT_FIELDS:
        return "verl-rollouts"
    if is_token_export(row):
        return "token-export"
    if is_dump(row):
        return "rollouts"
    return "verl" if isinstance(row.get("data"), dict) and "step" in row else "jsonl"


def _is_object(text: str) -> bool:
    return _is_json(text) and isinstance(parse(text), dict)


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _format_titles() -> str:
    titles = [format_.title for format_ in FORMATS.values()]
    return f"{', '.join(titles[:-1])} and {titles[-1]}"


def read_logs(file: IO[bytes], name: str = "", format_name: str | None = None) -> tuple[str, list[Log]]:
    """Return the format, detected by default, and a log for each run; raise BadLog."""
    with ImportSandbox() as sandbox:
        return _read(LogFile(file, sandbox, name), format_name)


def _read(file: LogFile, format_name: str | None = None) -> tuple[str, list[Log]]:
    file.content.seek(0)
    head = file.content.read(len(GZIP))
    if format_name is None and head == GZIP:
        return read_gzip(file, _read_unpacked)
    if head in UTF_16:
        return _read_converted(file, "utf-16", format_name)
    return _read_plain(file, format_name)


def _read_plain(
    file: LogFile, format_name: str | None, *, max_wrappers: int = MAX_WRAPPERS
) -> tuple[str, list[Log]]:
    """Read a file that is neither packed nor UTF-16."""
    if max_wrappers and (blocks := unwrapped_lines(file.content)) is not None:
        return _read_text(file, blocks, format_name, max_wrappers=max_wrappers - 1)
    chosen_format = format_name or detect(file.content)
    file.content.seek(0)
    try:
        logs = FORMATS[chosen_format].read(file)
    except NotUtf8 as error:
        if not error.may_be_western:
            raise
        chosen_format, logs = _read_converted(file, WESTERN, chosen_format)
        logs[0].metadata.notes.append("The text is not UTF-8; it is read as Windows-1252 (Latin-1).")
        return chosen_format, logs
    if len(logs) == 1 and FORMATS[chosen_format].restarts and logs[0].completions is None:
        candidates = [logs[0].step] if logs[0].step else step_candidates(logs[0].table)[:1]
        logs = [
            training_log for step in candidates for training_log in split_trainings(logs[0], step)
        ] or logs
    for log in logs:
        log.origin = log.origin or FORMATS[chosen_format].origin
        log.redact()
    return chosen_format, logs


def _read_converted(file: LogFile, encoding: str, format_name: str | None) -> tuple[str, list[Log]]:
    """Convert text from another encoding to UTF-8 and read it."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    file.content.seek(0)
    blocks = iter(lambda: file.content.read(HEAD_BYTES), b"")
    return _read_text(
        file,
        (decoder.decode(block, final=not block).encode() for block in chain(blocks, (b"",))),
        format_name,
    )


def _read_text(
    file: LogFile, blocks: Iterable[bytes], format_name: str | None, *, max_wrappers: int = MAX_WRAPPERS
) -> tuple[str, list[Log]]:
    """Read the text that was made of a file."""
    path = file.sandbox.new_path()
    with path.open("w+b") as text:
        text.writelines(blocks)
        text.flush()
        text_file = LogFile(text, file.sandbox, file.name, path, file.max_values)
        return _read_plain(text_file, format_name, max_wrappers=max_wrappers)


def _read_unpacked(file: LogFile) -> tuple[str, list[Log]]:
    """Read the content of a gzip file, which must not be compressed twice."""
    file.content.seek(0)
    if file.content.read(len(GZIP)) == GZIP:
        raise BadLog("is packed with gzip twice")
    return _read(file)


def _read_member(file: LogFile) -> tuple[str, list[Log]]:
    """Read a file in an archive; nested archives are refused."""
    file.content.seek(0)
    chosen_format = None if file.content.read(len(GZIP)) in UTF_16 else detect(file.content)
    if chosen_format in ARCHIVES:
        raise BadLog("is an archive in an archive")
    return _read(file, chosen_format)
