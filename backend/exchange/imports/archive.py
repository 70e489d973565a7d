"""Import archives of logs: a directory of W&B, TensorBoard, MLflow, TRL, verl or prime-rl, as zip or tar.

The contents are listed in the sandbox. The files are unpacked one by one, never under their own names, and
read like any other log. The event files of a directory are one run, and completions belong to the run there.
"""

import os
import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, Literal, NamedTuple

import numpy as np

from backend.exchange.imports.completions import Completions
from backend.exchange.imports.guess import read_steps, step_candidates
from backend.exchange.imports.log import Log
from backend.exchange.imports.log_file import LogFile, invalid_reply
from backend.exchange.imports.mlflow import run_directory
from backend.exchange.imports.operations import MAX_RUNS
from backend.exchange.imports.table import MAX_POINTS, BadLog, Table, TooMany, excerpt, too_many_values
from backend.exchange.imports.tensorboard import merged_events

MAX_FILES = 2_000
MAX_UNPACKED = 1_000_000_000
"""Maximum unpacked size of all files together, in bytes."""
MAX_MEMBERS = 100_000
"""Maximum number of members of a gzip file; appending to the file adds a member."""
CHUNK_BYTES = 1 << 20
GZIP_CHUNK_BYTES = 1 << 16
"""Size of one read in bytes; it is small because the data after each member are copied."""
ZIP_HEADER = struct.Struct("<4s22xHH")
"""Local header of a file: signature, length of the name, length of the extra field."""
STEP_PREFIXES = ("checkpoint-", "global_step_", "step_")
"""Prefixes of directories with a state of the run in the parent directory."""
PARTS = {
    "token_exports",
    "completions",
    "rollout",
    "rollouts",
    "rollout_data",
    "val",
    "validation",
    "validation_data",
    "eval",
}
"""Names of directories with completions of the run in the parent directory."""
IGNORED_SUFFIXES = (
    ".py",
    ".sh",
    ".toml",
    ".yaml",
    ".yml",
    ".cfg",
    ".ini",
    "wandb-summary.json",
    "wandb-metadata.json",
)
"""Suffixes of files that are stored next to a log, but are not logs."""
TRACKER_DIRECTORIES = ("files", "logs", "console", "debug")
TRACKER_SUFFIXES = (".log", ".txt", ".json")
"""Directories that W&B and SwanLab make beside the history of a run, and suffixes of the files in them."""
_OF_A_STEP = re.compile(r"(?:^|/)(?:rollouts|dumped_evals)/(?:global_)?step_\d+[^/]*/.*$", re.DOTALL)
"""Pattern of files with the completions of one step, in subdirectories of the run's directory."""
MERGED_FORMATS = {"tensorboard", "trl", "mlflow"}
"""Formats for which all files in a directory belong to one run."""

ReadFile = Callable[[LogFile], tuple[str, list[Log]]]
"""A function that returns (format, logs) of a file and raises BadLog."""


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int
    packed: int
    size: int
    is_deflated: bool

    @property
    def directory(self) -> str:
        """Directory of the run that this file belongs to; the text is never used as a path."""
        name = _OF_A_STEP.sub("/x", self.name.replace("\\", "/"))
        path_parts = list(PurePosixPath(name).parts[:-1])
        while path_parts and (path_parts[-1].startswith(STEP_PREFIXES) or path_parts[-1].lower() in PARTS):
            path_parts.pop()
        return "/".join(path_part for path_part in path_parts if path_part not in {"/", ".."})


class LogInArchive(NamedTuple):
    """A log in an archive."""

    member: Member
    kind: str
    log: Log

    @property
    def directory(self) -> str:
        """Directory of the run; MLflow keeps the metrics of a run below it."""
        return run_directory(self.member.directory) if self.kind == "mlflow" else self.member.directory


