"""Archives of runs from another installation: read in the sandbox and check every part.

Every file must have a known name, and the size and digest in the manifest. Nothing is stored before
everything has been read.
"""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from backend.base.redaction import redact, redact_document
from backend.base.text import find_unstorable, is_too_deep
from backend.catalog.policies.adapters import ADAPTER_CONFIG
from backend.catalog.policies.directories import CONFIG_FILES, MAX_CONFIG_BYTES, config_error, parse_config
from backend.config.run import RunConfig
from backend.exchange.archives.contents import (
    CHECKPOINT_FILE_PATTERN,
    CHECKPOINTS,
    EVENTS,
    FORMAT,
    LABELS,
    MANIFEST,
    METRICS,
    PROMPTS,
    ROLLOUTS,
    RUN,
    TABLES,
    TALLIES,
    TOKENS,
    ArchivedAttempt,
    ArchivedFile,
    ArchivedLabel,
    ArchivedRun,
    Manifest,
)
from backend.exchange.imports.archive import Member
from backend.exchange.imports.cells import read_cells
from backend.exchange.imports.lines import parse, text_lines
from backend.exchange.imports.log_file import MAX_ARCHIVE_SECONDS, ImportSandbox, LogFile, invalid_reply
from backend.exchange.imports.run_archive.prompts import Tallies, read_labels, read_prompts, read_tallies
from backend.exchange.imports.run_archive.rollouts import read_rollouts
from backend.exchange.imports.table import BadLog, Floats, Ints, excerpt
from backend.metrics.store import NAME_PATTERN
from backend.rollouts.store import PackedGroups
from backend.runs.origin import ORIGIN_TITLES

ARCHIVE_PREFIX = f"{MANIFEST}\0".encode()
"""First bytes of a tar file whose first member is the manifest."""
MAX_VALUES = 10_000_000
MAX_METRICS = 5_000
MAX_EVENTS = 100_000
CHUNK_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 8_000_000


Curve = tuple[Ints, Floats]
"""Steps and values."""

Document = TypeVar("Document", bound=BaseModel)


class FileExtent(NamedTuple):
    """Position and size of a file of the archive."""

    offset: int
    size: int


class ArchivedEvent(NamedTuple):
    """An event as stored in the archive."""

    at: float
    kind: str
    level: str
    attempt: int | None
    step: int | None
    message: str
    data: dict[str, Any]


class RolloutExtras(NamedTuple):
    """Tallies, prompts and labels of an archive."""

    tallies: Tallies
    prompts: list[dict[str, Any]]
    """Rows of the database."""
    labels: list[ArchivedLabel]


class ReadArchive(NamedTuple):
    """Checked content of an archive; only the checkpoints are still in the file."""

    run: ArchivedRun
    series: dict[str, Curve]
    rollouts: list[PackedGroups]
    extras: RolloutExtras
    events: list[ArchivedEvent]
    checkpoints: dict[str, dict[str, FileExtent]]
    """Positions of the files of each checkpoint, whose digests are verified."""
    missing: list[str]
    """Descriptions of data that could not be read when the archive was created."""


def is_run_archive(file: IO[bytes]) -> bool:
    """Return whether a file begins like an archive of this service."""
    file.seek(0)
    head = file.read(262)
    file.seek(0)
    return head.startswith(ARCHIVE_PREFIX) and head[257:262] == b"ustar"


