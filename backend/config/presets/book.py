"""Presets of the scripts in Raschka's book, with their numbers and one prompt per step.

The learning rate, maximum length and number of steps come from the profile of the policy.
"""

from typing import Any

from backend.config import knobs
from backend.config.filters import FiltersConfig, NeighboursRefill, ZeroVarianceFilter
from backend.config.objective import Objective
from backend.config.presets.preset import NO_SCALE, Preset, preset
from backend.config.rewards import BoxedFormatReward, CorrectnessReward, ThinkFormatReward
from backend.config.sections import OptimizerConfig, SamplingConfig, UpdatesConfig

_CLIPPED = Objective(
    ratio=knobs.SequenceProductRatio(logprob_temperature="one"),
    surrogate=knobs.BookSigned(eps_high=10.0),
)

_SCRIPTS: dict[str, Any] = {
    "prompts_per_step": 1,
    "group_size": 8,
    "temperature": 0.8,
    "top_p": 0.9,
    "order": "sequential",
}
"""Sampling of the scripts. Prompts are in order, so that step s has the same prompt in every run."""

_SAMPLING = SamplingConfig(**_SCRIPTS)

_OPTIMIZER = OptimizerConfig(weight_decay=0.01, decayed="all")
"""The defaults of torch's AdamW, which decays all parameters."""

