"""Policy gradients from before GRPO."""

from backend.config import knobs
from backend.config.objective import Objective
from backend.config.presets.preset import Preset, preset
from backend.config.run import UpdatesConfig

CLASSICS: dict[str, Preset] = {
    "reinforce": preset(
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
    "rloo": preset(
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
    "ppo": preset(
        "PPO",
        "arXiv:1707.06347",
        """An advantage for each token from a critic, several passes over each step's completions, and a
        clip that ends a token's gradient once its ratio has moved far enough. As for language models
        (InstructGPT): no discount, the reward on the last token, the KL to the reference taken off every
        token's reward. Watch critic/explained_variance (above 0 the critic is of use), clip/high_frac and
        kl/k1. The critic is as large as the policy, so a step takes about twice as long as GRPO's, times
        the epochs. Paper: 3 to 10 epochs, critic weight 0.5 to 1.""",
        objective=Objective(
            advantage=knobs.Critic(lambda_policy=0.95, lambda_critic=0.95),
            value=knobs.Value(coef=0.5, clip=0.2),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            kl=knobs.KlK1(coef=0.05, place="reward"),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(epochs=4),
    ),
}