def read_run_archive(file: IO[bytes], run_id: str) -> ReadArchive:
    """Read and check everything for a run with this id; raise BadLog."""
    with ImportSandbox(MAX_ARCHIVE_SECONDS) as sandbox, ExitStack() as open_files:
        extents = _locate_files(LogFile(file, sandbox))
        manifest = _manifest(file, extents)
        _check_files(file, extents, manifest)
        run = _run(file, extents[RUN])
        metrics, rollouts, tokens = (
            open_files.enter_context(_copy(file, sandbox, name, extents[name]))
            for name in (METRICS, ROLLOUTS, TOKENS)
        )
        series = _series(metrics)
        attempts = {attempt.number for attempt in run.attempts}
        packed_rollouts = read_rollouts(run_id, rollouts, tokens, attempts)
        tallies, prompts, labels = (
            open_files.enter_context(_copy(file, sandbox, name, extents[name]))
            for name in (TALLIES, PROMPTS, LABELS)
        )
        count = sum(len(groups.rollouts) for groups in packed_rollouts)
        extras = RolloutExtras(
            read_tallies(tallies, attempts),
            read_prompts(prompts, run_id),
            read_labels(labels.content, count),
        )
        with _copy(file, sandbox, EVENTS, extents[EVENTS]) as log:
            events = _events(log.content)
    checkpoints = _checkpoints(file, extents, manifest, run)
    return ReadArchive(run, series, packed_rollouts, extras, events, checkpoints, manifest.missing)


def _locate_files(file: LogFile) -> dict[str, FileExtent]:
    reply = file.run_operation("tar")
    try:
        members = [Member(str(n), int(o), int(p), int(s), bool(d)) for n, o, p, s, d in reply["files"]]
        other_entries = int(reply["others"])
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    names = [member.name for member in members]
    if other_entries:
        raise BadLog(f"holds {other_entries} entries that no archive of a run has, such as links")
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise BadLog(f"holds {excerpt(duplicate)} twice")
    if any(min(member.offset, member.size) < 0 for member in members):
        raise invalid_reply()
    return {member.name: FileExtent(member.offset, member.size) for member in members}


def _content(file: IO[bytes], extent: FileExtent, limit: int, name: str) -> bytes:
    if extent.size > limit:
        raise BadLog(f"is damaged: {name} has {extent.size:,} bytes; expected at most {limit:,}")
    file.seek(extent.offset)
    return file.read(extent.size)


def _parse_document(model: type[Document], content: Any, name: str) -> Document:
    """Return a document without secrets."""
    if not isinstance(content, dict) or is_too_deep(content):
        raise BadLog(f"is damaged: {name} is not such a document")
    try:
        return model.model_validate(redact_document(content))
    except ValidationError as error:
        first_error = error.errors()[0]
        raise BadLog(
            f"is damaged: {name}, {'.'.join(map(str, first_error['loc']))}: {first_error['msg']}"[:300]
        ) from None


def _json(file: IO[bytes], extent: FileExtent, name: str) -> Any:
    try:
        return parse(_content(file, extent, MAX_DOCUMENT_BYTES, name))
    except ValueError as error:
        raise BadLog(f"is damaged: {name} is not JSON ({error})"[:300]) from None


def _manifest(file: IO[bytes], extents: dict[str, FileExtent]) -> Manifest:
    if MANIFEST not in extents:
        raise BadLog(f"has no {MANIFEST}")
    content = _json(file, extents[MANIFEST], MANIFEST)
    if isinstance(content, dict) and (archive_format := content.get("format")) != FORMAT:
        reason = f"is an archive of format {archive_format!r:.20}, this version reads {FORMAT}"
        raise BadLog(f"{reason}: import it with the version that made it, or a newer one")
    return _parse_document(Manifest, content, MANIFEST)


def _check_files(file: IO[bytes], extents: dict[str, FileExtent], manifest: Manifest) -> None:
    """Check that the files are exactly those of the manifest, with valid names and the same content."""
    for name in manifest.files:
        if name not in TABLES and not CHECKPOINT_FILE_PATTERN.fullmatch(name):
            raise BadLog(f"names a file that no archive of a run has: {excerpt(name)}")
    if missing_files := sorted({*TABLES, *manifest.files} - extents.keys()):
        raise BadLog(f"is incomplete: {excerpt(missing_files[0])} is missing")
    if unexpected_files := sorted(extents.keys() - manifest.files.keys() - {MANIFEST}):
        raise BadLog(f"holds a file that its manifest does not name: {excerpt(unexpected_files[0])}")
    for name, expected in manifest.files.items():
        if _describe_file(file, extents[name]) != expected:
            raise BadLog(f"is damaged: {excerpt(name)} is not the file that was archived")