class _Contents:
    """The logs that were read so far, within the limits of an import."""

    def __init__(self) -> None:
        self.found: list[LogInArchive] = []
        self.left = MAX_POINTS
        """Number of values that the import may still read."""
        self._longest: dict[str, LogInArchive] = {}
        """Longest trainer state of TRL in each directory."""
        self._runs: set[tuple[str, str] | int] = set()

    def add(self, log_in_archive: LogInArchive) -> None:
        """Add a log; raise TooMany if a limit is exceeded. Only the longest state of a TRL run keeps its
        values.
        """
        number, kind, directory = len(self.found), log_in_archive.kind, log_in_archive.directory
        self.found.append(log_in_archive)
        self.left -= log_in_archive.log.table.size
        if kind == "trl":
            self._keep_longest(log_in_archive)
        if self.left < 0:
            raise too_many_values()
        if not log_in_archive.log.is_derived:
            self._runs.add((directory, kind) if kind in MERGED_FORMATS else number)
        if len(self._runs) > MAX_RUNS:
            raise _too_many_runs()

    def _keep_longest(self, log_in_archive: LogInArchive) -> None:
        longest = self._longest.setdefault(log_in_archive.directory, log_in_archive)
        if longest is not log_in_archive:
            shorter_log, longer_log = sorted(
                (longest, log_in_archive), key=lambda candidate: len(candidate.log.table)
            )
            self._longest[log_in_archive.directory] = longer_log
            self.left += shorter_log.log.table.size
            shorter_log.log.table = Table()


def _too_many_runs() -> TooMany:
    return TooMany(f"holds more than {MAX_RUNS} runs; that is the limit of one import")


def read_gzip(file: LogFile, read: ReadFile) -> tuple[str, list[Log]]:
    """Return (format, logs) of a gzip-compressed log or archive; raise BadLog if it cannot be read."""
    path = file.sandbox.new_path()
    with path.open("w+b") as unpacked_file:
        file.content.seek(0)
        _gunzip(file.content, unpacked_file, MAX_UNPACKED)
        unpacked_file.flush()
        return read(LogFile(unpacked_file, file.sandbox, file.name.removesuffix(".gz"), path))


def read_archive(file: LogFile, kind: Literal["zip", "tar"], read: ReadFile) -> list[Log]:
    """Return a log for each run in the archive; raise BadLog if there is none."""
    members, other_files = _members(file.run_operation(kind))
    logs_in_archive, unread_files = _read_all(file, kind, members, read)
    if not logs_in_archive:
        raise BadLog(_explain_no_logs(members, unread_files))
    logs = _group_by_run(logs_in_archive)
    if other_files or unread_files:
        first = f"; first {excerpt(unread_files[0][0])} {unread_files[0][1]}" if unread_files else ""
        logs[0].metadata.notes.append(
            f"{other_files + len(unread_files):,} files of the archive are not logs{first}."
        )
    return logs


def _explain_no_logs(members: list[Member], unread_files: list[tuple[str, str]]) -> str:
    if not members:
        return "is an archive without files"
    name, reason = unread_files[0]
    return f"is an archive of {len(members):,} files, none of which is a log; {excerpt(name)} {reason}"


def _members(answer: dict[str, object]) -> tuple[list[Member], int]:
    try:
        files = [Member(str(n), int(o), int(p), int(s), bool(d)) for n, o, p, s, d in answer["files"]]  # type: ignore[attr-defined]
        other_files = int(answer["others"])  # type: ignore[call-overload]
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    if len(files) > MAX_FILES:
        raise BadLog(f"is an archive of more than {MAX_FILES:,} files")
    if any(min(member.offset, member.packed, member.size) < 0 for member in files):
        raise invalid_reply()
    if (total := sum(member.size for member in files)) > MAX_UNPACKED:
        raise BadLog(f"is an archive of {total:,} bytes; at most {MAX_UNPACKED:,} are unpacked")
    return sorted(files), other_files


def _read_all(
    file: LogFile, kind: str, members: list[Member], read: ReadFile
) -> tuple[list[LogInArchive], list[tuple[str, str]]]:
    """Return the logs of all files, and other files with reasons; raise TooMany beyond a limit."""
    contents, unread_files = _Contents(), []
    for member in members:
        if member.name.lower().endswith(IGNORED_SUFFIXES):
            unread_files.append((member.name, "is code or a summary"))
            continue
        path = file.sandbox.new_path()
        try:
            with path.open("w+b") as unpacked_file:
                _unpack(file.content, kind, member, unpacked_file)
                name, logs = read(LogFile(unpacked_file, file.sandbox, member.name, path, contents.left))
        except TooMany:
            raise
        except BadLog as error:
            unread_files.append((member.name, str(error)))
            continue
        finally:
            path.unlink(missing_ok=True)
        for log in logs:
            contents.add(LogInArchive(member, name, log))
    return contents.found, unread_files


