"""Presets of methods that estimate the advantage of each token with a critic."""

from backend.config import knobs
from backend.config.objective import Objective
from backend.config.presets.preset import Preset, preset
from backend.config.sections import PolicyConfig, TrustRegion, UpdatesConfig

CRITICS: dict[str, Preset] = {
    "ppo": preset(
        "PPO",
        "arXiv:1707.06347",
        """An advantage for each token from a critic, several passes over each step's completions, and a clip
        that stops a token's gradient once its ratio has moved far enough. As in InstructGPT: no discount,
        the reward on the last token, and the KL to the reference subtracted from every token's reward.
        Watch critic/explained_variance (above 0 the critic is useful), clip/high_frac and kl/k1. The
        critic is as large as the policy, so a step takes about twice as long as GRPO's, times the epochs.
        Paper: 3 to 10 epochs, critic weight 0.5 to 1.""",
        objective=Objective(
            advantage=knobs.Critic(lambda_policy=0.95, lambda_critic=0.95),
            value=knobs.Value(coef=0.5, clip=0.2),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            kl=knobs.KlK1(coef=0.05, place="reward"),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(epochs=4),
    ),
    "ppo_kl": preset(
        "PPO with an adaptive KL penalty",
        "arXiv:1707.06347, section 4",
        """PPO's other form: no clip; a penalty on the KL to the old policy of the step. Its weight doubles
        when the step moved more than 1.5 times the target and halves when it moved less than the target
        divided by 1.5. The paper leaves the estimator open; this is r k3, which has k1's mean under the
        current policy and no noise at the start of a step (plain k1 would have the wrong sign, because
        the completions come from the old policy). Watch kl/coef and kl/k3. Paper: target KL 0.003 to
        0.03, initial weight 1.""",
        objective=Objective(
            advantage=knobs.Critic(lambda_policy=0.95, lambda_critic=0.95),
            value=knobs.Value(coef=0.5, clip=0.2),
            surrogate=knobs.NoSurrogate(),
            kl=knobs.KlRatioK3(coef=1.0, to="old", controller=knobs.DualController(target=0.01)),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(epochs=4),
    ),
    "trpo": preset(
        "TRPO",
        "arXiv:1502.05477",
        """No learning rate: each step follows the natural gradient until the mean KL between the policy
        before and after reaches 0.01 nats per token, found by conjugate gradients over products with the
        Fisher matrix and a line search; the critic is fitted separately by squared error. Each step costs
        dozens of passes over its tokens in float32: use it for small policies. Watch trust/kl_after,
        trust/line_search_failed and trust/improvement. Papers and code: delta 0.01, damping 0.1, 10
        iterations, lambda 0.97, 80 passes of the critic (here 4).""",
        objective=Objective(
            advantage=knobs.Critic(lambda_policy=0.97, lambda_critic=1.0),
            value=knobs.Value(clip=0.0, epochs=4),
            surrogate=knobs.NoSurrogate(),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(rule="natural_gradient", trust=TrustRegion(delta=0.01, damping=0.1)),
        policy=PolicyConfig(dtype="float32"),
    ),
    "vapo": preset(
        "VAPO",
        "arXiv:2504.05118",
        """PPO for long reasoning: the critic is first trained alone, then learns from full returns (lambda
        1) while the policy's lambda grows with the length of each completion; DAPO's wider clip and token
        mean; and an imitation loss on correct completions. Watch critic/explained_variance,
        critic/lambda_mean and loss/nll. The first 50 steps do not update the policy. Alpha 0.05 is meant
        for thousands of tokens; for tens of tokens lambda is small and learning slow, and 0.5 works
        better. Paper: 512 prompts x 16 in 16 minibatches (here the critic makes 4 passes), lr 1e-6, the
        critic's 2e-6.""",
        objective=Objective(
            advantage=knobs.Critic(lambda_policy=knobs.LengthAdaptive(alpha=0.05), lambda_critic=1.0),
            value=knobs.Value(lr_factor=2.0, epochs=4, pretrain_steps=50),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.28),
            aggregation=knobs.TokenMean(),
            nll=knobs.PositiveNll(coef=0.1),
        ),
    ),
}
