"""Alarms of other detectors on the runs of the suite, from the logged series.

rlwatch runs as published, in a separate environment. The rules of rewardspy (HarperZ9/rewardspy, commit
5bfd03e) are restated: variance, ceiling, component and CUSUM, at medium sensitivity. Its length rule needs
the length of each rollout and is omitted. Two rules of thumb are added.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from backend.analysis.diagnosis.log import Floats, Log
from benchmarks.common.peers import ensure_python, run

WINDOW_ROLLOUTS = 100
"""Number of rollouts in rewardspy's rolling statistics."""

RLWATCH_METRICS = {
    "entropy": "policy/entropy",
    "kl_divergence": "kl/k3",
    "reward_mean": "reward/mean",
    "reward_std": "reward/std",
    "advantage_std": "advantage/std",
    "loss": "loss/total",
    "grad_norm": "optim/grad_norm",
}


def alarms(logs: Sequence[Log]) -> dict[str, list[bool]]:
    """Return whether each detector raises its highest alarm, for each log."""
    return {
        "rlwatch 0.5.1, critical": rlwatch(logs),
        **{name: [rule(log) for log in logs] for name, rule in RULE_BY_NAME.items()},
    }


def rlwatch(logs: Sequence[Log]) -> list[bool]:
    """Return whether rlwatch's detectors with their default configuration report critical at any step."""
    rows = [_rows(log) for log in logs]
    answer = run(
        ensure_python("rlwatch"), Path(__file__).parent / "rlwatch_side.py", {"logs": rows, "threads": 1}
    )
    return [severity == "critical" for severity in answer["severities"]]


def _rows(log: Log) -> list[dict[str, float]]:
    """Yield the metrics that rlwatch reads, one row per step."""
    steps: dict[int, dict[str, float]] = {}
    for name, metric in RLWATCH_METRICS.items():
        if series := log.series.get(metric):
            for step, metric_value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                steps.setdefault(step, {})[name] = metric_value
    return [{"step": step, **values} for step, values in sorted(steps.items())]


def halved(log: Log) -> bool:
    """Return True if the reward, smoothed with weight 0.1, is below half of its best for 5 steps."""
    smooth, best, low = None, 0.0, 0
    for reward in _values(log, "reward/mean"):
        smooth = reward if smooth is None else 0.9 * smooth + 0.1 * reward
        best = max(best, smooth)
        low = low + 1 if smooth < 0.5 * best else 0
        if low >= 5:
            return True
    return False


def fixed_limits(log: Log) -> bool:
    """Return True if, in a mean of 10 steps, flat groups exceed 0.5 or truncated completions 0.25."""
    limits = {"groups/zero_variance_frac": 0.5, "length/truncated_frac": 0.25}
    for metric, limit in limits.items():
        values = _values(log, metric)
        means = np.convolve(values, np.ones(10) / 10, "valid") if len(values) >= 10 else np.zeros(0)
        if (means > limit).any():
            return True
    return False


def rewardspy(log: Log) -> bool:
    """Return True if a rule of rewardspy alerts or warns of a shift, on rollouts of reward 0 or 1."""
    rewards = _rollouts(log)
    if len(rewards) < WINDOW_ROLLOUTS:
        return False
    return _variance_collapsed(rewards) or _at_ceiling(rewards) or _is_dominated(log) or _shifted(rewards)


def _rollouts(log: Log) -> Floats:
    """Yield a reward for each rollout in the order of steps, in random order within a step."""
    size = int((log.setting("sampling.prompts_per_step") or 8) * (log.setting("sampling.group_size") or 8))
    generator = random.Random(0)
    rewards: list[float] = []
    for accuracy in _values(log, "reward/accuracy"):
        correct_count = round(accuracy * size)
        step_rewards = [1.0] * correct_count + [0.0] * (size - correct_count)
        generator.shuffle(step_rewards)
        rewards += step_rewards
    return np.array(rewards)


def _variance_collapsed(rewards: Floats) -> bool:
    baseline = float(rewards[: WINDOW_ROLLOUTS // 5].std())
    return baseline >= 1e-6 and bool((_rolling_std(rewards) / baseline < 0.05).any())


def _rolling_std(rewards: Floats) -> Floats:
    windows: Floats = np.lib.stride_tricks.sliding_window_view(rewards, WINDOW_ROLLOUTS).std(axis=1)
    return windows


def _at_ceiling(rewards: Floats) -> bool:
    means = np.convolve(rewards, np.ones(WINDOW_ROLLOUTS) / WINDOW_ROLLOUTS, "valid")
    return bool((means > 0.8).any())


def _is_dominated(log: Log) -> bool:
    terms = [_values(log, name) for name in log.series if name.startswith("reward/") and name.count("/") == 2]
    magnitudes = [np.abs(values) for values in terms if len(values)]
    if len(magnitudes) < 2 or len({len(values) for values in magnitudes}) > 1:
        return False
    total = np.sum(magnitudes, axis=0)
    shares = np.max(magnitudes, axis=0) / np.maximum(total, 1e-6)
    return bool((shares[total >= 1e-6] > 0.9).any())


def _shifted(rewards: Floats) -> bool:
    baseline = float(rewards[:20].mean())
    upward_sum = downward_sum = 0.0
    for reward in rewards[20:].tolist():
        upward_sum = max(0.0, upward_sum + reward - baseline - 0.5)
        downward_sum = max(0.0, downward_sum - (reward - baseline) - 0.5)
        if upward_sum > 5 or downward_sum > 5:
            return True
    return False


def _values(log: Log, metric: str) -> Floats:
    series = log.series.get(metric)
    return np.zeros(0) if series is None else series.finite().values


RULE_BY_NAME: dict[str, Callable[[Log], bool]] = {
    "rewardspy, rules restated": rewardspy,
    "smoothed reward fell by half": halved,
    "fixed limits: no variance 0.5, cut 0.25": fixed_limits,
}