def _unpack(file: IO[bytes], kind: str, member: Member, target: IO[bytes]) -> None:
    damage_error = BadLog(f"is damaged: {excerpt(member.name)} does not begin where the archive says")
    if member.offset > file.seek(0, os.SEEK_END):  # the offset may be too large to seek to
        raise damage_error
    file.seek(member.offset)
    if kind == "zip":
        header = file.read(ZIP_HEADER.size)
        if len(header) < ZIP_HEADER.size or not header.startswith(b"PK\x03\x04"):
            raise damage_error
        _, name_size, extra_size = ZIP_HEADER.unpack(header)
        file.seek(name_size + extra_size, 1)
    if not member.is_deflated:
        for block in _blocks(file, member.size):
            target.write(block)
    else:
        _inflate(file, target, zlib.decompressobj(-15), member.size, member.packed)
    target.flush()
    target.seek(0)


def _blocks(file: IO[bytes], size: int, chunk: int = CHUNK_BYTES) -> Iterator[bytes]:
    while size and (block := file.read(min(chunk, size))):
        size -= len(block)
        yield block


def _inflate(
    file: IO[bytes], target: IO[bytes], inflater: "zlib._Decompress", limit: int, packed_size: int | None
) -> None:
    """Decompress a stream; raise BadLog if it is damaged or exceeds the size limit."""
    written_bytes = 0
    try:
        for block in _blocks(file, packed_size if packed_size is not None else 1 << 62):
            written_bytes = _write_block(block, inflater, target, written_bytes, limit)
            if inflater.eof:
                break
    except zlib.error as error:
        raise BadLog(f"is damaged: {error}") from None
    if not inflater.eof:
        raise _cut_off()


def _gunzip(file: IO[bytes], target: IO[bytes], limit: int) -> None:
    """Decompress all members of a gzip file and ignore trailing zeros; raise BadLog like `_inflate`."""
    inflater, members, written_bytes = zlib.decompressobj(31), 1, 0
    try:
        for block in _blocks(file, 1 << 62, GZIP_CHUNK_BYTES):
            remaining_block = block
            while remaining_block:
                if inflater.eof:
                    remaining_block = remaining_block.lstrip(b"\0")
                    if not remaining_block:
                        break
                    inflater, members = zlib.decompressobj(31), members + 1
                    if members > MAX_MEMBERS:
                        raise BadLog(f"has more than {MAX_MEMBERS:,} gzip members; that is the limit")
                written_bytes = _write_block(remaining_block, inflater, target, written_bytes, limit)
                remaining_block = inflater.unused_data
    except zlib.error as error:
        raise BadLog(f"is damaged: {error}") from None
    if not inflater.eof:
        raise _cut_off()


def _write_block(
    block: bytes, inflater: "zlib._Decompress", target: IO[bytes], written_bytes: int, limit: int
) -> int:
    """Decompress a block until the stream ends; return the total number of bytes written."""
    remaining_block = block
    while not inflater.eof:  # zlib may hold output back after it has taken all input
        output = inflater.decompress(remaining_block, CHUNK_BYTES)
        remaining_block = inflater.unconsumed_tail
        written_bytes += len(output)
        if written_bytes > limit:
            raise BadLog(f"unpacks to more than {limit:,} bytes")
        target.write(output)
        if not remaining_block and not output:
            break
    return written_bytes


def _cut_off() -> BadLog:
    return BadLog("is cut off: its packed content does not end")


