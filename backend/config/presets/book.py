"""What the scripts of Raschka's book compute, digit for digit."""

from backend.config import knobs
from backend.config.objective import Objective
from backend.config.presets.preset import Preset, preset
from backend.config.run import SamplingConfig, UpdatesConfig

BOOK: dict[str, Preset] = {
    "grpo_book": preset(
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
    "grpo_book_clip": preset(
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
}
