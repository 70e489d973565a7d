"""Detectors of what is wrong with the updates: numbers, sizes, pulls, ages, critics."""

import numpy as np

from backend.diagnosis.findings import Finding
from backend.diagnosis.log import Log
from backend.diagnosis.outcome import Interval, Outcome
from backend.diagnosis.signs import TITLES, Answer, Sign, finding_of, first_of, has, standing, unjudged


def non_finite(log: Log, outcome: Outcome) -> Answer:
    """Loss, gradient or reward that is not a number; a skipped update is one, too."""
    names = ("loss/total", "loss/policy", "optim/grad_norm", "reward/mean", "policy/entropy")
    firsts = {
        name: int(series.steps[~np.isfinite(series.values)][0])
        for name in names
        if (series := log.series.get(name)) is not None and not np.isfinite(series.values).all()
    }
    skipped = log.series.get("optim/skipped")
    if skipped is not None and (skipped.values > 0).any():
        firsts["optim/skipped"] = int(skipped.steps[skipped.values > 0][0])
    if not firsts:
        return None if has(log, *names) else unjudged("non_finite", "a loss, a gradient norm or a reward")
    name, step = min(firsts.items(), key=lambda item: item[1])
    series = log.series[name]
    bad = (series.values > 0) if name == "optim/skipped" else ~np.isfinite(series.values)
    last = int(series.steps[bad][-1])
    share = float(np.mean(bad[series.steps >= step]))
    count = int(bad.sum())
    words = f"{name} was not finite at {count} of {len(series)} steps, from step {step} to {last}"
    if name == "optim/skipped":
        words = (
            f"{int(bad.sum())} steps skipped updates whose loss or gradient was not finite, first step {step}"
        )
    before = series.steps[series.steps < step]
    onset = Interval(int(before[-1]) if len(before) else step, step)
    return Finding("non_finite", TITLES["non_finite"], onset, "specific", 1.0, share, (words,), (name,))


def update_size(log: Log, outcome: Outcome) -> Answer:
    """Gradients and learning rate that grow: a step moves the policy further than it can bear."""
    if not has(log, "optim/grad_norm", "optim/lr"):
        return unjudged("update_size", "the gradient norm or the learning rate")
    signs = (
        Sign("optim/lr", "up", 1.5, 1e-12, is_log=True, is_setting=True),
        Sign("optim/grad_norm", "up", 3.0, 1e-6, is_log=True),
        Sign("ratio/max", "up", 3.0, 0.2, is_log=True, beyond=3.0),
    )
    found = first_of(log, outcome, *signs)
    if found is None:
        return _large_from_the_start(log, outcome)
    return finding_of("update_size", found, tier="consistent" if found.metric == "ratio/max" else "specific")


def _large_from_the_start(log: Log, outcome: Outcome) -> Answer:
    """Distances and ratios that no step should make, before there is a healthy window to compare with."""
    if outcome.onset is None or outcome.onset.healthy > 10:
        return None
    return standing(log, "update_size", "ratio/max", 10.0) or standing(log, "update_size", "kl/k3", 0.5)


def dead_run(log: Log, outcome: Outcome) -> Answer:
    """Weights that no update moves. A loss of 0 or a ratio of 1 says nothing of it."""
    lr, norm = log.find("optim/lr", least=5), log.find("optim/grad_norm", least=5)
    if lr is None and norm is None:
        return unjudged("dead_run", "the learning rate and the gradient norm")
    limits = {"optim/lr": NO_RATE, "optim/grad_norm": 0.0}
    for name, series in (found for found in (lr, norm) if found is not None):
        still = float(np.mean(series.values[len(series) // 10 :] <= limits[name]))
        if still > 0.9:
            onset = Interval(int(series.steps[0]), int(series.steps[0]))
            words = (
                f"{name} is at most {limits[name]:g} at {still:.0%} of the steps",
                *_same_evaluations(log),
            )
            return Finding("dead_run", TITLES["dead_run"], onset, "specific", 1.0, 1.0, words, (name,))
    return None


NO_RATE = 1e-9
"""Learning rate below which float32 weights hardly change in a run's time."""


def _same_evaluations(log: Log) -> tuple[str, ...]:
    found = log.find("eval/accuracy")
    if found is None or float(np.ptp(found[1].values)) > 0:
        return ()
    return (f"all {len(found[1])} evaluations gave exactly {found[1].values[0]:.3g}",)


def kl_pull(log: Log, outcome: Outcome) -> Answer:
    """A KL term whose size in the loss jumps; a k1 in the loss may even push away from the reference."""
    if not has(log, "loss/kl"):
        return None if has(log, "loss/total") else unjudged("kl_pull", "the KL term of the loss")
    found = first_of(
        log,
        outcome,
        Sign("loss/kl", "up", 3.0, 1e-3, is_setting=True),
        Sign("loss/kl", "down", -3.0, 1e-3, is_setting=True),
    )
    kind, coefficient = log.setting("objective.kl.type"), log.setting("objective.kl.coef")
    if found is None:
        return None
    words = (f"objective.kl is {kind} with coef {coefficient:g} in the loss",) if kind and coefficient else ()
    return finding_of("kl_pull", found, tier="specific" if kind == "k1" else "consistent", words=words)


def kl_runaway(log: Log, outcome: Outcome) -> Answer:
    """Distance from the reference that grows while the goal does not."""
    if not has(log, "kl/k3", "kl/k2", "kl/k1"):
        return unjudged("kl_runaway", "a KL to the reference")
    signs = (
        Sign("kl/k3", "up", 5.0, 1e-3, is_log=True, beyond=0.05),
        Sign("kl/k2", "up", 5.0, 1e-3, is_log=True, beyond=0.05),
    )
    found = first_of(log, outcome, *signs)
    return None if found is None else finding_of("kl_runaway", found, tier="consistent")


def critic(log: Log, outcome: Outcome) -> Answer:
    """A critic whose predictions are worse than the mean of the returns."""
    if not has(log, "critic/explained_variance"):
        return None  # no critic
    found = first_of(
        log, outcome,
        Sign("critic/loss", "up", 5.0, 1e-6, is_log=True),
        Sign("critic/explained_variance", "down", 0.0, 0.1, beyond=0.0),
    )  # fmt: skip
    return None if found is None else finding_of("critic", found, tier="consistent")