BOOK: dict[str, Preset] = {
    "grpo_book": preset(
        "GRPO, the book's first form",
        "Raschka, Build a Reasoning Model, sections 7.2-7.3",
        """Minus the mean of advantage times whole-sequence log-probability: no ratio, no clip, no KL, and
        log-probabilities at temperature 1 whatever the sampling temperature. Long completions weigh more,
        because their sums are longer. Watch length/mean and policy/entropy. Book: lr 1e-5, at most 512
        tokens.""",
        objective=Objective(
            ratio=knobs.NoRatio(logprob_temperature="one"),
            surrogate=knobs.NoSurrogate(),
            aggregation=knobs.SeqMeanTokenSum(),
        ),
        sampling=_SAMPLING,
        optimizer=_OPTIMIZER,
    ),
    "grpo_book_clip": preset(
        "GRPO, the book's clipped form",
        "Raschka, Build a Reasoning Model, section 7.4",
        """One ratio per completion, the product of its token ratios, clipped from above at 11; two epochs,
        each on fresh rollouts of the step's old policy. The first epoch has ratio 1; in the second the
        product may explode or vanish with length: watch ratio/max and ratio/min. Book: lr 1e-5, at most
        512 tokens.""",
        objective=_CLIPPED,
        sampling=_SAMPLING,
        optimizer=_OPTIMIZER,
        updates=UpdatesConfig(epochs=2, resample_each_epoch=True),
    ),
    "grpo_book_kl": preset(
        "GRPO, the book's form with KL",
        "Raschka, Build a Reasoning Model, section 7.5",
        """The clipped form plus k1 of whole sequences in the loss. On fresh rollouts k1 has no gradient
        on average, only noise that grows with length: in the book the run collapses. Watch loss/kl,
        policy/entropy, length/mean and reward/mean together. Book: lr 1e-5, at most
        512 tokens, KL weight 0.02 in the listing and 0.001 in the script.""",
        objective=_CLIPPED.with_(kl=knobs.KlK1(coef=0.02, aggregation="seq_sum")),
        sampling=_SAMPLING,
        optimizer=_OPTIMIZER,
        updates=UpdatesConfig(epochs=2, resample_each_epoch=True),
    ),
    "grpo_book_format": preset(
        "GRPO, the book's format reward",
        "Raschka, Build a Reasoning Model, section 7.6",
        """The clipped form with one epoch, with one reward for the correct answer and an equal one for a
        <think> before the first </think>. With one epoch the ratio is 1 and the loss is 0, but its
        gradient is not. The format is far easier than the answer: watch reward/think_format/mean saturate
        while reward/correctness/mean falls, and length/truncated_frac. Book: reasoning model, lr 1e-5.""",
        objective=_CLIPPED,
        sampling=_SAMPLING,
        optimizer=_OPTIMIZER,
        rewards=(CorrectnessReward(weight=1.0), ThinkFormatReward(weight=1.0, form="book")),
    ),
    "grpo_book_format_conditional": preset(
        "GRPO, the book's conditional format reward",
        "Raschka, Build a Reasoning Model, exercise 7.2",
        """Like the format reward, but the format counts only in correct completions, so that it cannot be
        earned without the answer. Watch reward/think_format/mean, which can no longer exceed
        reward/correctness/mean.""",
        objective=_CLIPPED,
        sampling=_SAMPLING,
        optimizer=_OPTIMIZER,
        rewards=(
            CorrectnessReward(weight=1.0),
            ThinkFormatReward(weight=1.0, form="book", only_when_correct=True),
        ),
    ),
    "gdpo_book": preset(
        "GDPO, the book's form",
        "Raschka, reasoning-from-scratch, script gdpo",
        """GDPO over correctness and a tenth of the boxed format, with the book's clipped sequence ratio, two
        epochs on fresh rollouts and a k1 penalty on sequence sums. There is one prompt per step, so the
        second normalisation stays within the group: where only the format differs, it scales the tenth up
        to a full reward. Watch reward/boxed_format/mean and advantage/distinct_per_group. The k1 penalty
        as a loss is noise: watch policy/entropy.""",
        objective=_CLIPPED.with_(
            advantage=knobs.GroupMean(multi_reward="gdpo"),
            kl=knobs.KlK1(coef=0.02, aggregation="seq_sum"),
        ),
        sampling=_SAMPLING,
        optimizer=_OPTIMIZER,
        updates=UpdatesConfig(epochs=2, resample_each_epoch=True),
        rewards=(
            CorrectnessReward(weight=1.0, extraction="lenient"),
            BoxedFormatReward(weight=0.1),
        ),
    ),
    "deepseek_v32_book": preset(
        "DeepSeek-V3.2, the book's script",
        "Raschka, reasoning-from-scratch, deepseek_v32_style",
        """The clipped form with a mask for bad completions that became less likely by more than 0.1 nats a
        token since the step began, and with the sequence ratio times k1 as KL. Unlike the paper it keeps
        the division by the group's standard deviation, one ratio per completion, and k1 in place of k3.
        Probabilities are taken over the tokens that top-p kept. Watch opsm/masked_frac (0 in the first
        epoch), ratio/max and loss/kl. Book: lr 1e-5, at most 512 tokens.""",
        objective=_CLIPPED.with_(
            off_policy_mask=knobs.Opsm(delta=0.1, source="old"),
            kl=knobs.KlRatioK1(coef=0.02, aggregation="seq_sum"),
        ),
        sampling=SamplingConfig(**_SCRIPTS, keep_mask=True),
        optimizer=_OPTIMIZER,
        updates=UpdatesConfig(epochs=2, resample_each_epoch=True),
    ),
    "olmo3_book": preset(
        "Olmo 3, the book's form",
        "Raschka, reasoning-from-scratch, script olmo3_style",
        """Rewards minus the group's mean, not divided by its standard deviation, token ratios capped at 11
        (the script calls that truncated importance sampling, but no sampler log-probability is involved),
        one mean over the group's tokens, two epochs on fresh rollouts. A prompt without signal is
        replaced by one of the next seven, while the run's position in the data advances by one, so
        neighbouring steps share prompts. Watch groups/zero_variance_frac, sampling/generated_batches and
        ratio/max.""",
        objective=Objective(
            advantage=NO_SCALE,
            ratio=knobs.TokenRatio(logprob_temperature="one"),
            surrogate=knobs.BookSigned(eps_high=10.0),
            aggregation=knobs.TokenMean(),
        ),
        filters=FiltersConfig(groups=ZeroVarianceFilter(), refill=NeighboursRefill(n=8)),
        sampling=_SAMPLING,
        optimizer=_OPTIMIZER,
        updates=UpdatesConfig(epochs=2, resample_each_epoch=True),
    ),
}
