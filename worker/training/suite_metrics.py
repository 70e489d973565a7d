"""Metrics of a suite: accuracy, pass@k and maj@k with intervals over its prompts.

The functions accept plain arrays and seeded generators, so the same completions give bit-identical metrics.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.config.metrics import interval_names
from backend.metrics.student import critical
from worker.training.step_metrics import Metrics, pass_at_k

CONFIDENCE_LEVEL = 0.95
MAX_EVERY_K = 64
"""Largest k up to which pass@k is computed for every k. Each k adds a metric with both ends of an
interval."""

MAJORITY_SUBSETS = 256
"""Number of random subsets of a prompt's completions over which maj@k is averaged if k < n."""

Floats = NDArray[np.float64]


class GradedPrompt(NamedTuple):
    """Grades and votes of the completions of one prompt."""

    correct: Sequence[bool]
    """True for each correct completion, [n]."""
    votes: Sequence[str | None]
    """Answer that each completion votes for, [n], or None if it gives no answer."""


def suite_metrics(graded_prompts: Sequence[GradedPrompt], *, seed: int) -> Metrics:
    """Return accuracy, pass_at_<k> for `passing_ks` and maj_at_<k> for `chosen_ks`, with interval ends.

    The ends have the suffixes `_low` and `_high`. The result is empty without prompts. The same seed gives
    the same subsets.
    """
    if not graded_prompts:
        return {}
    n = max(len(prompt.correct) for prompt in graded_prompts)
    counts = [(len(prompt.correct), sum(prompt.correct)) for prompt in graded_prompts]
    values: dict[str, Floats] = {
        "accuracy": np.array([correct_count / size for size, correct_count in counts])
    }
    for k in passing_ks(n):
        values[f"pass_at_{k}"] = np.array(
            [pass_at_k(size, correct_count, k=min(k, size)) for size, correct_count in counts]
        )
    for k in chosen_ks(n):
        generator = np.random.default_rng([seed, k])
        values[f"maj_at_{k}"] = np.array([maj_at_k(prompt, k, generator) for prompt in graded_prompts])
    rows = np.array(list(values.values()))
    intervals = np.transpose(score_intervals(rows))
    metrics: Metrics = {"prompts": len(graded_prompts), "n": n}
    for name, mean, interval in zip(values, rows.mean(axis=1), intervals, strict=True):
        metrics[name] = float(mean)
        metrics |= zip(interval_names(name), map(float, interval), strict=True)
    return metrics


def passing_ks(n: int) -> list[int]:
    """Return every k from 2 to n up to MAX_EVERY_K, and beyond it the values of `chosen_ks`."""
    return sorted({*range(2, min(n, MAX_EVERY_K) + 1), *chosen_ks(n)})


def chosen_ks(n: int) -> list[int]:
    """Return the powers of two from 2 to n, and n itself. Accuracy covers k = 1."""
    return sorted({2**power for power in range(1, n.bit_length())} | {n}) if n > 1 else []


def maj_at_k(prompt: GradedPrompt, k: int, generator: np.random.Generator) -> float:
    """Return the probability that the majority among k of a prompt's completions is correct.

    Completions without an answer do not vote. If no completion votes, the majority is incorrect. In a tie of
    m answers each counts 1/m. The value is exact for k = n. For k < n it is the mean over MAJORITY_SUBSETS
    random subsets.
    """
    n = len(prompt.correct)
    answers = {
        vote: index for index, vote in enumerate(dict.fromkeys(v for v in prompt.votes if v is not None))
    }
    if not answers:
        return 0.0
    labels = np.array([len(answers) if vote is None else answers[vote] for vote in prompt.votes])
    correct_shares = _share_right(labels, np.array(prompt.correct, dtype=float), len(answers))
    if k >= n:
        return float(
            _majority_means(np.bincount(labels, minlength=len(answers) + 1)[None, :-1], correct_shares)[0]
        )
    subsets = labels[np.argsort(generator.random((MAJORITY_SUBSETS, n)), axis=1)[:, :k]]
    label_count = len(answers) + 1
    bins = subsets + label_count * np.arange(MAJORITY_SUBSETS)[:, None]
    vote_counts = np.bincount(bins.ravel(), minlength=MAJORITY_SUBSETS * label_count).reshape(
        MAJORITY_SUBSETS, label_count
    )
    return float(_majority_means(vote_counts[:, :-1], correct_shares).mean())


def _share_right(labels: NDArray[np.int64], correct: Floats, answers: int) -> Floats:
    """Return the share of each answer's completions that are graded correct, [answers]. It is mostly 0 or
    1.
    """
    totals = np.bincount(labels, minlength=answers + 1)[:-1]
    return np.bincount(labels, weights=correct, minlength=answers + 1)[:-1] / totals


def _majority_means(vote_counts: NDArray[np.int64], correct_shares: Floats) -> Floats:
    """Return the mean of `correct_shares` over the answers with the most votes, [S], for tallies (S,
    answers).
    """
    largest_tally = vote_counts.max(axis=1, keepdims=True)
    wins = (vote_counts == largest_tally) & (largest_tally > 0)
    return (wins @ correct_shares) / np.maximum(wins.sum(axis=1), 1)


def score_intervals(values: Floats) -> tuple[Floats, Floats]:
    """Return the lower and upper ends [M] of 95 % intervals of the means of values (M, P) within 0..1.

    Uses Wilson's score interval for P prompts with Student's t in place of the normal quantile. The interval
    is narrowed by the ratio of the values' variance to that of 0/1 values with the same mean. One 0 and one 1
    are added to the values for this ratio, because values below 1 are rarely sampled if nearly all values
    are 1. The interval of a single prompt has width 0. Source: Wilson 1927,
    doi:10.1080/01621459.1927.10502953.
    """
    count, means = values.shape[1], values.mean(axis=1)
    if count < 2:
        return means, means
    padded_values = np.pad(values, ((0, 0), (1, 1)), constant_values=(0, 1))
    binary = padded_values.mean(axis=1) * (1 - padded_values.mean(axis=1))
    ratio = np.minimum(padded_values.var(axis=1, ddof=1) / binary, 1)
    q = critical(1 - CONFIDENCE_LEVEL, count - 1) ** 2 * ratio / count
    middle = (means + q / 2) / (1 + q)
    half_width = np.sqrt(q * means * (1 - means) + q * q / 4) / (1 + q)
    return np.maximum(middle - half_width, 0), np.minimum(middle + half_width, 1)
