"""Presets of complete training recipes, which combine loss, data and length handling."""

from backend.config import knobs
from backend.config.filters import ActiveRefill, FiltersConfig, ZeroVarianceFilter
from backend.config.length import LengthConfig, MagistralPenalty, ScaleTruncatedReward
from backend.config.objective import Objective
from backend.config.presets.preset import DYNAMIC_SAMPLING, NO_SCALE, SOFT_OVERLONG, Preset, preset
from backend.config.rewards import BoxedFormatReward, CorrectnessReward, LanguageReward, ThinkFormatReward
from backend.config.sections import SamplingConfig

SYSTEMS: dict[str, Preset] = {
    "dapo": preset(
        "DAPO",
        "arXiv:2503.14476",
        """A wider upper clip so that rare tokens can gain probability, one mean over all tokens, dynamic
        sampling of prompts that are neither always nor never solved, rewards of -1 and 1, and a soft
        penalty before the length cap; no KL penalty. Watch policy/entropy (it should stay up),
        sampling/generated_batches and length/truncated_frac. Paper: 16 completions of 512 prompts, lr
        1e-6, cap 20480 tokens with a ramp of 4096.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.28),
            aggregation=knobs.TokenMean(),
        ),
        filters=DYNAMIC_SAMPLING,
        length=SOFT_OVERLONG,
        rewards=(CorrectnessReward(weight=1.0, map="-1/1"),),
    ),
    "olmo3": preset(
        "Olmo 3",
        "arXiv:2512.13961",
        """Dr. GRPO's advantage, a wider upper clip, one mean over all tokens, and truncated importance
        weights for the mismatch between sampler and trainer. Groups without signal are replaced, and
        surplus informative groups are used in the next step, one step old, which the weights correct.
        Watch sampling/carried_frac, mismatch/masked_frac, mismatch/rho_max and groups/zero_variance_frac.
        Paper: 64 prompts of 8 completions, 32768 tokens, lr 1e-6 (7B) or 2e-6 (32B); it refills its pool
        during training, here it is refilled before each update.""",
        objective=Objective(
            advantage=NO_SCALE,
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.272),
            correction=knobs.TokenTis(cap=2.0),
            aggregation=knobs.TokenMean(),
        ),
        filters=FiltersConfig(groups=ZeroVarianceFilter(), refill=ActiveRefill(max_batches=10)),
    ),
    "k3_rejection": preset(
        "GRPO with k3 rejection",
        "verl's rollout correction (decoupled_k3_rs)",
        """GRPO with one mean over the tokens of the completions on which sampler and trainer disagree by at
        most 0.01 nats per token; the others are dropped, from the divisor too, as in verl. Meant for samplers
        with different kernels, lower precision or older weights. Watch mismatch/masked_frac (rejecting much
        of a step wastes it) and mismatch/k3.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            correction=knobs.SequenceK3(threshold=0.01),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "scalerl": preset(
        "ScaleRL",
        "arXiv:2510.13786",
        """CISPO's capped weight, with advantages divided by their standard deviation over the whole batch, a
        token mean within each prompt, and groups without signal dropped. Watch clip/high_frac (weights at
        the cap), groups/kept_frac and policy/entropy; the loss value is not comparable with clipped
        methods. Paper: asynchronous with up to 8 versions in flight, and prompts solved nine times in ten
        are not sampled again; here steps are synchronous and every prompt stays.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.BatchStd(of="centred_rewards")),
            surrogate=knobs.WeightCap(cap=5.0),
            aggregation=knobs.PromptMean(),
        ),
        filters=FiltersConfig(groups=ZeroVarianceFilter(), upweight=True),
    ),
    "magistral": preset(
        "Magistral",
        "arXiv:2506.10910",
        """Advantages whitened over the completions of each minibatch, a wider upper clip, no KL penalty, and
        groups without signal dropped. The reward is 0 unless the thoughts and a boxed answer are
        well-formed, then 0.1, plus 0.9 for the correct answer and 0.1 for staying in the prompt's
        language (detected by its script), minus up to 0.1 near the length cap. Watch advantage/mean (0)
        and advantage/std (1 in each minibatch), reward/think_format/mean, reward/language/mean and
        reward/raw_mean against reward/mean. Paper: upper clip 0.26 to 0.28 (Medium) and 0.3 (Small),
        lower clip not given; asynchronous, at most two versions old.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.SeqWhiten()),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.28),
            aggregation=knobs.PromptMean(),
        ),
        filters=FiltersConfig(groups=ZeroVarianceFilter(), upweight=True),
        length=LengthConfig(penalty=MagistralPenalty()),
        rewards=(
            CorrectnessReward(weight=0.9),
            ThinkFormatReward(weight=0.1, form="strict", required=True),
            BoxedFormatReward(weight=0.0, required=True),
            LanguageReward(weight=0.1, form="consistent"),
        ),
    ),
    "prorl": preset(
        "ProRL",
        "arXiv:2505.24864",
        """GRPO for long runs: a much wider upper clip, dynamic sampling, and a weak KL penalty. When
        held-out accuracy stagnates, the policy becomes the new reference and the optimizer is reset.
        Watch kl/k3 (0 after a replacement, which the run's events list), policy/entropy and
        eval/accuracy. Paper: temperature 1.2, 16 completions per prompt, lr 2e-6, eight such runs one
        after the other; it gives neither the KL weight nor the patience.""",
        objective=Objective(
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.4),
            kl=knobs.KlK3(coef=0.001),
            reference=knobs.OnStagnation(patience=5, reset_optimizer=True),
            aggregation=knobs.TokenMean(),
        ),
        filters=DYNAMIC_SAMPLING,
    ),
    "prorl_v2": preset(
        "ProRL v2",
        "NVIDIA, ProRL v2 blog and NeMo-RL recipe, after arXiv:2505.24864",
        """For long training: group-centred rewards whitened over all tokens, a wider upper clip, a weak k2
        penalty, no loss on tokens where sampler and trainer disagree (IcePop), no reward for truncated
        completions, dynamic sampling. Watch policy/entropy, kl/k2, mismatch/masked_frac and
        length/truncated_frac. Every 200 steps the policy becomes the reference while the optimizer is
        kept. Paper: every 200 to 500 steps; 1.5 times the prompts are drawn.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.TokenWhiten(ddof=0)),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.27),
            correction=knobs.TokenMask(low=0.5, high=5.0),
            kl=knobs.KlK2(coef=1e-4),
            reference=knobs.EveryN(n=200),
            aggregation=knobs.TokenMean(),
        ),
        filters=DYNAMIC_SAMPLING,
        length=LengthConfig(truncated=ScaleTruncatedReward(factor=0.0)),
    ),
    "deepseek_v32": preset(
        "DeepSeek-V3.2",
        "arXiv:2512.02556",
        """Dr. GRPO's advantage under GRPO's mean, a KL whose gradient stays unbiased off-policy (the ratio
        times k3), and a mask for bad completions that have become much less likely under the policy. The
        KL can have a weight for each domain, e.g. {"math": 0, "code": 0.001}: the paper uses little or
        none for mathematics. With top-p or top-k, the trainer's probabilities are taken over the same
        tokens as the sampler's; for a mixture of experts the sampler's routing is replayed. Watch
        opsm/masked_frac, kl/k3 and mismatch/k3. The paper gives neither the mask's threshold (0.5 is
        TRL's), nor the KL weight, nor the clip range.""",
        objective=Objective(
            advantage=NO_SCALE,
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            off_policy_mask=knobs.Opsm(delta=0.5, source="sampler"),
            kl=knobs.KlRatioK3(coef=0.001),
        ),
        sampling=SamplingConfig(keep_mask=True, routing_replay=True),
    ),
}