def _group_by_run(logs_in_archive: list[LogInArchive]) -> list[Log]:
    """Return a log per run: its event files together, its last TRL state, and its completions."""
    logs_by_run: dict[tuple[str, str], list[LogInArchive]] = defaultdict(list)
    single_logs, completions = [], list[LogInArchive]()
    tracker_directories = tuple(
        f"{log_file.directory}/{name}/".lstrip("/")
        for log_file in logs_in_archive
        if log_file.kind in {"wandb", "swanlab"}
        for name in TRACKER_DIRECTORIES
    )
    for log_file in logs_in_archive:
        is_of_tracker = f"{log_file.directory}/".startswith(tracker_directories)
        if is_of_tracker and log_file.member.name.endswith(TRACKER_SUFFIXES):
            continue  # printed output and single curves, which the history of the run includes
        if log_file.log.is_derived:
            completions.append(log_file)
        elif log_file.kind in MERGED_FORMATS:
            logs_by_run[log_file.directory, log_file.kind].append(log_file)
        elif log_file.log.origin == "tensorboard":  # a CSV or JSON file with a single curve of a run
            logs_by_run[log_file.directory, f"curves {log_file.log.metadata.name}"].append(log_file)
        else:
            single_logs.append(log_file)
    logs_with_directory = [
        (log_files[0].directory, _merge_logs(kind, log_files)) for (_, kind), log_files in logs_by_run.items()
    ]
    siblings = Counter(log_file.directory for log_file in single_logs)
    for log_file in single_logs:
        if siblings[log_file.directory] > 1:
            log_file.log.metadata.name = (
                log_file.log.metadata.name or PurePosixPath(log_file.member.name).stem
            )
    logs_with_directory += [(log_file.directory, log_file.log) for log_file in single_logs]
    logs_with_directory += _add_completions(logs_with_directory, completions)
    if len(logs_with_directory) > MAX_RUNS:
        raise _too_many_runs()
    stems = {id(log_file.log): PurePosixPath(log_file.member.name).stem for log_file in logs_in_archive}
    has_several = len(logs_with_directory) > 1
    for directory, log in logs_with_directory:
        default_name = PurePosixPath(directory).name or (stems[id(log)] if has_several else "")
        log.metadata.name = log.metadata.name or default_name
    return [log for _, log in logs_with_directory]


def _merge_logs(kind: str, log_files: list[LogInArchive]) -> Log:
    if kind == "tensorboard":
        return merged_events([log_file.log for log_file in log_files])
    if kind != "trl":
        return _joined_curves([log_file.log for log_file in log_files])
    # A later checkpoint contains the history of earlier ones.
    longest = max(log_files, key=lambda log_file: len(log_file.log.table))
    if len(log_files) > 1:
        longest.log.metadata.notes.append(
            f"Of {len(log_files)} checkpoints, the longest history is taken: {longest.member.name}."
        )
    return longest.log


def _joined_curves(logs: list[Log]) -> Log:
    """Return one log of several files that contain a curve each, ordered by step."""
    first, *later_logs = logs
    for log in later_logs:
        first.table.append(log.table)
    if step := first.step or next(iter(step_candidates(first.table)), None):
        first.table.reorder(np.argsort(read_steps(first.table, step), kind="stable"))
    return first


def _add_completions(placed_logs: list[tuple[str, Log]], files: list[LogInArchive]) -> list[tuple[str, Log]]:
    """Add each file of completions to the run in its directory or above; others become new runs."""
    new_runs: dict[str, Log] = {}
    for log_file in files:
        directory = log_file.directory
        siblings = [log for directory_of_run, log in placed_logs if directory_of_run == directory]
        logs_below = [log for directory_of_run, log in placed_logs if _is_above(directory, directory_of_run)]
        target_logs = (
            siblings
            or logs_below
            or [log for directory_of_run, log in placed_logs if _is_above(directory_of_run, directory)]
        )
        if not target_logs and len(placed_logs) == 1:
            target_logs = [placed_logs[0][1]]
        has_texts = log_file.log.completions is not None
        if target_logs and (has_texts or "step" in target_logs[0].table.columns):
            _extend(target_logs[0], log_file.log, with_curves=not has_texts)
        elif directory in new_runs:
            _extend(new_runs[directory], log_file.log, with_curves=True)
        else:
            new_runs[directory] = log_file.log
    return list(new_runs.items())


def _is_above(upper_path: str, lower_path: str) -> bool:
    return not upper_path or lower_path == upper_path or lower_path.startswith(f"{upper_path}/")


def _extend(log: Log, addition: Log, *, with_curves: bool = False) -> None:
    log.completions = log.completions or Completions()
    if addition.completions is not None:
        log.completions.extend(addition.completions)
    if with_curves:
        log.table.append(addition.table)
    log.metadata.notes += [
        note
        for note in addition.metadata.notes
        if note not in log.metadata.notes and not note.startswith("Curves")
    ]
