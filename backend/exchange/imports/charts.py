"""Read CSV files of a chart, as W&B exports it: `Step`, and each curve as `run - metric` with its bounds."""

from collections.abc import Sequence
from typing import NamedTuple

from backend.exchange.imports.guess import is_step_name
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.names import is_known
from backend.exchange.imports.table import BadLog, Table, excerpt

BOUND_SUFFIXES = ("__MIN", "__MAX")
OWN_COLUMNS = ("_step", "Step")
"""Curves that only contain the step."""
_SEPARATOR = " - "
_TIME_SUFFIX = "_timestamp"
"""Suffix of the column with the times of a curve, which SwanLab adds."""


class ChartColumn(NamedTuple):
    """A column of a chart."""

    column: str
    run: str
    metric: str


def chart_columns(header: Sequence[str]) -> list[ChartColumn]:
    """Return the columns of a chart's file, or an empty list for other files; the first is the x axis."""
    names = set(header)
    curves = [name for name in header[1:] if all(f"{name}{bound}" in names for bound in BOUND_SUFFIXES)]
    has_bounds = bool(curves)
    if not has_bounds:
        curves = [name for name in header[1:] if name.removesuffix(_TIME_SUFFIX) not in names - {name}]
    if not curves or not all(_SEPARATOR in name for name in curves):
        return []
    charts = [ChartColumn(name, *name.rsplit(_SEPARATOR, 1)) for name in curves]
    is_chart = has_bounds or (is_step_name(header[0]) and any(is_known(chart.metric) for chart in charts))
    return charts if is_chart else []


def from_charts(table: Table, charts: Sequence[ChartColumn], axis: str) -> list[Log]:
    """Return a log for each run of a chart, without the bounds of its curves and W&B's own step counter."""
    if not is_step_name(axis):
        raise BadLog(
            f"is a chart of W&B over {excerpt(axis)}: set the chart's x axis to Step, and export it again"
        )
    if axis not in table.columns:
        raise BadLog("has a chart's columns, but no step in any row")
    logs = []
    for run in dict.fromkeys(chart.run for chart in charts):
        run_table = Table()
        run_table.lines, run_table.columns[axis] = table.lines, table.columns[axis]
        for chart in charts:
            if (
                chart.run == run
                and chart.metric not in OWN_COLUMNS
                and len(table.columns[chart.column].values)
            ):
                run_table.columns[chart.metric] = table.columns[chart.column]
        if len(run_table.columns) > 1:
            logs.append(Log(run_table, LogMetadata(name=run), origin="wandb", step=axis))
    if not logs:
        raise BadLog("has a chart's columns, but no values in them")
    logs[0].table.bad = table.bad
    return logs