def _describe_file(file: IO[bytes], extent: FileExtent) -> ArchivedFile:
    digest, byte_count = hashlib.sha256(), 0
    for block in read_blocks(file, extent):
        digest.update(block)
        byte_count += len(block)
    return ArchivedFile(bytes=byte_count, sha256=digest.hexdigest())


def read_blocks(file: IO[bytes], extent: FileExtent) -> Iterator[bytes]:
    """Yield the content of a file of the archive."""
    file.seek(extent.offset)
    remaining_bytes = extent.size
    while remaining_bytes and (block := file.read(min(CHUNK_BYTES, remaining_bytes))):
        remaining_bytes -= len(block)
        yield block


@contextmanager
def _copy(file: IO[bytes], sandbox: ImportSandbox, name: str, extent: FileExtent) -> Iterator[LogFile]:
    """Open a file of the archive as a separate file, which the sandbox can open."""
    path = sandbox.new_path()
    with path.open("w+b") as copy:
        for block in read_blocks(file, extent):
            copy.write(block)
        copy.flush()
        yield LogFile(copy, sandbox, name, path)


def _run(file: IO[bytes], extent: FileExtent) -> ArchivedRun:
    content = _json(file, extent, RUN)
    run = _parse_document(ArchivedRun, content, RUN)
    if problem := find_unstorable(content):
        raise BadLog(f"is damaged: {RUN}, {problem[0]} {problem[1]}")
    if run.origin not in ("", *ORIGIN_TITLES):
        raise BadLog(f"is of a run of {excerpt(run.origin)}, which this version does not know")
    numbers = [attempt.number for attempt in run.attempts]
    if numbers != sorted(set(numbers)):
        raise BadLog(f"is damaged: {RUN} has attempts out of order")
    if not run.origin:
        try:
            config = RunConfig.model_validate(run.config)
        except ValidationError as error:
            first_error = error.errors()[0]
            reason = f"{'.'.join(map(str, first_error['loc']))}: {first_error['msg']}"[:200]
            raise BadLog(f"has a config that this version does not know ({reason})") from None
        run.config = config.model_dump(mode="json")  # complete, like the config of every run of this service
    return run


def _series(file: LogFile) -> dict[str, Curve]:
    """Return steps and values of each metric."""
    pieces_by_metric: dict[str, list[Curve]] = {}
    for cells in read_cells(file, ("step", "value"), ("metric",), limit=MAX_VALUES):
        steps, values = cells.numbers["step"], cells.numbers["value"]
        if not (cells.is_there["step"].all() and cells.is_there["value"].all() and _are_steps(steps)):
            raise BadLog(f"is damaged: {METRICS} has a row without a step or a value")
        names = np.array([name or b"" for name in cells.texts["metric"]], dtype=object)
        starts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
        for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
            segment = steps[start:end].astype(np.int64), values[start:end].copy()
            pieces_by_metric.setdefault(_metric(names[start]), []).append(segment)
        if len(pieces_by_metric) > MAX_METRICS:
            raise BadLog(f"has more than {MAX_METRICS:,} metrics")
    return {name: _join_segments(name, segments) for name, segments in pieces_by_metric.items()}


def _join_segments(name: str, segments: list[Curve]) -> Curve:
    steps, values = (np.concatenate(column) for column in zip(*segments, strict=True))
    if (np.diff(steps) <= 0).any():
        raise BadLog(f"is damaged: the steps of {excerpt(name)} do not rise")
    return steps, values


def _are_steps(steps: Floats) -> bool:
    return bool(((steps >= 0) & (steps < 2**31) & (steps == np.floor(steps))).all())


def _metric(name: bytes) -> str:
    text = redact(name.decode(errors="replace"))
    if not NAME_PATTERN.fullmatch(text):
        raise BadLog(f"has a metric of the name {excerpt(text)}")
    return text


