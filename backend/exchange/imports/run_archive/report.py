"""Report on the import of a run's archive."""

from backend.base.text import clean_text
from backend.exchange.archives.contents import MANIFEST
from backend.exchange.imports.run_archive.read import ReadArchive
from backend.exchange.imports.schemas import ColumnItem, ImportReport, ImportResponse, RunItemOfImport
from backend.exchange.imports.store import Names
from backend.runs.origin import ARCHIVE_ORIGIN

FINAL_STATUSES = ("finished", "stopped", "failed")
"""Statuses that an imported run keeps; any other status becomes stopped."""

MAX_NAMED = 20
"""Maximum number of missing things that are listed."""


def archive_answer(archive: ReadArchive, names: Names, run_id: str | None) -> ImportResponse:
    """Return the answer to an import: names, the created run, and the content of the archive."""
    run = archive.run
    completions = sum(len(groups.rollouts) for groups in archive.rollouts)
    steps = [
        step
        for curve_steps, _ in archive.series.values()
        if len(curve_steps)
        for step in (int(curve_steps[0]), int(curve_steps[-1]))
    ]
    rows = len({int(step) for curve_steps, _ in archive.series.values() for step in curve_steps})
    item = RunItemOfImport(
        label=run.name, is_chosen=True, run=run_id, name=names.run, rows=rows, completions=completions
    )
    columns = [
        ColumnItem(column=name, metric=name, state="taken", points=len(curve_steps), reason="")
        for name, (curve_steps, _) in sorted(archive.series.items())
    ]
    report = ImportReport(
        format="grpolab",
        format_title="Archive of GRPO Lab",
        origin=run.origin or ARCHIVE_ORIGIN,
        rows=rows,
        metrics=len(archive.series),
        points=sum(len(curve_steps) for curve_steps, _ in archive.series.values()),
        first_step=min(steps, default=0),
        last_step=max(steps, default=0),
        step="step",
        step_candidates=["step"],
        columns=columns,
        bad_lines=[],
        bad_line_count=0,
        restarts=[],
        restart_count=0,
        replaced=0,
        completions=completions,
        config_fields=len(run.config),
        notes=_notes(archive, completions),
    )
    return ImportResponse(
        run=run_id,
        name=names.run,
        experiment=names.experiment,
        variant=names.variant,
        seed=names.seed,
        runs=[item],
        report=report,
    )


def _notes(archive: ReadArchive, completions: int) -> list[str]:
    run = archive.run
    notes = [
        f"{completions:,} completions with their tokens and {len(archive.events):,} events are restored."
    ]
    if count := len(archive.checkpoints):
        notes.append(f"{count} checkpoint{'s are' if count > 1 else ' is'} restored; the run can be forked.")
    elif not run.origin:
        notes.append("The archive has no checkpoints: the run cannot be forked or evaluated.")
    if label_count := len(archive.extras.labels):
        notes.append(f"{label_count:,} label{'s are' if label_count > 1 else ' is'} restored.")
    notes += [f"Missing in the archive: {clean_text(sentence)}" for sentence in archive.missing[:MAX_NAMED]]
    if (unlisted_count := len(archive.missing) - MAX_NAMED) > 0:
        notes.append(f"{unlisted_count:,} more things are missing in the archive; its {MANIFEST} names them.")
    if run.fork_step is not None:
        notes.append(
            f"The run is a fork: its metrics up to step {run.fork_step} are those of the run it left."
        )
    if run.status not in FINAL_STATUSES:
        notes.append(f"The run was {run.status} when it was archived; here it is stopped.")
    return notes
