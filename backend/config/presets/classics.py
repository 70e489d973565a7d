"""Presets of policy-gradient methods that compare rewards without a critic, from REINFORCE to GPG."""

from backend.config import knobs
from backend.config.filters import FiltersConfig, ZeroVarianceFilter
from backend.config.objective import Objective
from backend.config.presets.preset import NO_SCALE, Preset, preset

CLASSICS: dict[str, Preset] = {
    "reinforce": preset(
        "REINFORCE",
        "Williams 1992",
        """The plain policy gradient: each completion's log-probability times its reward minus the mean
        reward of the step. No ratio, no clip, no length normalisation. Watch optim/grad_norm, which the
        baseline should reduce, and advantage/std. For language models: lr 1e-6, one update per batch.""",
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
        """REINFORCE whose baseline is the mean of the other completions of the same prompt, with the KL to
        the reference subtracted from the reward. Watch reward/mean together with kl/k1: the reward used
        for training includes the KL. Paper: 2 or 4 completions per prompt, lr 1e-6, KL weight 0.03
        (TL;DR) or 0.10 (HH).""",
        objective=Objective(
            advantage=knobs.LeaveOneOut(),
            ratio=knobs.NoRatio(),
            surrogate=knobs.NoSurrogate(),
            kl=knobs.KlK1(coef=0.03, place="reward"),
            aggregation=knobs.SeqMeanTokenSum(),
        ),
    ),
    "opo": preset(
        "OPO",
        "arXiv:2505.23585",
        """The policy gradient, on-policy, with the minimum-variance baseline: the mean of the group's
        rewards weighted by length. No ratio, clip, standard deviation or KL. Watch optim/grad_norm, which
        the baseline should reduce, and policy/entropy. One update per batch.""",
        objective=Objective(
            advantage=knobs.OptimalBaseline(),
            ratio=knobs.NoRatio(),
            surrogate=knobs.NoSurrogate(),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "otb": preset(
        "OTB",
        "arXiv:2602.07078",
        """The policy gradient with the optimal token baseline: at each token the group's rewards are
        weighted by how far each completion's gradient has wandered, so that long, uncertain completions no
        longer carry the noise of the whole. Watch optim/grad_norm, which the baseline should reduce,
        length/mean and policy/entropy. Costs one more pass over the step's tokens. One update per batch.""",
        objective=Objective(
            advantage=knobs.OptimalTokenBaseline(),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "remax": preset(
        "ReMax",
        "arXiv:2310.10505",
        """The policy gradient against the reward of the prompt's greedy completion, so no critic and no
        comparison within a group: one completion per prompt is enough. Each step samples one greedy
        completion per prompt more. Watch reward/mean against eval/accuracy and optim/grad_norm. One update
        per batch.""",
        objective=Objective(
            advantage=knobs.GreedyBaseline(),
            ratio=knobs.NoRatio(),
            surrogate=knobs.NoSurrogate(),
            aggregation=knobs.SeqMeanTokenSum(),
        ),
    ),
    "reinforce_plus_plus": preset(
        "REINFORCE++",
        "arXiv:2501.03262",
        """PPO's clip with rewards whitened over all tokens of the step instead of over groups. One
        completion per prompt is enough, and the scale does not depend on the group. Watch advantage/std
        and policy/entropy. The paper also subtracts a KL from each token's reward; it is off here, as in
        verl's defaults.""",
        objective=Objective(
            advantage=knobs.NoBaseline(scale=knobs.TokenWhiten()),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "reinforce_plus_plus_baseline": preset(
        "REINFORCE++-baseline",
        "arXiv:2501.03262",
        """REINFORCE++ with the mean of the prompt's group subtracted first, so that completions are compared
        within their prompt, and then whitened over all tokens of the step. Watch advantage/mean (0) and
        groups/zero_variance_frac.""",
        objective=Objective(
            advantage=knobs.GroupMean(scale=knobs.TokenWhiten()),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "pass_at_k": preset(
        "Pass@k",
        "arXiv:2503.19595",
        """Rewards only the best completion of a group, by its lead over the second best: what counts is that
        one completion of a prompt is correct, not how many are. Watch advantage/nonzero_frac, which falls
        as prompts become easy, and eval/pass_at_<k> against eval/accuracy. verl divides the lead by the
        group's standard deviation (scale group_std).""",
        objective=Objective(
            advantage=knobs.BestOfGroup(),
            surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2),
            aggregation=knobs.TokenMean(),
        ),
    ),
    "gpg": preset(
        "GPG",
        "arXiv:2504.02546",
        """The plain policy gradient with the group's mean as the baseline: no ratio, clip, standard
        deviation or reference. Groups of equal rewards are dropped, and the mean over all sampled tokens is
        multiplied by groups sampled / groups that train (alpha = B / (B - M) in the paper). verl takes B over
        the number of rewards that are not 0 instead. Watch groups/kept_frac and optim/grad_norm. One update
        per batch.""",
        objective=Objective(
            advantage=NO_SCALE,
            ratio=knobs.NoRatio(),
            surrogate=knobs.NoSurrogate(),
            aggregation=knobs.TokenMean(over="sampled"),
        ),
        filters=FiltersConfig(groups=ZeroVarianceFilter(), upweight=True),
    ),
}
