"""The command `import`, which stores logs on this machine as runs, directly in the database."""

import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from backend.base.errors import FieldError, InvalidRequest
from backend.base.redaction import learn_secrets
from backend.base.settings import Settings
from backend.base.text import clean_text
from backend.exchange.imports.importing import ImportRequest
from backend.exchange.imports.run_archive.store import import_any
from backend.exchange.imports.schemas import ImportResponse
from backend.storage.engine import open_engine, open_sessions

MAX_SEED = 2**31
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".npz", ".so")
"""Suffixes of large files next to logs that are not logs."""
ROLLOUT_FILE_PATTERN = re.compile(r".*_\d+\.pt")
"""Pattern of torch files that are rollout dumps of slime and miles, which end with the rollout's number."""


def import_into(
    settings: Settings,
    paths: Sequence[Path],
    *,
    dry_run: bool,
    seed: str | None = None,
    run: str | None = None,
    **names: Any,
) -> Iterator[str]:
    """Import one or more files, and yield the lines of the report.

    Raise InvalidRequest if they cannot be imported.
    """
    if seed is not None and not (seed.isdecimal() and int(seed) < MAX_SEED):
        raise InvalidRequest([FieldError("seed", f"is {seed!r:.40}; expected a whole number below 2^31")])
    request = replace(
        ImportRequest(clean_text(_label(paths))[:200], dry_run=dry_run),
        seed=None if seed is None else int(seed),
        runs=() if run is None else (run,),
        **names,
    )
    learn_secrets(settings)
    engine = open_engine(settings.effective_database_url, pool_size=1)
    try:
        with _open_input(paths) as file:
            answer = import_any(open_sessions(engine), settings, file, request)
    except OSError as error:
        raise InvalidRequest(
            [FieldError("file", f"{error.filename or paths[0]}: {error.strerror}")]
        ) from None
    finally:
        engine.dispose()
    yield from report_lines(answer)


def _label(paths: Sequence[Path]) -> str:
    """Return a label for the files: the name of the file, or of the directory that contains them."""
    if len(paths) == 1:
        return paths[0].resolve().name
    return _common(paths).name or paths[0].name


def _common(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path.resolve().parent for path in paths]))


@contextmanager
def _open_input(paths: Sequence[Path]) -> Iterator[IO[bytes]]:
    """Yield the file; several files, or all logs of a directory, are packed into a temporary archive."""
    if len(paths) == 1 and not paths[0].is_dir():
        with paths[0].open("rb") as file:
            yield file
        return
    root = _common(paths)
    with tempfile.TemporaryFile() as packed_file:
        with zipfile.ZipFile(packed_file, "w") as archive:
            for path in paths:
                file_paths = sorted(path.resolve().rglob("*")) if path.is_dir() else [path.resolve()]
                for file_path in file_paths:
                    is_weights = file_path.suffix in WEIGHT_SUFFIXES and not ROLLOUT_FILE_PATTERN.fullmatch(
                        file_path.name
                    )
                    if not file_path.is_dir() and not is_weights:
                        archive.write(file_path, str(file_path.relative_to(root)))
        yield packed_file


def report_lines(answer: ImportResponse) -> Iterator[str]:
    """Yield the lines of the report for a terminal."""
    report = answer.report
    steps = f"steps {report.first_step:,} to {report.last_step:,}"
    yield f"  {report.format_title}: {report.points:,} values of {report.metrics} metrics, {steps}"
    yield f"  steps are {f'those of {report.step}' if report.step else 'the numbers of the rows'}"
    for column in report.columns:
        outcomes = {"taken": "", "renamed": f" -> {column.metric}", "dropped": f" left out: {column.reason}"}
        yield f"    {column.column}{outcomes[column.state]}" + (
            f" ({column.points:,})" if column.metric else ""
        )
    for bad_line in report.bad_lines:
        yield f"  line {bad_line.line}: {bad_line.reason}" if bad_line.line else f"  {bad_line.reason}"
    if report.bad_line_count > len(report.bad_lines):
        yield f"  and {report.bad_line_count - len(report.bad_lines):,} more"
    if report.restart_count:
        drop = report.restarts[0]
        yield f"  the step goes back {report.restart_count} times, first from {drop.before} to {drop.after}"
    yield from (f"  {note}" for note in report.notes)
    if len(answer.runs) > 1:
        yield f"  the file has {len(answer.runs)} runs; the figures and columns are of the first chosen"
        for run in answer.runs:
            state = (
                f" -> {run.name}" + (f" ({run.run})" if run.run else "") if run.is_chosen else " not chosen"
            )
            yield f"    {run.label} ({run.rows:,} rows, {run.completions:,} completions){state}"
    if answer.run is None:
        yield "  dry run: nothing is stored"
    else:
        yield f"  run {answer.name} ({answer.run}) in experiment {answer.experiment}"
