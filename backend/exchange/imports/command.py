"""The command `import`: a log of this machine becomes a run, directly in the database."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.base.errors import FieldError, InvalidRequest
from backend.base.redaction import learn_secrets
from backend.base.settings import Settings
from backend.base.text import clean_text
from backend.exchange.imports.importing import ImportRequest
from backend.exchange.imports.run_archive.store import import_any
from backend.exchange.imports.schemas import ImportAnswer
from backend.storage.engine import open_engine, open_sessions

MAX_SEED = 2**31


def import_into(
    settings: Settings,
    path: Path,
    *,
    dry_run: bool,
    seed: str | None = None,
    run: str | None = None,
    **names: Any,
) -> Iterator[str]:
    """Import the file and yield the lines of the report. Raises InvalidRequest if it cannot be imported."""
    if seed is not None and not (seed.isdecimal() and int(seed) < MAX_SEED):
        raise InvalidRequest([FieldError("seed", f"is {seed!r:.40}; expected a whole number below 2^31")])
    request = replace(
        ImportRequest(clean_text(path.name)[:200], dry_run=dry_run),
        seed=None if seed is None else int(seed),
        runs=() if run is None else (run,),
        **names,
    )
    learn_secrets(settings)
    engine = open_engine(settings.effective_database_url, pool_size=1)
    try:
        with path.open("rb") as file:
            answer = import_any(open_sessions(engine), settings, file, request)
    except OSError as error:
        raise InvalidRequest([FieldError("file", f"{path}: {error.strerror}")]) from None
    finally:
        engine.dispose()
    yield from report_lines(answer)


def report_lines(answer: ImportAnswer) -> Iterator[str]:
    """The report for a terminal."""
    report = answer.report
    steps = f"steps {report.first_step:,} to {report.last_step:,}"
    yield f"  {report.format_title}: {report.points:,} values of {report.metrics} metrics, {steps}"
    yield f"  steps are {f'those of {report.step}' if report.step else 'the numbers of the rows'}"
    for column in report.columns:
        outcomes = {"taken": "", "renamed": f" -> {column.metric}", "dropped": f" left out: {column.reason}"}
        yield f"    {column.column}{outcomes[column.state]}" + (
            f" ({column.points:,})" if column.metric else ""
        )
    for bad in report.bad_lines:
        yield f"  line {bad.line}: {bad.reason}" if bad.line else f"  {bad.reason}"
    if report.bad_line_count > len(report.bad_lines):
        yield f"  and {report.bad_line_count - len(report.bad_lines):,} more"
    if report.restart_count:
        first = report.restarts[0]
        yield f"  the step goes back {report.restart_count} times, first from {first.before} to {first.after}"
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
