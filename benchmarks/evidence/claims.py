"""The claims as values: what is varied, what is measured and what the source says should come out.

A setting is chosen so that the mechanism acts (ratios leave the clip range, sampler and learner differ, ...);
the outcome is whatever comes out.
"""

from collections.abc import Mapping
from typing import Any, Literal

from backend.config.base import Frozen
from backend.config.presets import PRESETS

How = Literal["last", "first", "end", "mean", "max", "at_tokens"]
END_STEPS = 10
"""Steps whose mean is the value at the end."""


class Measure(Frozen):
    """One number of a run."""

    title: str
    """Head of its column."""
    metric: str
    how: How = "end"
    """last, first: that recorded value; end: mean of the last 10 steps; mean, max: over all steps; at_tokens:
    interpolated where every run of the claim still trains, in generated tokens."""
    percent: bool = False


class Expectation(Frozen):
    """What the source says: `higher` has more of a measure than `lower`."""

    measure: str
    """Title of the measure."""
    higher: str
    lower: str


class Claim(Frozen):
    """One claim of a paper or of the book, tried on the tiny policy."""

    title: str
    says: str
    """What the source claims, and which setting makes its mechanism act here."""
    base: Mapping[str, Any]
    """Fields of RunConfig that all variants share."""
    variants: Mapping[str, Mapping[str, Any]]
    measures: tuple[Measure, ...]
    expects: tuple[Expectation, ...] = ()
    seeds: int = 5


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = _merged(merged[key], value) if both else value
    return merged


LEAN = {
    "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 64},
    "evaluation": {"every": 10},
    "checkpointing": {"every": 0},
    "recording": {"rollouts": "none", "tokens": False},
}
"""8 prompts x 8 completions of at most 64 tokens, evaluated every 10 steps on 128 held-out prompts."""

ACCURACY = Measure(title="held-out accuracy", metric="eval/accuracy", how="last", percent=True)
ENTROPY = Measure(title="entropy", metric="policy/entropy")
LENGTH = Measure(title="length", metric="length/mean")


def _clip(high: float) -> dict[str, Any]:
    return {"objective": {"surrogate": {"type": "ppo_clip", "eps_low": 0.2, "eps_high": high}}}


def _kl(**fields: Any) -> dict[str, Any]:
    return {"objective": {"kl": fields}}


def _rewards(**think: Any) -> dict[str, Any]:
    return {"rewards": [{"name": "correctness", "weight": 1.0}, {"name": "think_format", **think}]}


def _scale(scale: str) -> dict[str, Any]:
    return {"objective": {"advantage": {"type": "group_mean", "scale": {"type": scale}}}}


def _size(prompts: int, group: int) -> dict[str, Any]:
    return {"sampling": {"prompts_per_step": prompts, "group_size": group}}


def _sums(domain: str, **fields: Any) -> dict[str, Any]:
    return {"name": "sums", "domain": domain, **fields}


TIS = {"correction": {"type": "token_tis", "cap": 2.0}}
_FILE = {"name": "file", "path": "sums.jsonl"}
_FAST = {"optimizer": {"lr": 1e-3}}
MIXED = [
    _sums("easy", operands=3, low=10, high=30),
    _sums("medium", operands=3, low=10, high=99),
    _sums("hard", operands=3, low=60, high=99),
]
"""Sums with few, some and almost only carries, which the warm-started policy forgets."""