def attempt_at(attempts: list[ArchivedAttempt], steps: Ints) -> Ints:
    """Return the attempt whose value counts at each step: the newest one that continued from an earlier step.

    The inherited steps of a fork are before all attempts and belong to the first one.
    """
    numbers = np.full(len(steps), attempts[0].number, np.int64)
    for attempt in attempts[1:]:
        if attempt.from_step is not None:
            numbers[steps > attempt.from_step] = attempt.number
    return numbers


def _event(line: str) -> ArchivedEvent | None:
    """Return an event, or None for anything else."""
    try:
        row = parse(line)
        event = ArchivedEvent(**row)
    except (TypeError, ValueError):
        return None
    numbers = (event.attempt, event.step)
    is_valid = (
        type(event.at) in (int, float)
        and 0 <= event.at < 1e11
        and all(isinstance(text, str) for text in (event.kind, event.level, event.message))
        and 0 < len(event.kind) <= 32
        and event.level in {"info", "warning", "error"}
        and all(number is None or (type(number) is int and -1 <= number < 2**31) for number in numbers)
        and isinstance(event.data, dict)
        and find_unstorable(row) is None
    )
    return event if is_valid else None


def _events(file: IO[bytes]) -> list[ArchivedEvent]:
    events: list[ArchivedEvent] = []
    for number, line in text_lines(file):
        event = _event(line)
        if event is None:
            raise BadLog(f"is damaged: line {number} of {EVENTS} is not an event")
        if len(events) >= MAX_EVENTS:
            raise BadLog(f"has more than {MAX_EVENTS:,} events")
        events.append(event)
    return events


def _check_configs(file: IO[bytes], files: dict[str, FileExtent], checkpoint: str) -> None:
    """Refuse a checkpoint with configs that must not be passed to a library."""
    for name in {*CONFIG_FILES, ADAPTER_CONFIG} & files.keys():
        extent = files[name]
        content = b"" if extent.size > MAX_CONFIG_BYTES else _content(file, extent, MAX_CONFIG_BYTES, name)
        if reason := config_error(name, parse_config(content)):
            raise BadLog(f"holds a checkpoint {checkpoint} that cannot be trusted: {reason}")


def _checkpoints(
    file: IO[bytes], extents: dict[str, FileExtent], manifest: Manifest, run: ArchivedRun
) -> dict[str, dict[str, FileExtent]]:
    """Return the files of each checkpoint; its manifest must match its row and describe the other files."""
    files_by_checkpoint: dict[str, dict[str, FileExtent]] = {
        checkpoint.name: {} for checkpoint in run.checkpoints
    }
    for name, extent in extents.items():
        if (match := CHECKPOINT_FILE_PATTERN.fullmatch(name)) is not None:
            if match["checkpoint"] not in files_by_checkpoint:
                raise BadLog(f"holds files of a checkpoint that {RUN} does not name: {match['checkpoint']}")
            files_by_checkpoint[match["checkpoint"]][match["file"]] = extent
    for checkpoint in run.checkpoints:
        files = files_by_checkpoint[checkpoint.name]
        if checkpoint.name != f"s{checkpoint.step:06d}-a{checkpoint.attempt}" or "manifest.json" not in files:
            raise BadLog(f"is incomplete: checkpoint {checkpoint.name} lacks its manifest")
        if _describe_file(file, files["manifest.json"]).sha256 != checkpoint.sha256:
            raise BadLog(
                f"is damaged: the manifest of checkpoint {checkpoint.name} is not the one of its row"
            )
        _check_configs(file, files, checkpoint.name)
        own_manifest = _json(file, files["manifest.json"], "manifest.json")
        named_files = own_manifest.get("files") if isinstance(own_manifest, dict) else None
        prefix = f"{CHECKPOINTS}/{checkpoint.name}/"
        described_files = {
            name: manifest.files[prefix + name].model_dump() for name in files if name != "manifest.json"
        }
        if named_files != described_files:
            raise BadLog(f"is damaged: checkpoint {checkpoint.name} has other files than its manifest names")
    if files_by_checkpoint and run.origin:
        raise BadLog("has checkpoints of another trainer's run, which has none")
    return files_by_checkpoint
