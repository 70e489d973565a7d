"""Compare the best configurations over the remaining seeds.

The seed that selected them is left out: a configuration is among the best partly because it was lucky with
that seed, so its value there is biased.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from backend.experiments.matrix.inference import ALPHA, Contrast, contrast, holm_correction
from backend.experiments.searches.decide import SearchRow, repeated_runs
from backend.experiments.searches.objective import final_value
from backend.experiments.searches.trial import DONE_STATUSES, LIVE_STATUSES, RunRow, TrialRow
from backend.metrics.statistics import Spread, spread


class Difference(NamedTuple):
    """The difference of a finalist from the first, with a p-value corrected over all pairs."""

    contrast: Contrast | None
    p: float | None

    def shows(self, sign: float) -> bool:
        """Return whether the difference is significant and has this sign."""
        return (
            self.contrast is not None
            and self.p is not None
            and self.p < ALPHA
            and sign * self.contrast.mean > 0
        )


class Finalists(NamedTuple):
    """Rows of the comparison, best mean first, and a sentence about it."""

    rows: list[dict[str, object]]
    verdict: str


def compare(search: SearchRow, trials: Sequence[TrialRow], runs: Sequence[RunRow]) -> Finalists:
    """Return the means over the remaining seeds and the differences from the first finalist."""
    finalists = [trial for trial in trials if trial.chosen]
    repeats = repeated_runs(search, trials, runs)
    values = {trial.number: _values_by_seed(trial, repeats) for trial in finalists}
    spreads = {number: spread(list(value_by_seed.values())) for number, value_by_seed in values.items()}
    sign = -1.0 if search.settings.maximizes else 1.0

    def rank(trial: TrialRow) -> tuple[bool, float, int]:
        mean = spreads[trial.number].mean
        return (mean is None, sign * (mean or 0.0), trial.number)

    ranked_trials = sorted(finalists, key=rank)
    if not ranked_trials:
        return Finalists([], "")
    differences = _differences([values[trial.number] for trial in ranked_trials])
    rows = []
    for trial, (difference, p) in zip(ranked_trials, [Difference(None, None), *differences], strict=True):
        trial_spread = spreads[trial.number]
        rows.append(
            {
                "number": trial.number + 1,
                "variant": trial.variant,
                "n": trial_spread.n,
                "waiting": sum(
                    run.variant == trial.variant and run.status in LIVE_STATUSES for run in repeats
                ),
                "mean": trial_spread.mean,
                "low": trial_spread.low,
                "high": trial_spread.high,
                "difference": difference.mean if difference else None,
                "difference_low": difference.low if difference else None,
                "difference_high": difference.high if difference else None,
                "paired": difference.paired if difference else None,
                "p": p,
            }
        )
    return Finalists(rows, _verdict(search, ranked_trials, spreads[ranked_trials[0].number], differences))


def _differences(values: Sequence[Mapping[int, float]]) -> list[Difference]:
    """Return the differences of the other finalists from the first.

    The first finalist was chosen by the same values, as the best of all. If p-values were corrected only over
    its own differences, claims would be wrong far more often than in 5 % of cases. The correction therefore
    covers all pairs.
    """
    pairs = combinations(values, 2)  # pairs with the first finalist come first
    contrasts = [contrast(second, first, "planned") for first, second in pairs]
    p_values = holm_correction([contrast_.p if contrast_ else None for contrast_ in contrasts])
    return [Difference(*pair) for pair in zip(contrasts, p_values, strict=True)][: len(values) - 1]


def _values_by_seed(trial: TrialRow, repeat_runs: Sequence[RunRow]) -> dict[int, float]:
    """Return the value by seed of the runs that have finished or stopped by themselves."""
    by_seed: dict[int, float] = {}
    for run in repeat_runs:
        value = final_value(run.reports or {})
        if run.variant == trial.variant and run.status in DONE_STATUSES and value is not None:
            by_seed.setdefault(run.seed, value)
    return by_seed


def _verdict(
    search: SearchRow, order: Sequence[TrialRow], remaining_spread: Spread, differences: Sequence[Difference]
) -> str:
    if (
        remaining_spread.mean is None or search.status == "comparing"
    ):  # tested once, after all seeds have ended
        return ""
    interval = (
        "" if remaining_spread.low is None else f" [{remaining_spread.low:.3g}, {remaining_spread.high:.3g}]"
    )
    seeds = f"{remaining_spread.n} remaining seed{'' if remaining_spread.n == 1 else 's'}"
    sentence = (
        f"{order[0].variant}: {search.settings.metric} {remaining_spread.mean:.3g}{interval} over {seeds}"
    )
    if not differences or search.status != "finished":
        return f"{sentence}."
    sign = 1.0 if search.settings.maximizes else -1.0
    better_variants = [
        trial.variant
        for trial, difference in zip(order[1:], differences, strict=True)
        if difference.shows(sign)
    ]
    if better_variants:
        return f"{sentence}; on the seeds that they share, {', '.join(better_variants)} did better."
    significant_count = sum(difference.shows(-sign) for difference in differences)
    if significant_count == len(differences):
        return f"{sentence}; better than every other finalist."
    if not significant_count:
        return f"{sentence}; no difference from the other finalists was shown."
    claim = f"better than {significant_count} of {len(differences)} other finalists"
    return f"{sentence}; {claim}, no difference from the rest was shown."
