"""Compare the contributions of stored tokens to a step's loss with the logged loss."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics.reading import read_points
from backend.rollouts.packing import try_unpack_arrays
from backend.rollouts.reading import valid_group_conditions
from backend.storage.models import RolloutGroup, RolloutTokens
from backend.storage.numbers import spell

TERMS = ("policy", "kl", "entropy", "nll")
UNSTORED = "loss/unstored"

Arrays = Mapping[str, NDArray[np.float32]]


def load_loss_sums(session: Session, run_id: str, step: int) -> dict[str, Any]:
    """Return the sums of a step's stored contributions and its logged loss as `schemas.LossSums`."""
    logged_loss = load_logged_loss(session, run_id, step)
    groups, terms = [], dict.fromkeys(TERMS, 0.0)
    totals: list[float | None] = []
    stored_terms: set[str] = set()
    query = (
        select(RolloutGroup.id, RolloutTokens.data)
        .outerjoin(RolloutTokens, RolloutTokens.group_id == RolloutGroup.id)
        .where(
            *valid_group_conditions(session, run_id), RolloutGroup.step == step, RolloutGroup.kind == "train"
        )
        .order_by(RolloutGroup.prompt_index)
    )
    for group_id, data in session.execute(query.execution_options(yield_per=16)):
        arrays, damage = try_unpack_arrays(data)
        sums = [_sum(values, "loss") for values in arrays]
        totals.append(_total(sums))
        groups.append(
            {
                "id": group_id,
                "loss": _spell(totals[-1]),
                "completions": list(map(_spell, sums)),
                "damage": damage,
            }
        )
        for name in TERMS:
            values = [value for by_name in arrays if (value := _sum(by_name, f"loss_{name}")) is not None]
            terms[name] += sum(values)
            stored_terms |= {name} if values else set()
    stored_loss = _total(totals)
    total, unstored_loss = logged_loss.get("loss/total"), logged_loss.get(UNSTORED, 0.0)
    return {
        "run": run_id,
        "step": step,
        "logged": _spell(total),
        "stored": _spell(stored_loss),
        "unstored": _spell(unstored_loss),
        "difference": None
        if stored_loss is None or total is None
        else spell(total - stored_loss - unstored_loss),
        "terms": {name: spell(terms[name]) for name in TERMS if name in stored_terms},
        "groups": groups,
    }


def load_logged_loss(session: Session, run_id: str, step: int) -> dict[str, float]:
    """Return loss/total and loss/unstored of a step, if they were logged."""
    points = read_points(session, [run_id], ["loss/total", UNSTORED])
    logged_loss = {}
    for (_, name), curve in points.items():
        indices = np.flatnonzero(curve.steps == step)
        if len(indices):
            logged_loss[name] = float(curve.values[indices[-1]])
    return logged_loss


def _sum(arrays: Arrays, name: str) -> float | None:
    return float(arrays[name].sum(dtype=np.float64)) if name in arrays else None


def _total(sums: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are not None; None if there are none."""
    numbers = [value for value in sums if value is not None]
    return sum(numbers) if numbers else None


def _spell(value: float | None) -> float | str | None:
    return None if value is None else spell(value)
