"""Pilots: regimes that were tried, on seeds of their own, before the second round was written.

A pilot answers two questions: does the mechanism act (ratios leave the clip, groups are silent, sampler and
learner differ, a reward is hacked), and how far do paired differences of seeds scatter? The regime and the
number of seeds of a claim follow from its pilot; its outcome does not count.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.evidence.claim import Claim, Expectation, Measure
from benchmarks.evidence.parts import ACCURACY, LEAN, MIXED, TIS, clip, merged, rewards, scale, size, sums

FIRST_SEED = 1000
SEEDS = 3

AT_THE_END = {"evaluation": {"every": 1000, "prompts": 1024}}
"""Evaluated before training and at the end, on eight times as many problems as in the first round."""

ENTROPY_ALL = Measure(title="entropy, all steps", metric="policy/entropy", how="mean")
SILENT = Measure(title="groups without signal", metric="groups/zero_variance_frac", how="mean", percent=True)
REFILLED = {"filters": {"groups": {"type": "accuracy"}, "refill": {"type": "dynamic"}}}


def _pilot(
    of: str,
    asks: str,
    base: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    *measures: Measure,
) -> Claim:
    higher, *lower = variants
    measure = measures[0]
    return Claim(
        title=f"Pilot of ({of})",
        says=asks,
        base=merged(LEAN, AT_THE_END, base),
        variants=variants,
        measures=measures,
        expects=tuple(Expectation(measure=measure.title, higher=higher, lower=each) for each in lower),
        seeds=SEEDS,
        first_seed=FIRST_SEED,
    )


def _clips(asks: str, **base: Any) -> Claim:
    return _pilot(
        "a",
        asks,
        {"steps": 60, "objective": {"aggregation": {"type": "token_mean"}}, **base},
        {"0.2 / 0.4": clip(0.4), "0.2 / 0.28": clip(0.28), "0.2 / 0.2": clip(0.2)},
        ENTROPY_ALL,
        Measure(title="clipped above", metric="clip/high_frac", how="mean", percent=True),
        ACCURACY,
    )


def _refills(asks: str, temperature: float) -> Claim:
    return _pilot(
        "c",
        asks,
        merged(size(16, 4), {"steps": 60, "sampling": {"temperature": temperature}}),
        {"refilled": REFILLED, "every group": {}},
        ACCURACY,
        SILENT,
    )


def _stale(asks: str, versions: int, lr: float) -> Claim:
    base = {"preset": "olmo3", "steps": 80, "optimizer": {"lr": lr}, "sampling": {"staleness": versions}}
    return _pilot(
        "d",
        asks,
        base,
        {"stale, TIS": {"objective": TIS}, "stale": {"objective": {"correction": {"type": "none"}}}},
        ACCURACY,
        Measure(title="mismatch k3", metric="mismatch/k3", how="mean"),
    )


def _formats(asks: str, lr: float, steps: int, **base: Any) -> Claim:
    return _pilot(
        "f",
        asks,
        {"preset": "dr_grpo", "steps": steps, "optimizer": {"lr": lr}, **base},
        {
            "weight 0.1": rewards(weight=0.1),
            "weight 1.0": rewards(weight=1.0),
            "weight 1.0, if correct": rewards(weight=1.0, only_when_correct=True),
        },
        ACCURACY,
        Measure(title="format reward", metric="reward/think_format/mean", percent=True),
        Measure(title="correct in training", metric="reward/accuracy", percent=True),
    )


PILOTS: dict[str, Claim] = {
    "pilot c1": _refills("Are groups of 4 silent often enough for refilling to matter?", 1.0),
    "pilot c2": _refills("Are they at temperature 0.7?", 0.7),
    "pilot f1": _formats("Is the format hacked at six times the learning rate?", 2e-3, 40),
    "pilot f2": _formats(
        "Is it where few answers are right: sums of four?",
        1e-3,
        60,
        problems=[sums("math", operands=4, low=10, high=99)],
    ),
    "pilot f3": _formats("Is it at twice the learning rate?", 6e-4, 60),
    "pilot d1": _stale(
        "Does staleness 4 leave a policy that learns, and ratios that need truncation?", 4, 3e-4
    ),
    "pilot d2": _stale("Does staleness 8 at half the learning rate?", 8, 1.5e-4),
    "pilot a1": _clips(
        "Do more ratios leave the clip where the entropy is higher, at temperature 1.5?",
        updates={"epochs": 2, "minibatches": 4},
        sampling={"temperature": 1.5},
    ),
    "pilot a2": _clips(
        "Do they with half the updates, so that accuracy does not fall?",
        updates={"epochs": 2, "minibatches": 4},
    ),
    "pilot g1": _pilot(
        "g",
        "How far do seeds scatter on sums of three difficulties at two thirds of the learning rate?",
        {"steps": 100, "problems": MIXED, "optimizer": {"lr": 2e-4}},
        {"none": scale("none"), "group std": scale("group_std")},
        ACCURACY,
    ),
}
