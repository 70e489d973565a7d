"""Break down the change of a metric between two windows into an exact sum over categories of completions.

    M(window) = mean over its steps of the logged metric = sum over completions of w * x + what is not stored
    M(after) - M(before) = sum over categories c of (W2 * m2 - W1 * m1)

W is the share of a category in a window and m its mean there. The change of a category is split at R, the
mean of M(before) and M(after), into the part of its changed value, (W1 + W2) / 2 * (m2 - m1), and the part of
its changed share, which is the remainder. The shares of all categories add up to 1, so R cancels in the sum.
R is 0 for a loss, which is a sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from backend.base.errors import FieldError, InvalidRequest, NotFound
from backend.metrics.reading import read_points
from backend.rollouts.atlas import load_prompts
from backend.rollouts.breakdown.categories import Categories, Key, make_categories, term_weights
from backend.rollouts.breakdown.cells import By, Cell, Cells, GroupPlace, Mean, load_cells, parse_metric
from backend.rollouts.packing import try_unpack_text
from backend.storage.models import Run

MAX_ROWS = 50
EXCERPT_CHARS = 200
LOG_ROUNDING = 1e-12


class Window(NamedTuple):
    """Steps of a window, with both ends included."""

    first: int
    last: int


@dataclass(slots=True)
class Side:
    """A category in one window."""

    share: float = 0.0
    """Sum of the weights of its completions."""
    total: float = 0.0
    """Sum of the weighted values of its completions."""
    completions: int = 0
    by_group: dict[GroupPlace, float] = field(default_factory=dict)
    """Weighted distance of the completions of each group from R."""


@dataclass(slots=True)
class Row:
    """A category in both windows."""

    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)

    def split_change(self, reference: float) -> tuple[float, float]:
        """Return the parts of the change that are due to its changed value and its changed share."""
        side_before, side_after = self.before, self.after
        change_of_total = (side_after.total - reference * side_after.share) - (
            side_before.total - reference * side_before.share
        )
        if side_before.share <= 0 or side_after.share <= 0:
            return 0.0, change_of_total
        change = side_after.total / side_after.share - side_before.total / side_before.share
        value = (side_before.share + side_after.share) / 2 * change
        return value, change_of_total - value


class Logged(NamedTuple):
    """The steps and the mean of a metric in a window."""

    steps: list[int]
    value: float


def make_breakdown(
    session: Session, run: Run, metric: str, window_before: Window, window_after: Window, by: By
) -> dict[str, Any]:
    """Return the change of a metric as a ranked sum, as described by `schemas.BreakdownAnswer`.

    Raise InvalidRequest for a metric that is not a sum over completions, NotFound for a window without finite
    values, and Conflict for too many completions.
    """
    mean = parse_metric(metric)
    if by == "term" and metric != "reward/mean":
        raise InvalidRequest(
            [FieldError("by", f"is term, but {metric} is not a sum of terms; reward/mean is")]
        )
    windows = [_read_logged(session, run.id, metric, window) for window in (window_before, window_after)]
    steps = sorted({step for window in windows for step in window.steps})
    cells = load_cells(session, run.id, mean, by, steps)
    categories = make_categories(by, cells.cells, term_weights(run) if by == "term" else None)
    reference = 0.0 if categories.is_sum or mean.is_sum else (windows[0].value + windows[1].value) / 2
    rows: dict[Key, Row] = {}
    unexplained_row = Row()
    completions = 0
    for name, window in zip(("before", "after"), windows, strict=True):
        added_count = _add_window(rows, name, cells, categories, mean, window, reference)
        row_sides, side = [getattr(row, name) for row in rows.values()], getattr(unexplained_row, name)
        side.total = window.value - sum(category.total for category in row_sides)
        side.share = 0.0 if categories.is_sum else 1 - sum(category.share for category in row_sides)
        side.completions = sum(cells.sampled.get(step, 0) for step in window.steps) - added_count
        completions += added_count
    ranked_rows = _rank_rows(session, run.id, rows, categories, cells, reference)
    return {
        "run": run.id,
        "metric": metric,
        "by": by,
        "before": _window_json(window_before, windows[0]),
        "after": _window_json(window_after, windows[1]),
        "change": windows[1].value - windows[0].value,
        "completions": completions,
        "of": sum(cells.sampled.get(step, 0) for window in windows for step in window.steps),
        "notes": categories.notes,
        "rows": [*ranked_rows, _rest_row(unexplained_row, reference)],
    }


def _read_logged(session: Session, run_id: str, metric: str, window: Window) -> Logged:
    """Return the steps of a window with finite values, and the mean of these values."""
    points = read_points(session, [run_id], [metric]).get((run_id, metric))
    if points is None:
        raise NotFound(f"the run has not recorded {metric}")
    inside = (points.steps >= window.first) & (points.steps <= window.last) & np.isfinite(points.values)
    if not inside.any():
        raise NotFound(f"{metric} has no finite value at steps {window.first} to {window.last}")
    return Logged(points.steps[inside].tolist(), float(points.values[inside].mean()))


def _add_window(
    rows: dict[Key, Row],
    side_name: str,
    cells: Cells,
    categories: Categories,
    mean: Mean,
    window: Logged,
    reference: float,
) -> int:
    """Add the completions of a window to the rows and return their number."""
    inside = set(window.steps)
    valued_cells = [
        (cell, value)
        for cell in cells.cells
        if cell.step in inside and (value := mean.value(cell)) is not None
    ]
    if mean.is_sum:  # a sum, expressed as a mean over the completions of the step
        valued_cells = [(cell, value * cells.sampled[cell.step]) for cell, value in valued_cells]
    weights = _weights([cell for cell, _ in valued_cells], cells, mean, len(window.steps))
    for (cell, value), weight in zip(valued_cells, weights, strict=True):
        for key, addend in categories.contributions(cell, value):
            totals: Side = getattr(rows.setdefault(key, Row()), side_name)
            totals.share += 0.0 if categories.is_sum else weight * cell.count
            totals.total += weight * cell.count * addend
            totals.completions += cell.count
            group_key = (cell.step, cell.prompt_index)
            distance = weight * cell.count * (addend - reference)
            totals.by_group[group_key] = totals.by_group.get(group_key, 0.0) + distance
    return sum(cell.count for cell, _ in valued_cells)


def _weights(cells: Sequence[Cell], all_cells: Cells, mean: Mean, steps: int) -> list[float]:
    """Return the weight of one completion of each cell in the mean over the window."""
    if mean.is_of_tokens and not mean.is_sum:
        return [cell.tokens / (steps * max(1, all_cells.trained[cell.step])) for cell in cells]
    count_by_step: dict[int, int] = {}
    groups: dict[GroupPlace, int] = {}
    for cell in cells:
        group_key = (cell.step, cell.prompt_index)
        count_by_step[cell.step] = count_by_step.get(cell.step, 0) + cell.count
        groups[group_key] = groups.get(group_key, 0) + cell.count
    if mean.by_prompt:
        graded_counts: dict[int, int] = {}
        for step, _ in groups:
            graded_counts[step] = graded_counts.get(step, 0) + 1
        return [
            1 / (steps * graded_counts[cell.step] * groups[cell.step, cell.prompt_index]) for cell in cells
        ]
    stored_counts: dict[int, int] = {}
    for cell in all_cells.cells:
        stored_counts[cell.step] = stored_counts.get(cell.step, 0) + cell.count
    # Completions that are not stored are assumed to have a value.
    missing_counts = {
        step: max(0, all_cells.sampled.get(step, 0) - stored_counts[step]) for step in count_by_step
    }
    return [1 / (steps * (count_by_step[cell.step] + missing_counts[cell.step])) for cell in cells]


def _rank_rows(
    session: Session,
    run_id: str,
    rows: dict[Key, Row],
    categories: Categories,
    cells: Cells,
    reference: float,
) -> list[dict[str, Any]]:
    """Return the rows with the largest changes, and a row that sums up the others."""
    ranked_keys = sorted(rows, key=lambda key: (-abs(sum(rows[key].split_change(reference))), str(key)))
    shown_keys, omitted_keys = ranked_keys[:MAX_ROWS], ranked_keys[MAX_ROWS:]
    prompts = {prompt for key in shown_keys if (prompt := categories.prompt(key))}
    texts = {
        prompt_id: try_unpack_text(row.prompt)[0][:EXCERPT_CHARS]
        for prompt_id, row in load_prompts(session, run_id, sorted(prompts)).items()
    }
    shown_rows = [
        _row_json("category", rows[key], reference)
        | {
            "label": categories.label(key),
            "prompt": texts.get(categories.prompt(key), ""),
            "marks": categories.marks(key),
            "examples": _examples(rows[key], cells.stored, sum(rows[key].split_change(reference))),
        }
        for key in shown_keys
    ]
    if omitted_keys:
        contributions = [rows[key].split_change(reference) for key in omitted_keys]
        small_row = {"label": f"{len(omitted_keys):,} others", "value": sum(v for v, _ in contributions)}
        shown_rows.append(_empty_row("others") | small_row | {"share": sum(s for _, s in contributions)})
    for row in shown_rows:
        row["total"] = row["value"] + row["share"]
    return shown_rows


def _rest_row(unexplained_row: Row, reference: float) -> dict[str, Any]:
    """Return the row for completions that are not stored, or else for the rounding of the logged metric."""
    side_before, side_after = unexplained_row.before, unexplained_row.after
    total = (side_after.total - reference * side_after.share) - (
        side_before.total - reference * side_before.share
    )
    missing_count = side_before.completions + side_after.completions
    label = (
        f"{missing_count:,} completions that are not stored or have no value" if missing_count else "Rounding"
    )
    if not missing_count and abs(total) > LOG_ROUNDING:
        label = "Difference between the stored completions and the logged value"
    row = _empty_row("not_stored") | {"label": label, "value": 0.0, "share": total, "total": total}
    return row | {"before": _side_json(side_before), "after": _side_json(side_after)}


def _empty_row(kind: str) -> dict[str, Any]:
    empty_side = {"share": 0.0, "mean": None, "completions": 0}
    texts = {"kind": kind, "label": "", "prompt": ""}
    return texts | {"marks": [], "examples": [], "before": empty_side, "after": empty_side}


def _row_json(kind: str, row: Row, reference: float) -> dict[str, Any]:
    value, share = row.split_change(reference)
    sides = {"before": _side_json(row.before), "after": _side_json(row.after)}
    return _empty_row(kind) | sides | {"value": value, "share": share}


def _side_json(side: Side) -> dict[str, Any]:
    mean = side.total / side.share if side.share > LOG_ROUNDING else None
    return {"share": side.share, "mean": mean, "completions": side.completions}


def _examples(row: Row, stored_groups: dict[GroupPlace, str], total: float) -> list[dict[str, Any]]:
    """Return for each window the stored group that contributes most to the change; ties go to the nearest
    step.
    """
    sign = 1.0 if total >= 0 else -1.0
    examples = []
    for name, side, direction, step_sign in (
        ("before", row.before, -sign, 1),
        ("after", row.after, sign, -1),
    ):
        stored_keys = [group_key for group_key in side.by_group if group_key in stored_groups]
        if stored_keys:
            contributions = {
                group_key: round(direction * side.by_group[group_key], 12) for group_key in stored_keys
            }
            best_key = max(
                stored_keys,
                key=lambda group_key: (contributions[group_key], step_sign * group_key[0], -group_key[1]),
            )
            examples.append({"window": name, "step": best_key[0], "group": stored_groups[best_key]})
    return examples


def _window_json(window: Window, logged_window: Logged) -> dict[str, Any]:
    return {
        "first": window.first,
        "last": window.last,
        "steps": len(logged_window.steps),
        "value": logged_window.value,
    }
