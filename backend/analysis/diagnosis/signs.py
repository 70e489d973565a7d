"""Helpers of the detectors, which look for signs in a log and create findings."""

import math
from collections.abc import Callable

import numpy as np

from backend.analysis.diagnosis.changes import Change, Sign, change
from backend.analysis.diagnosis.findings import Finding, Tier, Unjudged
from backend.analysis.diagnosis.log import Log, Series
from backend.analysis.diagnosis.outcome import Interval, Outcome, describe_interval

Answer = Finding | Unjudged | None
Detector = Callable[[Log, Outcome], Answer]


TITLES = {
    "non_finite": "NaN or infinite values",
    "verifier": "Broken reward or verifier",
    "mismatch": "Training-inference mismatch",
    "staleness": "Samples are stale (off-policy)",
    "router_drift": "The router moved to other experts",
    "update_size": "Updates are too large",
    "kl_pull": "The KL term drives the update",
    "kl_runaway": "KL to the reference exploded",
    "entropy_explosion": "Entropy exploded",
    "entropy_collapse": "Entropy collapsed",
    "displacement": "Likelihood displacement",
    "repetition": "Completions repeat themselves",
    "broken_format": "The format broke",
    "language_mix": "Completions mix scripts",
    "length_blowup": "Completions grew to the length limit",
    "length_collapse": "Completions shrank",
    "reward_hacking": "Reward hacking",
    "overfitting": "Overfitting to the training problems",
    "vanishing_signal": "No learning signal (zero-variance groups)",
    "critic": "The critic mispredicts",
    "dead_run": "The policy does not change",
}


MAX_TRUNCATED_FRACTION = 0.8
"""Fraction of truncated completions in the median step above which a
policy cannot learn to end its answers.
"""


def make_finding(
    cause: str,
    change_: Change,
    *,
    tier: Tier = "specific",
    evidence: tuple[str, ...] = (),
) -> Finding:
    sentence = (
        f"{change_.metric} was {change_.healthy:.3g} in the median step while the run was healthy. "
        f"It left this value {describe_interval(change_.onset)} and reached {change_.extreme:.3g} at step "
        f"{change_.extreme_step}"
    )
    return Finding(
        cause, TITLES[cause], change_.onset, tier, min(1.0, change_.spreads / 10), change_.lasting_share,
        (sentence, *evidence), (change_.metric,),
    )  # fmt: skip


def make_unjudged(cause: str, needed_data: str) -> Unjudged:
    return Unjudged(cause, TITLES[cause], needed_data)


def missing_data(
    log: Log, cause: str, needed_data: str, *metrics: str, min_points: int = 3
) -> Unjudged | None:
    """Return the reason why a cause cannot be judged, or None if a metric has at least `min_points` finite
    values.

    The reason is `needed_data` if the log has none of the metrics, or else names the metric with the most
    values.
    """
    if log.find(*metrics, min_points=min_points) is not None:
        return None
    counts = {name: len(log.series[name].finite()) for name in metrics if name in log.series}
    name, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if not count:
        return make_unjudged(cause, needed_data)
    return make_unjudged(cause, f"values of {name}: it has only {count}, and {min_points} are needed")


def find_change(log: Log, outcome: Outcome, sign: Sign) -> Change | None:
    """Return the change that a sign describes, or None if the metric is missing or changed too little."""
    series, healthy_interval = log.series.get(sign.metric), outcome.healthy
    if series is None or healthy_interval is None:
        return None
    if sign.is_setting and len(series):
        series = _padded_with_zeros(series, log)
    return change(sign, series, healthy_interval)


def _padded_with_zeros(series: Series, log: Log) -> Series:
    """Prepend zeros for earlier steps of the log to a series, for a loss
    term that was added during the run.
    """
    longest = max(log.series.values(), key=len)
    earlier_steps = longest.steps[longest.steps < series.steps[0]]
    return Series(
        np.concatenate([earlier_steps, series.steps]),
        np.concatenate([np.zeros(len(earlier_steps)), series.values]),
    )


def find_first_change(log: Log, outcome: Outcome, *signs: Sign) -> Change | None:
    """Return the earliest change that any of the signs describes, or None if there is none."""
    changes = [change_ for sign in signs if (change_ := find_change(log, outcome, sign)) is not None]
    return min(changes, key=lambda change_: (change_.onset.middle, -change_.spreads), default=None)


def has_any_metric(log: Log, *metrics: str) -> bool:
    return any(log.find(metric) is not None for metric in metrics)


def find_standing(log: Log, cause: str, metric: str, limit: float) -> Finding | None:
    """Return a finding for a metric whose median over all steps exceeds a limit, or None."""
    named_series = log.find(metric, min_points=5)
    if named_series is None or (median := float(np.median(named_series[1].values))) <= limit:
        return None
    first_step = int(named_series[1].steps[0])
    sentence = f"{metric} is {median:.3g} in the median of all steps, above the limit of {limit:g}"
    strength = min(1.0, 0.3 + 0.1 * math.log2(median / limit))
    onset = Interval(first_step, first_step)
    return Finding(cause, TITLES[cause], onset, "consistent", strength, 1.0, (sentence,), (metric,))
