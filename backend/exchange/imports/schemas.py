"""Imports as the HTTP API represents them."""

from backend.base.documented import Documented
from backend.exchange.imports.formats import FORMATS
from backend.exchange.imports.plan import Plan, State
from backend.exchange.imports.store import storable_config


class ColumnItem(Documented):
    """How a column of the log is imported."""

    column: str
    metric: str
    """Metric's name in this service; empty for a column that is not imported."""
    state: State
    points: int
    reason: str
    """Reason why the column is renamed or not imported."""
    suggestion: str = ""
    """Metric that the column's values resemble; the column keeps its name unless `mapping` renames it."""
    hint: str = ""
    """Reason for the suggestion."""


class BadLineItem(Documented):
    """A line, or a value in it, that is left out."""

    line: int
    """Line of the file, starting at 1; 0 if the format has no lines."""
    reason: str


class RestartItem(Documented):
    """A place in the log where the step decreases, as after a resume."""

    line: int
    before: int
    after: int


class ImportReport(Documented):
    """Report on which parts of a log are imported, renamed or left out, and why."""

    format: str
    format_title: str
    origin: str
    rows: int
    metrics: int
    points: int
    first_step: int
    last_step: int
    step: str
    """Column with the steps; empty if rows are counted."""
    step_candidates: list[str]
    """Columns that may contain the steps, the most probable first."""
    columns: list[ColumnItem]
    bad_lines: list[BadLineItem]
    """The first 20."""
    bad_line_count: int
    restarts: list[RestartItem]
    """The first 20."""
    restart_count: int
    replaced: int
    """Number of values that are replaced by a later value of the same step."""
    completions: int
    """Number of completions that become rollouts."""
    config_fields: int
    """Number of fields of the other trainer's config that are kept."""
    notes: list[str]


class RunItemOfImport(Documented):
    """A run of the file."""

    label: str
    """Name of the run in the file, by which the parameter `runs` selects it."""
    is_chosen: bool
    run: str | None
    """Id of the created run."""
    name: str
    """Name of the run in this service; empty for a run that is not selected."""
    rows: int
    completions: int


class ImportResponse(Documented):
    """A report and the created runs (`dry_run` creates none). Names and report are those of the first run."""

    run: str | None
    """Id of the first run."""
    name: str
    experiment: str
    """The experiment's name."""
    variant: str
    seed: int
    runs: list[RunItemOfImport]
    """All runs of the file."""
    report: ImportReport


def build_report(plan: Plan, format_name: str) -> ImportReport:
    """Return the report on a plan."""
    table, metadata = plan.log.table, plan.log.metadata
    config, left_out = storable_config(metadata.config)
    completions = plan.log.completions
    return ImportReport(
        format=format_name,
        format_title=FORMATS[format_name].title,
        origin=plan.log.origin,
        rows=len(table),
        metrics=len(plan.series),
        points=plan.points,
        first_step=plan.first_step,
        last_step=plan.last_step,
        step=plan.step,
        step_candidates=plan.step_candidates,
        columns=[ColumnItem(**decision._asdict()) for decision in plan.decisions],
        bad_lines=[BadLineItem(**bad_line._asdict()) for bad_line in table.bad.first],
        bad_line_count=table.bad.count,
        restarts=[RestartItem(**restart._asdict()) for restart in plan.restarts],
        restart_count=plan.restart_count,
        replaced=plan.replaced,
        completions=len(completions or ()),
        config_fields=len(config),
        notes=[
            *metadata.notes,
            *([left_out] if left_out else []),
            *(completions.notes() if completions is not None else []),
        ],
    )
