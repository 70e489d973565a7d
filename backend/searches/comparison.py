"""Comparison of the best configurations over the further seeds.

The seed that chose them is left out: a configuration is among the best partly because that seed was kind to
it, so its value there is too good on average.
"""

from collections.abc import Sequence
from typing import NamedTuple

from backend.matrix.inference import ALPHA, contrast, holm
from backend.metrics.statistics import Spread, spread
from backend.searches.decide import SearchRow, further_runs
from backend.searches.objective import value_of
from backend.searches.trial import DONE, LIVE, RunRow, TrialRow


class Finalists(NamedTuple):
    """Rows of the comparison, the best mean first, and the sentence about it."""

    rows: list[dict[str, object]]
    verdict: str


def compare(search: SearchRow, trials: Sequence[TrialRow], runs: Sequence[RunRow]) -> Finalists:
    """Means over the further seeds, and differences to the first, paired by seed with Holm's correction."""
    chosen = [trial for trial in trials if trial.chosen]
    further = further_runs(search, trials, runs)
    values = {trial.number: _values(trial, further) for trial in chosen}
    spreads = {number: spread(list(of.values())) for number, of in values.items()}
    sign = -1.0 if search.settings.maximizes else 1.0

    def rank(trial: TrialRow) -> tuple[bool, float, int]:
        mean = spreads[trial.number].mean
        return (mean is None, sign * (mean or 0.0), trial.number)

    order = sorted(chosen, key=rank)
    if not order:
        return Finalists([], "")
    first = values[order[0].number]
    contrasts = [contrast(values[trial.number], first, "planned") for trial in order[1:]]
    p_values = holm([found.p if found else None for found in contrasts])
    rows = []
    for trial, found, p in zip(order, [None, *contrasts], [None, *p_values], strict=True):
        of_it = spreads[trial.number]
        rows.append(
            {
                "number": trial.number + 1,
                "variant": trial.variant,
                "n": of_it.n,
                "waiting": sum(run.variant == trial.variant and run.status in LIVE for run in further),
                "mean": of_it.mean,
                "low": of_it.low,
                "high": of_it.high,
                "difference": found.mean if found else None,
                "difference_low": found.low if found else None,
                "difference_high": found.high if found else None,
                "p": p,
            }
        )
    return Finalists(rows, _verdict(search, order[0], spreads[order[0].number], p_values))


def _values(trial: TrialRow, further: Sequence[RunRow]) -> dict[int, float]:
    """Value by seed of the runs that have ended by themselves."""
    found: dict[int, float] = {}
    for run in further:
        value = value_of(run.reports or {})
        if run.variant == trial.variant and run.status in DONE and value is not None:
            found.setdefault(run.seed, value)
    return found


def _verdict(search: SearchRow, winner: TrialRow, found: Spread, p_values: Sequence[float | None]) -> str:
    if found.mean is None or search.status == "comparing":  # one look, once all seeds have ended
        return ""
    interval = "" if found.low is None else f" [{found.low:.3g}, {found.high:.3g}]"
    seeds = f"{found.n} further seed{'' if found.n == 1 else 's'}"
    words = f"{winner.variant}: {search.settings.metric} {found.mean:.3g}{interval} over {seeds}"
    if not p_values or search.status != "finished":
        return f"{words}."
    shown = sum(p is not None and p < ALPHA for p in p_values)
    if shown == len(p_values):
        return f"{words}; better than every other finalist."
    if not shown:
        return f"{words}; no difference shown to the other finalists."
    return (
        f"{words}; better than {shown} of {len(p_values)} other finalists, no difference shown to the rest."
    )
