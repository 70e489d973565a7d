"""The first round: every claim with five seeds and 128 held-out problems.

A setting is chosen so that the mechanism acts (ratios leave the clip range, sampler and learner differ, ...);
the outcome is whatever comes out.
"""

from backend.config.presets import PRESETS
from benchmarks.evidence.claim import Claim, Expectation, Measure
from benchmarks.evidence.parts import (
    ACCURACY,
    ENTROPY,
    FAST,
    FILE,
    LEAN,
    LENGTH,
    MIXED,
    TIS,
    clip,
    kl,
    merged,
    rewards,
    scale,
    size,
)

FIRST: dict[str, Claim] = {
    "e": Claim(
        title="Summed k1 as a KL loss",
        says="The book's chapter 7: k1 summed over tokens and added to the loss made its run collapse; no "
        "KL, k3 per token and the reweighted form did not. The book's loss, two epochs of fresh rollouts. "
        "The pull grows with the length: 0.6 over our 32 tokens is about the book's 0.02 over its thousand; "
        "those variants were added when 0.1 had shown more entropy and no collapse.",
        base=merged(
            LEAN,
            {
                "preset": "grpo_book_clip",
                "steps": 60,
                "sampling": {"temperature": 0.8, "top_p": 0.9},
            },
        ),
        variants={
            "no KL": kl(type="none"),
            "k1 sum, 0.02": kl(type="k1", coef=0.02, aggregation="seq_sum"),
            "k1 sum, 0.1": kl(type="k1", coef=0.1, aggregation="seq_sum"),
            "k3 mean, 0.1": kl(type="k3", coef=0.1),
            "reweighted k1 sum, 0.1": kl(type="r_k1", coef=0.1, aggregation="seq_sum"),
            "k1 sum, 0.6": kl(type="k1", coef=0.6, aggregation="seq_sum"),
            "k3 mean, 0.6": kl(type="k3", coef=0.6),
            "reweighted k1 sum, 0.6": kl(type="r_k1", coef=0.6, aggregation="seq_sum"),
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
        base=merged(LEAN, {"preset": "dr_grpo", "steps": 60}),
        variants={
            "weight 1.0": rewards(weight=1.0),
            "weight 0.1": rewards(weight=0.1),
            "weight 1.0, if correct": rewards(weight=1.0, only_when_correct=True),
            "weight 1.0, fast": FAST | rewards(weight=1.0),
            "weight 0.1, fast": FAST | rewards(weight=0.1),
            "weight 1.0, if correct, fast": FAST | rewards(weight=1.0, only_when_correct=True),
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
        base=merged(LEAN, {"steps": 100, "sampling": {"max_new_tokens": 128, "temperature": 1.3}}),
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
        base=merged(
            LEAN,
            {
                "steps": 60,
                "updates": {"epochs": 4, "minibatches": 4},
                "objective": {"aggregation": {"type": "token_mean"}},
            },
        ),
        variants={"0.2 / 0.2": clip(0.2), "0.2 / 0.28": clip(0.28), "0.2 / 0.4": clip(0.4)},
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
        base=merged(LEAN, {"steps": 100, "problems": MIXED}),
        variants={"group std": scale("group_std"), "batch std": scale("batch_std"), "none": scale("none")},
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
        base=merged(LEAN, {"steps": 100}),
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
        base=merged(LEAN, {"preset": "olmo3", "steps": 100}),
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
        base=merged(LEAN, {"steps": 100}),
        variants={
            "32 x 2": size(32, 2),
            "16 x 4": size(16, 4),
            "8 x 8": size(8, 8),
            "4 x 16": size(4, 16),
            "2 x 8": size(2, 8),
            "16 x 8": size(16, 8),
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
        base=merged(LEAN, {"steps": 100, "problems": [FILE]}),
        variants={
            "own form": {},
            "in a template": {"problems": [FILE | {"instruction": "Put the answer in a box."}]},
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
        base=merged(LEAN, {"steps": 60, "sampling": {"prompts_per_step": 16}}),
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
