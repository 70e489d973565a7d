"""CSV files that W&B exports from a chart: `Step`, and each curve as `run - metric` with its bounds."""

from collections.abc import Sequence
from typing import NamedTuple

from backend.exchange.imports.guess import is_step_name
from backend.exchange.imports.log import Facts, Log
from backend.exchange.imports.table import BadLog, Table, excerpt

BOUNDS = ("__MIN", "__MAX")
OWN = ("_step", "Step")
"""Curves that only count."""
_SEPARATOR = " - "


class ChartColumn(NamedTuple):
    """A column of a chart."""

    column: str
    run: str
    metric: str


def chart_columns(header: Sequence[str]) -> list[ChartColumn]:
    """Return the columns of a chart's file; empty for any other file. The first one is the chart's x axis."""
    names = set(header)
    bounded = [name for name in header[1:] if all(f"{name}{bound}" in names for bound in BOUNDS)]
    if not bounded or not all(_SEPARATOR in name for name in bounded):
        return []
    return [ChartColumn(name, *name.rsplit(_SEPARATOR, 1)) for name in bounded]


def from_charts(table: Table, charts: Sequence[ChartColumn], axis: str) -> list[Log]:
    """A log for each run of a chart, without the bounds of its curves and W&B's own counter."""
    if not is_step_name(axis):
        raise BadLog(
            f"is a chart of W&B over {excerpt(axis)}: set the chart's x axis to Step, and export it again"
        )
    if axis not in table.columns:
        raise BadLog("has a chart's columns, but no step in any row")
    logs = []
    for run in dict.fromkeys(chart.run for chart in charts):
        of_run = Table()
        of_run.lines, of_run.columns[axis] = table.lines, table.columns[axis]
        for chart in charts:
            if chart.run == run and chart.metric not in OWN and len(table.columns[chart.column].values):
                of_run.columns[chart.metric] = table.columns[chart.column]
        if len(of_run.columns) > 1:
            logs.append(Log(of_run, Facts(name=run), origin="wandb", step=axis))
    if not logs:
        raise BadLog("has a chart's columns, but no values in them")
    logs[0].table.bad = table.bad
    return logs
