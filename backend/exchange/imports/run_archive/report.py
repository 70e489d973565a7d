"""Report on the import of a run's archive."""

from backend.base.text import clean_text
from backend.exchange.archives.contents import MANIFEST
from backend.exchange.imports.run_archive.read import ReadArchive
from backend.exchange.imports.schemas import ColumnItem, ImportAnswer, ImportReport, RunItemOfImport
from backend.exchange.imports.store import Names
from backend.runs.origin import ARCHIVED

FINAL = ("finished", "stopped", "failed")
"""Statuses that a run keeps where it is imported; any other one becomes stopped."""

MOST_NAMED = 20
"""Missing things that are named."""


def archive_answer(found: ReadArchive, names: Names, run_id: str | None) -> ImportAnswer:
    """Answer of an import: names, the run that was made, and what the archive holds."""
    run = found.run
    completions = sum(len(packed.rollouts) for packed in found.rollouts)
    steps = [step for own, _ in found.series.values() if len(own) for step in (int(own[0]), int(own[-1]))]
    rows = len({int(step) for own, _ in found.series.values() for step in own})
    item = RunItemOfImport(
        label=run.name, is_chosen=True, run=run_id, name=names.run, rows=rows, completions=completions
    )
    columns = [
        ColumnItem(column=name, metric=name, state="taken", points=len(own), reason="")
        for name, (own, _) in sorted(found.series.items())
    ]
    report = ImportReport(
        format="grpolab",
        format_title="Archive of GRPO Lab",
        origin=run.origin or ARCHIVED,
        rows=rows,
        metrics=len(found.series),
        points=sum(len(own) for own, _ in found.series.values()),
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
        notes=_notes(found, completions),
    )
    return ImportAnswer(
        run=run_id,
        name=names.run,
        experiment=names.experiment,
        variant=names.variant,
        seed=names.seed,
        runs=[item],
        report=report,
    )


def _notes(found: ReadArchive, completions: int) -> list[str]:
    run = found.run
    notes = [f"{completions:,} completions with their tokens and {len(found.events):,} events are restored."]
    if count_of := len(found.checkpoints):
        notes.append(
            f"{count_of} checkpoint{'s are' if count_of > 1 else ' is'} restored; the run can be forked."
        )
    elif not run.origin:
        notes.append("The archive has no checkpoints: the run cannot be forked or evaluated.")
    if found.beside is not None and (labels := len(found.beside.labels)):
        notes.append(f"{labels:,} label{'s are' if labels > 1 else ' is'} restored.")
    notes += [f"Missing in the archive: {clean_text(each)}" for each in found.missing[:MOST_NAMED]]
    if (more := len(found.missing) - MOST_NAMED) > 0:
        notes.append(f"{more:,} more things are missing in the archive; its {MANIFEST} names them.")
    if run.fork_step is not None:
        notes.append(
            f"The run is a fork: its metrics up to step {run.fork_step} are those of the run it left."
        )
    if run.status not in FINAL:
        notes.append(f"The run was {run.status} when it was archived; here it is stopped.")
    return notes
