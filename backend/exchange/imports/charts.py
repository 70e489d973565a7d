"""CSV files that W&B exports from a chart: `Step`, and each curve as `run - metric` with its bounds."""

from collections.abc import Sequence
from typing import NamedTuple

from backend.exchange.imports.log import Facts, Log
from backend.exchange.imports.table import Table, shown

BOUNDS = ("__MIN", "__MAX")
_SEPARATOR = " - "
MAX_NAMED = 5


class ChartColumn(NamedTuple):
    """A column of a chart."""

    column: str
    run: str
    metric: str


def chart_columns(header: Sequence[str]) -> list[ChartColumn]:
    """Return the columns of a chart's file; empty for any other file."""
    names = set(header)
    bounded = [name for name in header if all(f"{name}{bound}" in names for bound in BOUNDS)]
    if not bounded or not all(_SEPARATOR in name for name in bounded):
        return []
    return [ChartColumn(name, *name.split(_SEPARATOR, 1)) for name in bounded]


def from_charts(table: Table, charts: Sequence[ChartColumn]) -> Log:
    """Return the log of the run in a chart. Of several runs all columns stay, under their whole names."""
    for chart in charts:
        for bound in BOUNDS:
            table.columns.pop(f"{chart.column}{bound}", None)
    runs = list(dict.fromkeys(chart.run for chart in charts))
    if len(runs) > 1:
        named = ", ".join(map(shown, runs[:MAX_NAMED])) + (", ..." if len(runs) > MAX_NAMED else "")
        note = (
            f"The file holds curves of {len(runs)} runs ({named}): keep those of one, leave out the others."
        )
        return Log(table, Facts(notes=[note]), origin="wandb")
    for chart in charts:
        if chart.column in table.columns and chart.metric not in table.columns:
            table.columns[chart.metric] = table.columns.pop(chart.column)
    return Log(table, Facts(name=runs[0]), origin="wandb")
