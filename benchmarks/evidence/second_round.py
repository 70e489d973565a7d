"""The second round: the expectations that the first left undecided, in regimes in which their mechanism acts.

Regimes, measures, margins and numbers of seeds were committed before any of these runs was trained; the
pilots say why they are what they are. Runs are paired by seed, evaluated on 1,024 problems, and looked at
once, when all of a claim have finished. A claim that asks once more has new seeds alone; its outcome replaces
the undecided one, and two looks at 5 % each are up to 10 % in all.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.evidence.claim import Claim, Expectation, Measure
from benchmarks.evidence.parts import (
    ACCURACY,
    FILE,
    LEAN,
    TIS,
    kl,
    merged,
    rewards,
    size,
)
from benchmarks.evidence.pilots import AT_THE_END, REFILLED, SILENT

FIRST_SEED = 100
FRESH_SEED = 200
"""First seed of a claim that asks once more, with more seeds, what its first look left undecided."""

POINTS = 0.05
"""Five points of accuracy: a smaller difference would change nobody's choice of a method."""

AT_TOKENS = Measure(title="at equal tokens", metric="eval/accuracy", how="at_tokens", percent=True)
FORMAT = Measure(title="format reward", metric="reward/think_format/mean", percent=True)
MISMATCH = Measure(title="mismatch k3", metric="mismatch/k3", how="mean")
WRONG_LENGTH = Measure(title="length of wrong answers", metric="length/mean_incorrect")

FORMATS = {
    "weight 0.1": rewards(weight=0.1),
    "weight 1.0": rewards(weight=1.0),
    "weight 1.0, if correct": rewards(weight=1.0, only_when_correct=True),
}
NO_CORRECTION = {"objective": {"correction": {"type": "none"}}}


def _claim(
    title: str,
    says: str,
    base: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    measures: tuple[Measure, ...],
    expects: tuple[Expectation, ...],
    seeds: int,
    first_seed: int = FIRST_SEED,
) -> Claim:
    return Claim(
        title=title,
        says=says,
        base=merged(LEAN, AT_THE_END, base),
        variants=variants,
        measures=measures,
        expects=expects,
        seeds=seeds,
        first_seed=first_seed,
    )


def _expect(
    again: str, higher: str, lower: str, margin: float = POINTS, of: Measure = ACCURACY
) -> Expectation:
    return Expectation(measure=of.title, higher=higher, lower=lower, margin=margin, asks_again=again)


