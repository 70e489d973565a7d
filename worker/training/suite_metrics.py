"""Metrics of a suite: accuracy, pass@k and maj@k with bootstrap intervals over its prompts.

Every function takes plain arrays and a seeded generator: the same completions give the same numbers, bit by bit.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.config.metrics import interval_of
from worker.training.step_metrics import Metrics, pass_at_k

RESAMPLES = 2_000
"""Bootstrap samples of the prompts."""

LEVEL = 0.95
SUBSETS = 256
"""Random subsets of a prompt's completions that maj@k averages over where k < n."""

Floats = NDArray[np.float64]


class Graded(NamedTuple):
    """The completions of one prompt."""

    correct: Sequence[bool]
    """[n] whether each is right."""
    votes: Sequence[str | None]
    """[n] the answer that each votes for; None: it gives none."""


def suite_metrics(graded: Sequence[Graded], *, seed: int) -> Metrics:
    """accuracy, pass_at_<k> and maj_at_<k> for the k of `chosen_ks`, each with its `_low` and `_high`.

    Empty without prompts. The same seed gives the same resamples and subsets.
    """
    if not graded:
        return {}
    n = max(len(prompt.correct) for prompt in graded)
    counts = [(len(prompt.correct), sum(prompt.correct)) for prompt in graded]
    values: dict[str, Floats] = {"accuracy": np.array([right / size for size, right in counts])}
    for k in chosen_ks(n):
        values[f"pass_at_{k}"] = np.array([pass_at_k(size, right, k=min(k, size)) for size, right in counts])
        generator = np.random.default_rng([seed, k])
        values[f"maj_at_{k}"] = np.array([maj_at_k(prompt, k, generator) for prompt in graded])
    metrics: Metrics = {"prompts": len(graded), "n": n}
    for name, of_prompts in values.items():
        low, high = interval_of(name)
        metrics[name] = float(of_prompts.mean())
        metrics[low], metrics[high] = bootstrap_interval(of_prompts, np.random.default_rng(seed))
    return metrics


def chosen_ks(n: int) -> list[int]:
    """The powers of two from 2 to n, and n itself; accuracy stands for k = 1."""
    return sorted({2**power for power in range(1, n.bit_length()) if 2**power <= n} | ({n} if n > 1 else set()))


def maj_at_k(prompt: Graded, k: int, generator: np.random.Generator) -> float:
    """Probability that the majority among k of a prompt's completions is right.

    Completions without an answer do not vote; if nobody votes, the majority is wrong. Equal votes share it: of m
    answers with the most votes each counts 1/m. With k = n it is exact; below, the mean over SUBSETS random subsets.
    """
    n = len(prompt.correct)
    answers = {vote: at for at, vote in enumerate(dict.fromkeys(v for v in prompt.votes if v is not None))}
    if not answers:
        return 0.0
    labels = np.array([len(answers) if vote is None else answers[vote] for vote in prompt.votes])
    right = _share_right(labels, np.array(prompt.correct, dtype=float), len(answers))
    if k >= n:
        return float(_majorities(np.bincount(labels, minlength=len(answers) + 1)[None, :-1], right)[0])
    drawn = labels[np.argsort(generator.random((SUBSETS, n)), axis=1)[:, :k]]
    width = len(answers) + 1
    places = drawn + width * np.arange(SUBSETS)[:, None]
    tallies = np.bincount(places.ravel(), minlength=SUBSETS * width).reshape(SUBSETS, width)
    return float(_majorities(tallies[:, :-1], right).mean())


def _share_right(labels: NDArray[np.int64], correct: Floats, answers: int) -> Floats:
    """[answers] the share of the completions with an answer that the grader calls right: 0 or 1, as a rule."""
    totals = np.bincount(labels, minlength=answers + 1)[:-1]
    return np.bincount(labels, weights=correct, minlength=answers + 1)[:-1] / totals


def _majorities(tallies: NDArray[np.int64], right: Floats) -> Floats:
    """[S] for tallies (S, answers): the mean of `right` over the answers with the most votes."""
    most = tallies.max(axis=1, keepdims=True)
    wins = (tallies == most) & (most > 0)
    return (wins @ right) / np.maximum(wins.sum(axis=1), 1)


def bootstrap_interval(values: Floats, generator: np.random.Generator) -> tuple[float, float]:
    """The 95 % percentile interval of the mean of [P] values, resampled with replacement.

    Resamples of the mean are spread by sqrt(P / (P - 1)) around it: a resample varies by less than a new sample
    of prompts does, which matters for suites as small as AIME. Of a single prompt, or equal values, it has no width.
    """
    count, mean = len(values), float(values.mean())
    if count < 2:
        return mean, mean
    means = np.concatenate(
        [values[generator.integers(count, size=(rows, count))].mean(axis=1) for rows in _pieces(count)]
    )
    spread = mean + (means - mean) * math.sqrt(count / (count - 1))
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    lowest, highest = float(values.min()), float(values.max())
    return max(float(low), lowest), min(float(high), highest)


def _pieces(count: int) -> list[int]:
    """RESAMPLES in pieces of at most about a million values."""
    size = max(1, min(RESAMPLES, 1_000_000 // count))
    return [min(size, RESAMPLES - start) for start in range(0, RESAMPLES, size)]
