"""Published methods as values: what each changes against the defaults, whose it is, and what to watch.

A preset sets the objective and, where the method asks for it, updates per batch, group filters, length
handling, reward terms and prompt order. Batch sizes, learning rates and lengths come from the policy's
profile; the papers' own sizes stand in the note.
"""

from typing import Any

from backend.config import knobs
from backend.config.base import Frozen
from backend.config.objective import Objective
from backend.config.rewards import CorrectnessReward
from backend.config.run import (
    AccuracyFilter,
    DynamicRefill,
    FiltersConfig,
    LengthConfig,
    SamplingConfig,
    SoftOverlong,
    UpdatesConfig,
    ZeroVarianceFilter,
)


class Preset(Frozen):
    """One published method."""

    title: str
    """Name as people say it."""
    source: str
    """Where it was published."""
    note: str
    """What it does, what to watch, and the sizes its paper used."""
    changes: dict[str, Any]
    """Fields of RunConfig that differ from the defaults."""


def _preset(title: str, source: str, note: str, **sections: Any) -> Preset:
    changes = {name: _written(section) for name, section in sections.items()}
    return Preset(title=title, source=source, note=" ".join(note.split()), changes=changes)


def _written(value: Any) -> Any:
    """The fields that were written down, with the `type` that picks each union member."""
    if isinstance(value, tuple):
        return [_written(part) for part in value]
    if not isinstance(value, Frozen):
        return value
    tag = {name: getattr(value, name) for name in ("type", "name") if name in type(value).model_fields}
    return tag | {name: _written(getattr(value, name)) for name in sorted(value.model_fields_set, key=str)}


_NO_SCALE = knobs.GroupMean(scale=knobs.NoScale())
_DYNAMIC_SAMPLING = FiltersConfig(
    groups=AccuracyFilter(low=0.0, high=1.0), refill=DynamicRefill(max_batches=10)
)
_SOFT_OVERLONG = LengthConfig(penalty=SoftOverlong())