SECOND: dict[str, Claim] = {
    "b2": _claim(
        "Length bias of the sequence mean",
        "Of Dr. GRPO, in the regime of the first round, where differences of seeds scattered by 0.23 tokens.",
        {"steps": 100, "sampling": {"max_new_tokens": 128, "temperature": 1.3}},
        {
            "sequence mean": {"objective": {"aggregation": {"type": "seq_mean_token_mean"}}},
            "token mean": {"objective": {"aggregation": {"type": "token_mean"}}},
        },
        (WRONG_LENGTH, ACCURACY),
        (_expect("b 1", "sequence mean", "token mean", 0.5, WRONG_LENGTH),),
        seeds=12,
    ),
    "c2": _claim(
        "Dynamic sampling",
        "Of DAPO, with groups of four: 39 % of them were silent in the pilot, twice as many as in the first "
        "round, and differences of seeds scattered by 3 points.",
        merged(size(16, 4), {"steps": 60, "evaluation": {"every": 10}}),
        {"refilled": REFILLED, "every group": {}},
        (ACCURACY, AT_TOKENS, SILENT),
        (
            _expect("c 1", "refilled", "every group"),
            _expect("c 2", "refilled", "every group", of=AT_TOKENS),
        ),
        seeds=12,
    ),
    "c3": _claim(
        "Dynamic sampling, once more",
        "Of DAPO, the regime of (c2), whose twelve seeds left the accuracy at equal steps undecided: nearly "
        "twice the seeds that its spread asked for, all of them new.",
        merged(size(16, 4), {"steps": 60}),
        {"refilled": REFILLED, "every group": {}},
        (ACCURACY, SILENT),
        (_expect("c 1", "refilled", "every group"),),
        seeds=32,
        first_seed=FRESH_SEED,
    ),
    "d2": _claim(
        "Truncated importance sampling with an int8 sampler",
        "Of Yao et al. 2025, in the regime of the first round, where differences of seeds "
        "scattered by 9 points.",
        {"preset": "olmo3", "steps": 80, "sampling": {"precision": "int8"}},
        {"TIS": {"objective": TIS}, "no correction": NO_CORRECTION},
        (ACCURACY, MISMATCH),
        (_expect("d 1", "TIS", "no correction"),),
        seeds=40,
    ),
    "d3": _claim(
        "Truncated importance sampling with a stale sampler",
        "Of Yao et al. 2025, with weights 4 steps old: in the pilot the policy still learned, and the k3 of "
        "the mismatch was 0.01.",
        {"preset": "olmo3", "steps": 80, "sampling": {"staleness": 4}},
        {"TIS": {"objective": TIS}, "no correction": NO_CORRECTION},
        (ACCURACY, MISMATCH),
        (_expect("d 2", "TIS", "no correction"),),
        seeds=12,
    ),
    "e2": _claim(
        "Summed k1 as a KL loss, at a tenth",
        "Of the book's chapter 7, in the regime of the first round, where differences of "
        "seeds scattered by 6 "
        "to 10 points, half of it from 128 problems.",
        {"preset": "grpo_book_clip", "steps": 60, "sampling": {"temperature": 0.8, "top_p": 0.9}},
        {
            "no KL": kl(type="none"),
            "k1 sum, 0.1": kl(type="k1", coef=0.1, aggregation="seq_sum"),
            "k3 mean, 0.1": kl(type="k3", coef=0.1),
        },
        (ACCURACY,),
        (_expect("e 1", "no KL", "k1 sum, 0.1"), _expect("e 2", "k3 mean, 0.1", "k1 sum, 0.1")),
        seeds=32,
    ),
    "f2": _claim(
        "Format reward",
        "Of the book's chapter 7, at the policy's own learning rate, where differences of "
        "seeds scattered by 6 "
        "points.",
        {"preset": "dr_grpo", "steps": 60},
        FORMATS,
        (ACCURACY, FORMAT),
        (
            _expect("f 1", "weight 0.1", "weight 1.0"),
            _expect("f 2", "weight 1.0, if correct", "weight 1.0"),
        ),
        seeds=24,
    ),
    "f3": _claim(
        "Format reward, fast",
        "Of the book's chapter 7, at twice the policy's own learning rate: in the pilot the format was earned"
        " at every weight, and differences of seeds scattered by 7 to 10 points.",
        {"preset": "dr_grpo", "steps": 60, "optimizer": {"lr": 6e-4}},
        FORMATS,
        (ACCURACY, FORMAT),
        (
            _expect("f 3", "weight 0.1", "weight 1.0"),
            _expect("f 4", "weight 1.0, if correct", "weight 1.0"),
        ),
        seeds=40,
    ),
    "h2": _claim(
        "Group size",
        "Larger groups give a steadier baseline at equal completions per step. The regime of "
        "the first round, "
        "where differences of seeds scattered by 5 points.",
        {"steps": 100},
        {"8 x 8": size(8, 8), "32 x 2": size(32, 2)},
        (ACCURACY,),
        (_expect("h 1", "8 x 8", "32 x 2"),),
        seeds=20,
    ),
    "j2": _claim(
        "Prompts without signal",
        "Of DAPO: prompts that are always or never solved can be left out without loss. The "
        "regime of the first "
        "round, where differences of seeds scattered by 1.4 points.",
        {"steps": 100, "problems": [FILE]},
        {"left out": {"filters": {"groups": {"type": "accuracy"}}}, "own form": {}},
        (ACCURACY, SILENT),
        (_expect("j 2", "left out", "own form", -POINTS),),
        seeds=8,
    ),
}
"""Claims of the second round. Those on clip-higher (a) and the group's std (g) wait for their pilots."""
