"""Archives of logs: a directory of W&B, TensorBoard, TRL, verl or prime-rl as zip, tar or tar.gz.

The archive is listed in the sandbox. Its files are unpacked one after another, never under their own names,
and read like any other log. Event files of one directory are one run; completions belong to the run there.
"""

import os
import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, Literal, NamedTuple

from backend.exchange.imports.completions import Completions
from backend.exchange.imports.log import Log
from backend.exchange.imports.log_file import LogFile, no_sense
from backend.exchange.imports.operations import MAX_RUNS
from backend.exchange.imports.table import MAX_POINTS, BadLog, Table, TooMany, excerpt, too_many_values
from backend.exchange.imports.tensorboard import merged_events

MAX_FILES = 2_000
MAX_UNPACKED = 1_000_000_000
"""Bytes of all files together."""
MAX_MEMBERS = 100_000
"""Maximum number of members of a gzip file; each time that somebody appends to it adds one."""
CHUNK = 1 << 20
GZIP_CHUNK = 1 << 16
"""Size of one read, in bytes; it is small because the data after each member is copied."""
ZIP_HEADER = struct.Struct("<4s22xHH")
"""Local header of a file: signature, length of the name, length of the extra field."""
STEPS = ("checkpoint-", "global_step_", "step_")
"""Beginnings of directories that hold a state of the run above them."""
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
"""Directories that hold completions of the run above them."""
NO_LOGS = (
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
"""Ends of names of files that hold text beside a log."""
_OF_A_STEP = re.compile(r"(?:^|/)(?:rollouts|dumped_evals)/(?:global_)?step_\d+[^/]*/.*$", re.DOTALL)
"""Completions of one step, in directories of their own below the run's."""
MERGED = {"tensorboard", "trl"}
"""Formats of which all files in one directory are one run."""

ReadFile = Callable[[LogFile], tuple[str, list[Log]]]
"""(format, logs) of one file; raises BadLog."""


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int
    packed: int
    size: int
    is_deflated: bool

    @property
    def directory(self) -> str:
        """Directory of the run that this file describes, as text that is never opened."""
        name = _OF_A_STEP.sub("/x", self.name.replace("\\", "/"))
        parts = list(PurePosixPath(name).parts[:-1])
        while parts and (parts[-1].startswith(STEPS) or parts[-1].lower() in PARTS):
            parts.pop()
        return "/".join(path_part for path_part in parts if path_part not in {"/", ".."})


class LogInArchive(NamedTuple):
    """A log in an archive."""

    member: Member
    kind: str
    log: Log


class _Contents:
    """Logs of the files read so far, within the limits of one import."""

    def __init__(self) -> None:
        self.found: list[LogInArchive] = []
        self.left = MAX_POINTS
        """Values that the import still takes."""
        self._longest: dict[str, LogInArchive] = {}
        """Longest state of TRL in each directory."""
        self._runs: set[tuple[str, str] | int] = set()

    def add(self, log_in_archive: LogInArchive) -> None:
        """One more; raises TooMany. Of the states of one run of TRL only the longest keeps its values."""
        number, kind, directory = len(self.found), log_in_archive.kind, log_in_archive.member.directory
        self.found.append(log_in_archive)
        self.left -= log_in_archive.log.table.size
        if kind == "trl":
            self._keep_longest(log_in_archive)
        if self.left < 0:
            raise too_many_values()
        if not log_in_archive.log.is_derived:
            self._runs.add((directory, kind) if kind in MERGED else number)
        if len(self._runs) > MAX_RUNS:
            raise _too_many_runs()

    def _keep_longest(self, log_in_archive: LogInArchive) -> None:
        longest = self._longest.setdefault(log_in_archive.member.directory, log_in_archive)
        if longest is not log_in_archive:
            shorter, longer = sorted(
                (longest, log_in_archive), key=lambda candidate: len(candidate.log.table)
            )
            self._longest[log_in_archive.member.directory] = longer
            self.left += shorter.log.table.size
            shorter.log.table = Table()


def _too_many_runs() -> TooMany:
    return TooMany(f"holds more than {MAX_RUNS} runs; at most that many are imported at once")


def read_gzip(file: LogFile, read: ReadFile) -> tuple[str, list[Log]]:
    """(format, logs) of a log or of an archive that is packed with gzip. Raises BadLog."""
    path = file.sandbox.new_path()
    with path.open("w+b") as unpacked:
        file.content.seek(0)
        _gunzip(file.content, unpacked, MAX_UNPACKED)
        unpacked.flush()
        return read(LogFile(unpacked, file.sandbox, file.name.removesuffix(".gz"), path))


def read_archive(file: LogFile, kind: Literal["zip", "tar"], read: ReadFile) -> list[Log]:
    """A log for each run in the archive. Raises BadLog."""
    members, other_files = _members(file.ask(kind))
    logs_in_archive, unread = _read_all(file, kind, members, read)
    if not logs_in_archive:
        raise BadLog(_nothing(members, unread))
    logs = _runs(logs_in_archive)
    if other_files or unread:
        first = f"; first {excerpt(unread[0][0])} {unread[0][1]}" if unread else ""
        logs[0].facts.notes.append(f"{other_files + len(unread):,} files of the archive are no logs{first}.")
    return logs


def _nothing(members: list[Member], unread: list[tuple[str, str]]) -> str:
    if not members:
        return "is an archive without files"
    name, reason = unread[0]
    return f"is an archive of {len(members):,} files, none of which is a log; {excerpt(name)} {reason}"


def _members(answer: dict[str, object]) -> tuple[list[Member], int]:
    try:
        files = [Member(str(n), int(o), int(p), int(s), bool(d)) for n, o, p, s, d in answer["files"]]  # type: ignore[attr-defined]
        other_files = int(answer["others"])  # type: ignore[call-overload]
    except (KeyError, TypeError, ValueError):
        raise no_sense() from None
    if len(files) > MAX_FILES:
        raise BadLog(f"is an archive of more than {MAX_FILES:,} files")
    if any(min(member.offset, member.packed, member.size) < 0 for member in files):
        raise no_sense()
    if (total := sum(member.size for member in files)) > MAX_UNPACKED:
        raise BadLog(f"is an archive of {total:,} bytes; at most {MAX_UNPACKED:,} are unpacked")
    return sorted(files), other_files


def _read_all(
    file: LogFile, kind: str, members: list[Member], read: ReadFile
) -> tuple[list[LogInArchive], list[tuple[str, str]]]:
    """Logs of all files, and the others with the reason; raises TooMany as soon as they exceed a limit."""
    contents, unread = _Contents(), []
    for member in members:
        if member.name.lower().endswith(NO_LOGS):
            unread.append((member.name, "is code or a summary"))
            continue
        path = file.sandbox.new_path()
        try:
            with path.open("w+b") as unpacked:
                _unpack(file.content, kind, member, unpacked)
                name, logs = read(LogFile(unpacked, file.sandbox, member.name, path, contents.left))
        except TooMany:
            raise
        except BadLog as error:
            unread.append((member.name, str(error)))
            continue
        finally:
            path.unlink(missing_ok=True)
        for log in logs:
            contents.add(LogInArchive(member, name, log))
    return contents.found, unread


def _unpack(file: IO[bytes], kind: str, member: Member, to: IO[bytes]) -> None:
    nowhere = BadLog(f"is damaged: {excerpt(member.name)} does not begin where the archive says")
    if member.offset > file.seek(0, os.SEEK_END):  # it may be more than a file can have
        raise nowhere
    file.seek(member.offset)
    if kind == "zip":
        header = file.read(ZIP_HEADER.size)
        if len(header) < ZIP_HEADER.size or not header.startswith(b"PK\x03\x04"):
            raise nowhere
        _, name, extra = ZIP_HEADER.unpack(header)
        file.seek(name + extra, 1)
    if not member.is_deflated:
        for block in _blocks(file, member.size):
            to.write(block)
    else:
        _inflate(file, to, zlib.decompressobj(-15), member.size, member.packed)
    to.flush()
    to.seek(0)


def _blocks(file: IO[bytes], size: int, chunk: int = CHUNK) -> Iterator[bytes]:
    while size and (block := file.read(min(chunk, size))):
        size -= len(block)
        yield block


def _inflate(
    file: IO[bytes], to: IO[bytes], inflater: "zlib._Decompress", limit: int, packed: int | None
) -> None:
    """Unpack a stream. Raises BadLog if it is damaged or exceeds the size limit."""
    written = 0
    try:
        for block in _blocks(file, packed if packed is not None else 1 << 62):
            written = _take(block, inflater, to, written, limit)
            if inflater.eof:
                break
    except zlib.error as error:
        raise BadLog(f"is damaged: {error}") from None
    if not inflater.eof:
        raise _cut_off()


def _gunzip(file: IO[bytes], to: IO[bytes], limit: int) -> None:
    """Unpack all members of a gzip file, with zeros behind them; raises BadLog as `_inflate` does."""
    inflater, members, written = zlib.decompressobj(31), 1, 0
    try:
        for block in _blocks(file, 1 << 62, GZIP_CHUNK):
            data = block
            while data:
                if inflater.eof:
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    inflater, members = zlib.decompressobj(31), members + 1
                    if members > MAX_MEMBERS:
                        raise BadLog(
                            f"has more than {MAX_MEMBERS:,} gzip members; at most that many are read"
                        )
                written = _take(data, inflater, to, written, limit)
                data = inflater.unused_data
    except zlib.error as error:
        raise BadLog(f"is damaged: {error}") from None
    if not inflater.eof:
        raise _cut_off()


def _take(block: bytes, inflater: "zlib._Decompress", to: IO[bytes], written: int, limit: int) -> int:
    """Unpack a block until the stream ends; how much of it is written now."""
    data = block
    while not inflater.eof:  # zlib may hold output back when it has taken all input
        out = inflater.decompress(data, CHUNK)
        data = inflater.unconsumed_tail
        written += len(out)
        if written > limit:
            raise BadLog(f"unpacks to more than {limit:,} bytes")
        to.write(out)
        if not data and not out:
            break
    return written


def _cut_off() -> BadLog:
    return BadLog("is cut off: its packed content does not end")


def _runs(logs_in_archive: list[LogInArchive]) -> list[Log]:
    """One log for each run: its event files together, the last state of TRL, completions beside them."""
    by_place: dict[tuple[str, str], list[LogInArchive]] = defaultdict(list)
    alone, completions = [], list[LogInArchive]()
    of_wandb = {
        f"{log_file.member.directory}/files".lstrip("/")
        for log_file in logs_in_archive
        if log_file.kind == "wandb"
    }
    for log_file in logs_in_archive:
        if log_file.member.directory in of_wandb:
            continue  # what was printed; the history of the run holds more
        if log_file.log.is_derived:
            completions.append(log_file)
        elif log_file.kind in MERGED:
            by_place[log_file.member.directory, log_file.kind].append(log_file)
        elif log_file.kind == "csv" and log_file.log.origin == "tensorboard":  # one curve of a run
            by_place[log_file.member.directory, f"csv {log_file.log.facts.name}"].append(log_file)
        else:
            alone.append(log_file)
    placed = [
        (log_files[0].member.directory, _merged(kind, log_files)) for (_, kind), log_files in by_place.items()
    ]
    siblings = Counter(log_file.member.directory for log_file in alone)
    for log_file in alone:
        if siblings[log_file.member.directory] > 1:
            log_file.log.facts.name = log_file.log.facts.name or PurePosixPath(log_file.member.name).stem
    placed += [(log_file.member.directory, log_file.log) for log_file in alone]
    placed += _add_completions(placed, completions)
    if len(placed) > MAX_RUNS:
        raise _too_many_runs()
    stems = {id(log_file.log): PurePosixPath(log_file.member.name).stem for log_file in logs_in_archive}
    several = len(placed) > 1
    for directory, log in placed:
        place = PurePosixPath(directory).name or (stems[id(log)] if several else "")
        log.facts.name = log.facts.name or place
    return [log for _, log in placed]


def _merged(kind: str, log_files: list[LogInArchive]) -> Log:
    if kind.startswith("csv"):
        for other in log_files[1:]:
            log_files[0].log.table.append(other.log.table)
        return log_files[0].log
    if kind == "tensorboard":
        return merged_events([log_file.log for log_file in log_files])
    best = max(
        log_files, key=lambda log_file: len(log_file.log.table)
    )  # a later checkpoint holds the history of the earlier
    if len(log_files) > 1:
        best.log.facts.notes.append(
            f"Of {len(log_files)} checkpoints, the longest history is taken: {best.member.name}."
        )
    return best.log


def _add_completions(placed: list[tuple[str, Log]], files: list[LogInArchive]) -> list[tuple[str, Log]]:
    """Give each file of completions to the run in its directory or above; those of none become runs."""
    new_runs: dict[str, Log] = {}
    for log_file in files:
        directory = log_file.member.directory
        siblings = [log for directory_of_run, log in placed if directory_of_run == directory]
        below = [log for directory_of_run, log in placed if _is_above(directory, directory_of_run)]
        homes = (
            siblings
            or below
            or [log for directory_of_run, log in placed if _is_above(directory_of_run, directory)]
        )
        if not homes and len(placed) == 1:
            homes = [placed[0][1]]
        has_texts = log_file.log.completions is not None
        if homes and (has_texts or "step" in homes[0].table.columns):
            _extend(homes[0], log_file.log, with_curves=not has_texts)
        elif directory in new_runs:
            _extend(new_runs[directory], log_file.log, with_curves=True)
        else:
            new_runs[directory] = log_file.log
    return list(new_runs.items())


def _is_above(upper: str, lower: str) -> bool:
    return not upper or lower == upper or lower.startswith(f"{upper}/")


def _extend(log: Log, addition: Log, *, with_curves: bool = False) -> None:
    log.completions = log.completions or Completions()
    if addition.completions is not None:
        log.completions.extend(addition.completions)
    if with_curves:
        log.table.append(addition.table)
    log.facts.notes += [
        note for note in addition.facts.notes if note not in log.facts.notes and not note.startswith("Curves")
    ]
