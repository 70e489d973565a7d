"""Comparison of the best configurations over the additional seeds.

The seed that chose them is left out: a configuration is among the best partly because that seed was kind to
it, so its value there is too good on average.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from backend.experiments.matrix.inference import ALPHA, Contrast, contrast, holm_correction
from backend.experiments.searches.decide import SearchRow, further_runs
from backend.experiments.searches.objective import final_value
from backend.experiments.searches.trial import DONE, LIVE, RunRow, TrialRow
from backend.metrics.statistics import Spread, spread


class Difference(NamedTuple):
    """A finalist's difference to the first one, and its p-value corrected over all pairs of finalists."""

    contrast: Contrast | None
    p: float | None

    def shows(self, sign: float) -> bool:
        """Return whether it is shown to lie on the side of this sign."""
        return (
            self.contrast is not None
            and self.p is not None
            and self.p < ALPHA
            and sign * self.contrast.mean > 0
        )


class Finalists(NamedTuple):
    """Rows of the comparison, the best mean first, and the sentence about it."""

    rows: list[dict[str, object]]
    verdict: str


def compare(search: SearchRow, trials: Sequence[TrialRow], runs: Sequence[RunRow]) -> Finalists:
    """Return means over the additional seeds, and differences to the first, paired by shared seeds."""
    chosen = [trial for trial in trials if trial.chosen]
    further = further_runs(search, trials, runs)
    values = {trial.number: _values_by_seed(trial, further) for trial in chosen}
    spreads = {number: spread(list(of.values())) for number, of in values.items()}
    sign = -1.0 if search.settings.maximizes else 1.0

    def rank(trial: TrialRow) -> tuple[bool, float, int]:
        mean = spreads[trial.number].mean
        return (mean is None, sign * (mean or 0.0), trial.number)

    order = sorted(chosen, key=rank)
    if not order:
        return Finalists([], "")
    differences = _differences([values[trial.number] for trial in order])
    rows = []
    for trial, (difference, p) in zip(order, [Difference(None, None), *differences], strict=True):
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
                "difference": difference.mean if difference else None,
                "difference_low": difference.low if difference else None,
                "difference_high": difference.high if difference else None,
                "paired": difference.paired if difference else None,
                "p": p,
            }
        )
    return Finalists(rows, _verdict(search, order, spreads[order[0].number], differences))


def _differences(values: Sequence[Mapping[int, float]]) -> list[Difference]:
    """Differences of the others to the first one.

    The first one was chosen by the same values, as the best of all: corrected over its own differences alone,
    a claim would be wrong far more often than in 5 %. Over all pairs it is among those that are tested.
    """
    pairs = combinations(values, 2)  # those with the first one come first
    contrasts = [contrast(second, first, "planned") for first, second in pairs]
    p_values = holm_correction([contrast_.p if contrast_ else None for contrast_ in contrasts])
    return [Difference(*pair) for pair in zip(contrasts, p_values, strict=True)][: len(values) - 1]


def _values_by_seed(trial: TrialRow, further: Sequence[RunRow]) -> dict[int, float]:
    """Value by seed of the runs that have ended by themselves."""
    by_seed: dict[int, float] = {}
    for run in further:
        value = final_value(run.reports or {})
        if run.variant == trial.variant and run.status in DONE and value is not None:
            by_seed.setdefault(run.seed, value)
    return by_seed


def _verdict(
    search: SearchRow, order: Sequence[TrialRow], remaining: Spread, differences: Sequence[Difference]
) -> str:
    if remaining.mean is None or search.status == "comparing":  # one look, once all seeds have ended
        return ""
    interval = "" if remaining.low is None else f" [{remaining.low:.3g}, {remaining.high:.3g}]"
    seeds = f"{remaining.n} remaining seed{'' if remaining.n == 1 else 's'}"
    words = f"{order[0].variant}: {search.settings.metric} {remaining.mean:.3g}{interval} over {seeds}"
    if not differences or search.status != "finished":
        return f"{words}."
    sign = 1.0 if search.settings.maximizes else -1.0
    above = [
        trial.variant
        for trial, difference in zip(order[1:], differences, strict=True)
        if difference.shows(sign)
    ]
    if above:
        return f"{words}; on the seeds that they share, {', '.join(above)} did better."
    shown = sum(difference.shows(-sign) for difference in differences)
    if shown == len(differences):
        return f"{words}; better than every other finalist."
    if not shown:
        return f"{words}; no difference from the other finalists was shown."
    claim = f"better than {shown} of {len(differences)} other finalists"
    return f"{words}; {claim}, no difference from the rest was shown."