PRESETS: dict[str, Preset] = {
    "reinforce": _preset(
        "REINFORCE",
        "Williams 1992",
        """The plain policy gradient: each completion's log-probability times its reward above the
        step's mean. No ratio, no clip, no length normalisation. Watch optim/grad_norm, which the
        baseline should calm, and advantage/std. For language models: lr 1e-6, one update per batch.""",
        objective=Objective(
            advantage=knobs.BatchMean(),
            ratio=knobs.NoRatio(),
            surrogate=knobs.NoSurrogate(),
            aggregation=knobs.SeqMeanTokenSum(),
        ),
    ),
    "rloo": _preset(
        "RLOO",
        "arXiv:2402.14740",
        """REINFORCE whose baseline is the mean of the other completions of the same prompt, with
        the KL to the reference taken off the reward. Watch reward/mean together with kl/k1: the
        trained reward contains the KL. Paper: 2 or 4 completions per prompt, lr 1e-6, KL weight
        0.03 (TL;DR) or 0.10 (HH).""",
        objective=Objective(
            advantage=knobs.LeaveOneOut(),
            ratio=knobs.NoRatio(),
            surrogate=knobs.NoSurrogate(),
            kl=knobs.KlK1(coef=0.03, place="reward"),
            aggregation=knobs.SeqMeanTokenSum(),
        ),
    ),
    "grpo": _preset(
        "GRPO",
        "arXiv:2402.03300",
        """Group-normalised advantages, PPO's clip on token ratios, a mean over each completion's
        tokens and a k3 pull to the reference. The token mean per completion favours long wrong
        answers: watch length/mean_incorrect against length/mean_correct, and
        groups/zero_variance_frac. Paper: 64 completions per prompt, lr 1e-6, 1024 tokens; it prints
        no clip range, 0.2 is the convention.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            kl=knobs.KlK3(coef=0.04),
        ),
    ),
    "grpo_book": _preset(
        "GRPO, the book's first form",
        "Raschka, Build a Reasoning Model, sections 7.2-7.3",
        """Minus the mean of advantage times whole-sequence log-probability: no ratio, no clip, no
        KL, and log-probabilities at temperature 1 whatever the sampling temperature. Long
        completions weigh more, for their sums are longer. Watch length/mean and policy/entropy.
        Book: one prompt and 8 completions per step in a fixed order, lr 1e-5, temperature 0.8,
        top-p 0.9.""",
        objective=Objective(
            ratio=knobs.NoRatio(logprob_temperature="one"),
            surrogate=knobs.NoSurrogate(),
            aggregation=knobs.SeqMeanTokenSum(),
        ),
        sampling=SamplingConfig(order="sequential"),
    ),
    "grpo_book_clip": _preset(
        "GRPO, the book's clipped form",
        "Raschka, Build a Reasoning Model, section 7.4",
        """One ratio per completion, the product of its token ratios, clipped from above at 11; two
        epochs, each on fresh rollouts of the policy that opened the step. The first epoch has ratio
        1; in the second the product may explode or vanish with length: watch ratio/max and
        ratio/min. Book: one prompt and 8 completions per step, lr 1e-5, temperature 0.8, top-p 0.9.""",
        objective=Objective(
            ratio=knobs.SequenceProductRatio(logprob_temperature="one"),
            surrogate=knobs.BookSigned(eps_low=10.0, eps_high=10.0),
        ),
        sampling=SamplingConfig(order="sequential"),
        updates=UpdatesConfig(epochs=2, resample_each_epoch=True),
    ),
    "r1": _preset(
        "DeepSeek-R1",
        "arXiv:2501.12948",
        """GRPO with a clip so wide (10) that it hardly acts and a weak KL, over 16 minibatches per
        batch. Watch ratio/max and kl/k3. Paper: 16 completions per prompt, 8192 rollouts per batch,
        and the reference is replaced every 400 steps; here it stays the policy that the run began
        with.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=10.0, eps_high=10.0),
            kl=knobs.KlK3(coef=0.001),
        ),
        updates=UpdatesConfig(minibatches=16),
    ),
    "dapo": _preset(
        "DAPO",
        "arXiv:2503.14476",
        """A wider upper clip so that rare tokens can grow, one mean over all tokens, dynamic
        sampling of prompts that are neither solved nor hopeless, rewards of -1 and 1 and a soft
        penalty before the length cap; no KL. Watch policy/entropy (it should stay up),
        sampling/generated_batches and length/truncated_frac. Paper: 16 completions of 512 prompts,
        lr 1e-6, cap 20480 tokens with a ramp of 4096.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.28),
            aggregation=knobs.TokenMean(),
        ),
        filters=_DYNAMIC_SAMPLING,
        length=_SOFT_OVERLONG,
        rewards=(CorrectnessReward(weight=1.0, map="-1/1"),),
    ),
    "dr_grpo": _preset(
        "Dr. GRPO",
        "arXiv:2503.20783",
        """GRPO without its two biases: no division by the group's standard deviation (hard and easy
        prompts weigh the same) and token sums over a constant (long and short completions do).
        Watch length/mean_incorrect, which should stop growing. Paper: 8 completions per prompt,
        constant 3000 tokens; here the constant is the length cap.""",
        objective=Objective(
            advantage=_NO_SCALE,
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.SeqMeanTokenSumNorm(),
        ),
    ),
    "gspo": _preset(
        "GSPO",
        "arXiv:2507.18071",
        """One ratio per completion, the geometric mean of its token ratios, clipped as a whole
        within a few ten-thousandths of 1. A clip fraction about a hundred times GRPO's is normal
        here. Watch ratio/max and the stability of the loss. Paper: four minibatches per batch.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricRatio(),
            surrogate=knobs.PpoClip(eps_low=3e-4, eps_high=4e-4),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "gspo_token": _preset(
        "GSPO-token",
        "arXiv:2507.18071",
        """GSPO's value with a gradient of each token's own, so that advantages may differ between
        tokens. With one advantage per completion it trains exactly as GSPO. Watch the same as
        there.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricTokenRatio(),
            surrogate=knobs.PpoClip(eps_low=3e-4, eps_high=4e-4),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "gmpo": _preset(
        "GMPO",
        "arXiv:2507.20673",
        """The geometric mean of token ratios that were clipped in log space first: single outliers
        lose their pull, the sequence keeps its gradient. Watch ratio/max and ratio/min (narrower
        than GRPO's) and policy/entropy (higher). Paper: 8 completions per prompt, lr 1e-6, 3000
        tokens.""",
        objective=Objective(
            ratio=knobs.SequenceGeometricRatio(),
            surrogate=knobs.GeoToken(eps_low=0.4, eps_high=0.4),
        ),
    ),
    "cispo": _preset(
        "CISPO",
        "arXiv:2506.13585",
        """The ratio as a capped, constant weight on the log-probability: no token loses its
        gradient, so rare turning points keep learning. The loss value is not comparable with
        clipped methods. Watch clip/high_frac (weights at the cap) and policy/entropy. The paper
        does not give the cap, 5 is ScaleRL's (arXiv:2510.13786). Paper: 16 updates per batch,
        dynamic sampling and a length penalty as DAPO.""",
        objective=Objective(
            surrogate=knobs.WeightCap(cap=5.0),
            aggregation=knobs.TokenMean(),
        ),
        filters=_DYNAMIC_SAMPLING,
        length=_SOFT_OVERLONG,
        updates=UpdatesConfig(minibatches=16),
    ),
    "sapo": _preset(
        "SAPO",
        "arXiv:2511.20347",
        """A smooth gate in place of the clip: the gradient fades as the ratio leaves 1, a little
        faster where the advantage is negative. Watch gate/mean (1 on fresh rollouts) and
        policy/entropy; there is no clip fraction.""",
        objective=Objective(surrogate=knobs.Sapo(tau_pos=1.0, tau_neg=1.05)),
    ),
    "lite_ppo": _preset(
        "Lite PPO",
        "arXiv:2508.08221",
        """Two tricks are enough: the group's mean with the whole batch's standard deviation, and
        one mean over all tokens. Nearly uniform groups no longer blow up: watch advantage/std.
        Paper: 8 completions per prompt, temperature 0.99, top-p 0.99, top-k 100.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.BatchStd()),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "olmo3": _preset(
        "Olmo 3",
        "arXiv:2512.13961",
        """Dr. GRPO's advantage, a wider upper clip, one mean over all tokens, and a truncated
        weight against the mismatch between sampler and trainer; groups without signal are replaced.
        Watch mismatch/masked_frac, mismatch/rho_max and groups/zero_variance_frac. Paper: 64
        prompts of 8 completions, 32768 tokens, lr 1e-6 (7B) or 2e-6 (32B); it refills
        asynchronously, here before the update.""",
        objective=Objective(
            advantage=_NO_SCALE,
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.272),
            correction=knobs.TokenTis(cap=2.0),
            aggregation=knobs.TokenMean(),
        ),
        filters=FiltersConfig(groups=ZeroVarianceFilter(), refill=DynamicRefill(max_batches=10)),
    ),
}
"""Every preset by the name that configs use."""
