"""Presets of GRPO and of methods that change only its advantage or its clip."""

from backend.config import knobs
from backend.config.filters import AccuracyFilter, FiltersConfig
from backend.config.objective import Objective
from backend.config.presets.preset import DYNAMIC_SAMPLING, NO_SCALE, SOFT_OVERLONG, Preset, preset
from backend.config.rewards import CorrectnessReward, ThinkFormatReward
from backend.config.sections import SamplingConfig, UpdatesConfig

_AR_LOPTI = Objective(
    surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.24, dual_clip=10.0),
    kl=knobs.KlK3(coef=0.001),
    aggregation=knobs.TokenMean(),
)

GRPO: dict[str, Preset] = {
    "grpo": preset(
        "GRPO",
        "arXiv:2402.03300",
        """Group-normalised advantages, PPO's clip on token ratios, a mean over each completion's tokens and
        a k3 KL penalty to the reference. The token mean per completion favours long wrong answers: watch
        length/mean_incorrect against length/mean_correct, and groups/zero_variance_frac. Paper: 64
        completions per prompt, lr 1e-6, 1024 tokens, clip range not given (0.2 is the convention).""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            kl=knobs.KlK3(coef=0.04),
        ),
    ),
    "r1": preset(
        "DeepSeek-R1",
        "arXiv:2501.12948",
        """GRPO with a weak KL penalty and a clip range so wide (10) that clipping is rare, in 16 minibatches
        per batch. Every 400 steps the policy becomes the new reference. Watch ratio/max and kl/k3, which
        falls to 0 at each replacement. Paper: 16 completions per prompt, 8192 rollouts per batch.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=10.0, eps_high=10.0),
            kl=knobs.KlK3(coef=0.001),
            reference=knobs.EveryN(n=400),
        ),
        updates=UpdatesConfig(minibatches=16),
    ),
    "dr_grpo": preset(
        "Dr. GRPO",
        "arXiv:2503.20783",
        """GRPO without its two biases: no division by the group's standard deviation (hard and easy prompts
        get the same weight), and token sums divided by a constant (so do long and short completions).
        Watch length/mean_incorrect, which should stop growing. Paper: 8 completions per prompt, constant
        3000 tokens; here the constant is the length cap.""",
        objective=Objective(
            advantage=NO_SCALE,
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.SeqMeanTokenSumNorm(),
        ),
    ),
    "maxrl": preset(
        "MaxRL",
        "arXiv:2602.02710",
        """Divides advantages by the group's mean reward instead of its standard deviation: the rarer a
        correct answer, the more it counts. This follows the gradient of the log of the success rate. For
        rewards of 0 and 1. Watch reward/mean by prompt difficulty, eval/pass_at_<k> and advantage/std
        (larger on hard prompts). Clip and aggregation are the defaults of verl, on which its code is
        built.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.MeanReward()),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "two_grpo": preset(
        "2-GRPO",
        "arXiv:2510.00977",
        """GRPO with two completions per prompt: the only signal is a pair of a correct and a wrong answer,
        much as in DPO. Sample more prompts per step in return. Watch groups/zero_variance_frac, which is
        high where prompts are easy or hard, and optim/grad_norm. Paper: as good as 16 completions per
        prompt at an eighth of the rollouts.""",
        objective=Objective(surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2)),
        sampling=SamplingConfig(group_size=2),
    ),
    "lite_ppo": preset(
        "Lite PPO",
        "arXiv:2508.08221",
        """Two changes to GRPO: advantages are divided by the standard deviation of the whole batch, and the
        loss is one mean over all tokens. Nearly uniform groups no longer get huge advantages: watch
        advantage/std. Paper: 8 completions per prompt, temperature 0.99, top-p 0.99, top-k 100.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.BatchStd()),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "gdpo": preset(
        "GDPO",
        "arXiv:2601.05242",
        """GRPO for several rewards: each is divided by its own group's deviation before the weighted sum,
        and the sums are whitened over the step, so that completions whose rewards merely add up to the
        same keep different advantages. Here correctness and the thinking format, both of weight 1. Watch
        reward/correctness/mean and reward/think_format/mean separately (the easier one saturates first)
        and advantage/distinct_per_group, which a plain sum would reduce. Works under any clip.""",
        objective=Objective(
            advantage=knobs.GroupMean(multi_reward="gdpo"),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            kl=knobs.KlK3(coef=0.04),
        ),
        rewards=(CorrectnessReward(weight=1.0), ThinkFormatReward(weight=1.0)),
    ),
    "dcpo": preset(
        "DCPO",
        "arXiv:2509.02333",
        """The clip range widens for improbable tokens, and advantages are standardised over all visits of a
        prompt, so that a group of equal rewards still gives a signal; nothing is filtered. Prompts must
        repeat: few of the generated sums do, all prompts of a file or dataset do. Watch clip/low_frac and
        clip/high_frac (below GRPO's) and advantage/nonzero_frac (about 28 % above GRPO's according to the
        paper). Paper: 16 completions of 512 prompts; its script's defaults 0.2 / 0.28 differ from the
        table's 0.16 / 0.2.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.Sas()),
            surrogate=knobs.DynamicClip(eps_low=0.16, eps_high=0.2, r_max=10.0, dual_clip=10.0),
        ),
    ),
    "reinforce_rej": preset(
        "Reinforce-Rej",
        "arXiv:2504.11343",
        """The reward itself as the advantage, without a baseline or standard deviation. Prompts that are
        always or never solved are dropped and not replaced. With rewards 0 and 1, only correct
        completions change the policy. Watch groups/kept_frac and reward/mean against kl/k3 (reward per
        nat is its claim). Paper: 4 completions of 1024 prompts, minibatches of 256, lr 1e-6.""",
        objective=Objective(
            advantage=knobs.NoBaseline(),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            kl=knobs.KlK3(coef=0.001),
            aggregation=knobs.TokenMean(),
            entropy=knobs.EntropyBonus(coef=0.001),
        ),
        filters=FiltersConfig(groups=AccuracyFilter(low=0.0, high=1.0)),
    ),
    "cispo": preset(
        "CISPO",
        "arXiv:2506.13585",
        """The ratio as a capped, constant weight on the log-probability: no token loses its gradient, so
        rare turning points keep learning. The loss value is not comparable with clipped methods. Watch
        clip/high_frac (weights at the cap) and policy/entropy. The paper does not give the cap; 5 is
        ScaleRL's (arXiv:2510.13786). Paper: 16 updates per batch, DAPO's dynamic sampling and length
        penalty.""",
        objective=Objective(
            surrogate=knobs.WeightCap(cap=5.0),
            aggregation=knobs.TokenMean(),
        ),
        filters=DYNAMIC_SAMPLING,
        length=SOFT_OVERLONG,
        updates=UpdatesConfig(minibatches=16),
    ),
    "dppo": preset(
        "DPPO (total variation)",
        "arXiv:2602.04879",
        """A trust region instead of the clip: a token is trained until its probability has moved by 0.2 in
        the direction of its advantage, however large or small its ratio. Rare tokens, whose ratios are
        noise, keep their gradient; likely ones are stopped sooner. Probabilities are compared with the
        sampler's, as in the paper, so the trust region also covers the sampler-trainer mismatch. Watch
        clip/high_frac and clip/low_frac (tokens that have left the region), mismatch/k3 and
        policy/entropy. 0.2 is prime-rl's; the authors' recipe for verl uses 0.15 and divides token sums
        by a constant.""",
        objective=Objective(
            advantage=NO_SCALE,
            ratio=knobs.TokenRatio(old="sampler"),
            surrogate=knobs.DivergenceMask(measure="tv", low=0.2, high=0.2, cap=20.0),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "dppo_kl": preset(
        "DPPO (KL)",
        "arXiv:2602.04879",
        """DPPO with the binary KL as the distance, which grows faster than the total variation if a token
        was nearly certain. Watch the same metrics as for DPPO. 0.05 comes from the authors' recipe for
        verl.""",
        objective=Objective(
            advantage=NO_SCALE,
            ratio=knobs.TokenRatio(old="sampler"),
            surrogate=knobs.DivergenceMask(measure="kl", low=0.05, high=0.05, cap=20.0),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "clip_cov": preset(
        "Clip-Cov",
        "arXiv:2505.22617",
        """Entropy falls because of a few tokens: likely ones with a high advantage, and unlikely ones with a
        low one. Clip-Cov removes the gradient of a small random share of them and hardly clips otherwise.
        Watch policy/entropy (it should stay up) and clip/high_frac (the share that lost its gradient).
        Covariances are computed at the start of the step; the authors' code and verl compute them for
        each micro-batch. Shares and bounds are those of the authors' script; lr there 5e-7.""",
        objective=Objective(
            surrogate=knobs.ClipCov(eps_low=1.0, eps_high=1.0, share=2e-4, low=1.0, high=5.0),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(minibatches=8),
    ),
    "kl_cov": preset(
        "KL-Cov",
        "arXiv:2505.22617",
        """Like Clip-Cov, but the tokens with the highest covariance keep their gradient and get a KL penalty
        to their old probability. Use several updates per step: at the first one the penalty is 0, because
        nothing has changed yet. Watch policy/entropy, which the share controls, and ratio/max: nothing is
        clipped. The share is taken from verl's recipe.""",
        objective=Objective(
            surrogate=knobs.KlCov(share=2e-3, coef=1.0),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(minibatches=8),
    ),
    "fipo": preset(
        "FIPO",
        "arXiv:2603.19835",
        """A token gets up to a fifth more weight if the policy has made the tokens after it more likely:
        credit for what it leads to, without a critic. Watch gate/mean (1 on fresh rollouts),
        clip/high_frac and length/mean. Use several updates per step: at the first one nothing has changed
        yet. All numbers are ms-swift's defaults.""",
        objective=Objective(
            surrogate=knobs.Fipo(half_life=32.0, low=1.0, high=1.2, safety=4.0),
            aggregation=knobs.TokenMean(),
        ),
        updates=UpdatesConfig(minibatches=4),
    ),
    "sapo": preset(
        "SAPO",
        "arXiv:2511.20347",
        """A smooth gate instead of the clip: the gradient fades as the ratio moves away from 1, a little
        faster where the advantage is negative. Watch gate/mean (1 on fresh rollouts) and policy/entropy;
        there is no clip fraction.""",
        objective=Objective(surrogate=knobs.Sapo(tau_pos=1.0, tau_neg=1.05)),
    ),
    "lopti": preset(
        "Lopti",
        "arXiv:2505.12929",
        """Two updates per batch: first the tokens with a probability below one half, then the others, so
        that the large gradients of rare tokens do not dominate the rest. Watch lopti/low_frac and
        lopti/high_shift (how far the first update moved the tokens of the second) beside reward/mean. The
        learning-rate schedule counts steps, not updates. Paper: 8 completions per prompt, lr 1e-6,
        temperature 0.7.""",
        objective=_AR_LOPTI.with_(token_weight=knobs.Lopti(eta=0.5)),
    ),
    "ar": preset(
        "Advantage reweighting",
        "arXiv:2505.12929",
        """The advantage of a rare token is scaled down with its probability, to 0.7 of its value at the
        lowest. Watch policy/entropy and reward/mean. Paper: 0.3 on puzzles together with Lopti or 0.2
        alone, 8 completions per prompt, lr 1e-6, temperature 0.7.""",
        objective=_AR_LOPTI.with_(token_weight=knobs.AdvantageReweighting(alpha=0.3)),
    ),
}