CLAIMS: dict[str, Claim] = {
    "e": Claim(
        title="Summed k1 as a KL loss",
        says="The book's chapter 7: k1 summed over tokens and added to the loss made its run collapse; no "
        "KL, k3 per token and the reweighted form did not. The book's loss, two epochs of fresh rollouts. "
        "The pull grows with the length: 0.6 over our 32 tokens is about the book's 0.02 over its thousand; "
        "those variants were added when 0.1 had shown more entropy and no collapse.",
        base=_merged(
            LEAN,
            {
                "preset": "grpo_book_clip",
                "steps": 60,
                "sampling": {"temperature": 0.8, "top_p": 0.9},
            },
        ),
        variants={
            "no KL": _kl(type="none"),
            "k1 sum, 0.02": _kl(type="k1", coef=0.02, aggregation="seq_sum"),
            "k1 sum, 0.1": _kl(type="k1", coef=0.1, aggregation="seq_sum"),
            "k3 mean, 0.1": _kl(type="k3", coef=0.1),
            "reweighted k1 sum, 0.1": _kl(type="r_k1", coef=0.1, aggregation="seq_sum"),
            "k1 sum, 0.6": _kl(type="k1", coef=0.6, aggregation="seq_sum"),
            "k3 mean, 0.6": _kl(type="k3", coef=0.6),
            "reweighted k1 sum, 0.6": _kl(type="r_k1", coef=0.6, aggregation="seq_sum"),
        },
        measures=(
            ACCURACY,
            ENTROPY,
            LENGTH,
            Measure(title="cut off", metric="length/truncated_frac", percent=True),
        ),
        expects=(
            Expectation(measure="held-out accuracy", higher="no KL", lower="k1 sum, 0.1"),
            Expectation(measure="held-out accuracy", higher="k3 mean, 0.1", lower="k1 sum, 0.1"),
            Expectation(measure="held-out accuracy", higher="reweighted k1 sum, 0.1", lower="k1 sum, 0.1"),
            Expectation(measure="held-out accuracy", higher="no KL", lower="k1 sum, 0.6"),
            Expectation(measure="held-out accuracy", higher="k3 mean, 0.6", lower="k1 sum, 0.6"),
            Expectation(measure="held-out accuracy", higher="reweighted k1 sum, 0.6", lower="k1 sum, 0.6"),
        ),
    ),
    "f": Claim(
        title="Format reward",
        says="The book's chapter 7: a format reward as heavy as the right answer is hacked (well-formed and "
        "wrong); at a tenth of the weight, or given to correct completions alone, it is not. At the policy's "
        "own learning rate and at 1e-3 (fast), near the most that it bears; the fast variants were added "
        "after a trial with seed 0 that showed the expected order.",
        base=_merged(LEAN, {"preset": "dr_grpo", "steps": 60}),
        variants={
            "weight 1.0": _rewards(weight=1.0),
            "weight 0.1": _rewards(weight=0.1),
            "weight 1.0, if correct": _rewards(weight=1.0, only_when_correct=True),
            "weight 1.0, fast": _FAST | _rewards(weight=1.0),
            "weight 0.1, fast": _FAST | _rewards(weight=0.1),
            "weight 1.0, if correct, fast": _FAST | _rewards(weight=1.0, only_when_correct=True),
        },
        measures=(
            ACCURACY,
            Measure(title="format reward", metric="reward/think_format/mean", percent=True),
            Measure(title="correct in training", metric="reward/accuracy", percent=True),
            LENGTH,
        ),
        expects=(
            Expectation(measure="held-out accuracy", higher="weight 0.1", lower="weight 1.0"),
            Expectation(measure="held-out accuracy", higher="weight 1.0, if correct", lower="weight 1.0"),
            Expectation(measure="held-out accuracy", higher="weight 0.1, fast", lower="weight 1.0, fast"),
            Expectation(
                measure="held-out accuracy", higher="weight 1.0, if correct, fast", lower="weight 1.0, fast"
            ),
        ),
    ),
    "b": Claim(
        title="Length bias of the sequence mean",
        says="Dr. GRPO: dividing each completion's loss by its own length spares long wrong answers, so they "
        "grow; with a token mean, or a constant divisor and no std, they do not. Room for 128 tokens, and "
        "temperature 1.3, at which lengths differ.",
        base=_merged(LEAN, {"steps": 100, "sampling": {"max_new_tokens": 128, "temperature": 1.3}}),
        variants={
            "sequence mean": {"objective": {"aggregation": {"type": "seq_mean_token_mean"}}},
            "token mean": {"objective": {"aggregation": {"type": "token_mean"}}},
            "Dr. GRPO": {"preset": "dr_grpo"},
        },
        measures=(
            Measure(title="length of wrong answers", metric="length/mean_incorrect"),
            Measure(title="length of right answers", metric="length/mean_correct"),
            ACCURACY,
        ),
        expects=(
            Expectation(measure="length of wrong answers", higher="sequence mean", lower="token mean"),
            Expectation(measure="length of wrong answers", higher="sequence mean", lower="Dr. GRPO"),
        ),
    ),
    "a": Claim(
        title="Clip-higher",
        says="DAPO: a wider upper clip range keeps the entropy up where a symmetric one lets it fall. 16 "
        "updates per batch (4 epochs of 4 minibatches), so that ratios leave the range.",
        base=_merged(
            LEAN,
            {
                "steps": 60,
                "updates": {"epochs": 4, "minibatches": 4},
                "objective": {"aggregation": {"type": "token_mean"}},
            },
        ),
        variants={"0.2 / 0.2": _clip(0.2), "0.2 / 0.28": _clip(0.28), "0.2 / 0.4": _clip(0.4)},
        measures=(
            ENTROPY,
            ACCURACY,
            Measure(title="clipped above", metric="clip/high_frac", percent=True),
            Measure(title="clipped below", metric="clip/low_frac", percent=True),
        ),
        expects=(
            Expectation(measure="entropy", higher="0.2 / 0.28", lower="0.2 / 0.2"),
            Expectation(measure="entropy", higher="0.2 / 0.4", lower="0.2 / 0.2"),
        ),
    ),
    "g": Claim(
        title="Division by the group's std",
        says="Dr. GRPO: the std gives prompts that are nearly always or nearly never solved more weight than "
        "others, and learning is no worse without it. Sums of three difficulties.",
        base=_merged(LEAN, {"steps": 100, "problems": MIXED}),
        variants={"group std": _scale("group_std"), "batch std": _scale("batch_std"), "none": _scale("none")},
        measures=(
            ACCURACY,
            *(
                Measure(
                    title=f"accuracy, {domain}", metric=f"eval/accuracy/{domain}", how="last", percent=True
                )
                for domain in ("easy", "medium", "hard")
            ),
        ),
        expects=(Expectation(measure="held-out accuracy", higher="none", lower="group std"),),
    ),
    "c": Claim(
        title="Dynamic sampling",
        says="DAPO: leaving out groups without signal and refilling the step learns more per step; each step "
        "costs more generated tokens.",
        base=_merged(LEAN, {"steps": 100}),
        variants={
            "every group": {},
            "left out": {"filters": {"groups": {"type": "accuracy"}}},
            "refilled": {"filters": {"groups": {"type": "accuracy"}, "refill": {"type": "dynamic"}}},
        },
        measures=(
            ACCURACY,
            Measure(title="at equal tokens", metric="eval/accuracy", how="at_tokens", percent=True),
            Measure(title="tokens generated", metric="tokens/total", how="last"),
            Measure(title="batches per step", metric="sampling/generated_batches", how="mean"),
        ),
        expects=(
            Expectation(measure="held-out accuracy", higher="refilled", lower="every group"),
            Expectation(measure="at equal tokens", higher="refilled", lower="every group"),
        ),
    ),
    "d": Claim(
        title="Truncated importance sampling",
        says="Yao et al. 2025: where sampler and learner differ (an int8 sampler, or weights 8 steps old), "
        "weighting by the truncated ratio learns more than ignoring the difference.",
        base=_merged(LEAN, {"preset": "olmo3", "steps": 100}),
        variants={
            "exact sampler": {"objective": {"correction": {"type": "none"}}},
            "int8": {"sampling": {"precision": "int8"}, "objective": {"correction": {"type": "none"}}},
            "int8, TIS": {"sampling": {"precision": "int8"}, "objective": TIS},
            "stale": {"sampling": {"staleness": 8}, "objective": {"correction": {"type": "none"}}},
            "stale, TIS": {"sampling": {"staleness": 8}, "objective": TIS},
        },
        measures=(
            ACCURACY,
            ENTROPY,
            Measure(title="mismatch k3", metric="mismatch/k3", how="mean"),
            Measure(title="largest rho", metric="mismatch/rho_max", how="max"),
        ),
        expects=(
            Expectation(measure="held-out accuracy", higher="int8, TIS", lower="int8"),
            Expectation(measure="held-out accuracy", higher="stale, TIS", lower="stale"),
        ),
    ),
    "h": Claim(
        title="Group size and batch size",
        says="Larger groups give a steadier baseline at equal completions per step, larger batches a "
        "steadier gradient.",
        base=_merged(LEAN, {"steps": 100}),
        variants={
            "32 x 2": _size(32, 2),
            "16 x 4": _size(16, 4),
            "8 x 8": _size(8, 8),
            "4 x 16": _size(4, 16),
            "2 x 8": _size(2, 8),
            "16 x 8": _size(16, 8),
        },
        measures=(
            ACCURACY,
            Measure(title="at equal tokens", metric="eval/accuracy", how="at_tokens", percent=True),
            Measure(title="gradient norm", metric="optim/grad_norm", how="mean"),
        ),
        expects=(
            Expectation(measure="held-out accuracy", higher="8 x 8", lower="32 x 2"),
            Expectation(measure="held-out accuracy", higher="16 x 8", lower="2 x 8"),
        ),
    ),
    "j": Claim(
        title="Prompt template and difficulty",
        says="Dr. GRPO and DAPO: a prompt form that the policy was not trained on costs accuracy at first; "
        "prompts that are always or never solved can be left out without loss.",
        base=_merged(LEAN, {"steps": 100, "problems": [_FILE]}),
        variants={
            "own form": {},
            "in a template": {"problems": [_FILE | {"instruction": "Put the answer in a box."}]},
            "unsolved and solved left out": {"filters": {"groups": {"type": "accuracy"}}},
        },
        measures=(
            Measure(title="accuracy before", metric="eval/accuracy", how="first", percent=True),
            ACCURACY,
            Measure(
                title="groups without signal", metric="groups/zero_variance_frac", how="mean", percent=True
            ),
        ),
        expects=(
            Expectation(measure="accuracy before", higher="own form", lower="in a template"),
            Expectation(measure="held-out accuracy", higher="unsolved and solved left out", lower="own form"),
        ),
    ),
    "i": Claim(
        title="Every preset",
        says="All presets on the default 16 prompts x 8 completions, compared where each has generated the "
        "same number of tokens.",
        base=_merged(LEAN, {"steps": 60, "sampling": {"prompts_per_step": 16}}),
        variants={name: {"preset": name} for name in PRESETS},
        measures=(
            Measure(title="at equal tokens", metric="eval/accuracy", how="at_tokens", percent=True),
            ACCURACY,
            ENTROPY,
            LENGTH,
        ),
        seeds=3,
    ),
}
"""In the order in which they are run: cheap and telling ones first."""
