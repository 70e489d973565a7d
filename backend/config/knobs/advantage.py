"""Config of the advantage: baselines, scales and the critic."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from backend.config.base import Frozen, combination_error

__all__ = [
    "Advantage",
    "BatchMean",
    "BatchStd",
    "BestOfGroup",
    "Critic",
    "Ddof",
    "GreedyBaseline",
    "GroupMean",
    "GroupStd",
    "LeaveOneOut",
    "LengthAdaptive",
    "MeanReward",
    "MovingAverage",
    "NoBaseline",
    "NoScale",
    "OptimalBaseline",
    "OptimalTokenBaseline",
    "RewardAdvantage",
    "Sas",
    "Scale",
    "SeqWhiten",
    "TokenWhiten",
    "Value",
]

Ddof = Literal[0, 1]


class NoScale(Frozen):
    """Advantages stay in units of reward, which avoids a difficulty bias (Dr. GRPO, arXiv:2503.20783)."""

    type: Literal["none"] = "none"


class GroupStd(Frozen):
    """Divide by the standard deviation of the prompt's group (GRPO, arXiv:2402.03300)."""

    type: Literal["group_std"] = "group_std"
    ddof: Ddof = 1
    """Delta degrees of freedom. 1 is the sample standard deviation (divisor G-1; torch,
    TRL, verl), 0 that of the population (divisor G).
    """
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Value added to the standard deviation, in units of reward. TRL uses 1e-4, verl 1e-6, Oat 1e-8."""


class BatchStd(Frozen):
    """Divide by the standard deviation over the whole step (Lite PPO,
    arXiv:2508.08221; ScaleRL, arXiv:2510.13786).
    """

    type: Literal["batch_std"] = "batch_std"
    of: Literal["rewards", "centred_rewards"] = "rewards"
    """Values whose deviation is taken: the rewards (Lite PPO, TRL), or the rewards minus their baseline
    (ScaleRL), whose deviation does not include the differences between prompts.
    """
    ddof: Ddof = 1
    """Delta degrees of freedom. 1 is the sample standard deviation, 0 that of the population."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Value added to the standard deviation, in units of reward."""


class MeanReward(Frozen):
    """Divide by the mean reward of the prompt's group, so that prompts with rarer right answers count more
    (maximum likelihood reinforcement learning, MaxRL, arXiv:2602.02710). This is meant for rewards of 0 and
    1. If the mean is not positive, the advantages are 0.
    """

    type: Literal["mean_reward"] = "mean_reward"
    eps: float = Field(default=1e-6, ge=0, le=1)
    """Value added to the mean, in units of reward. MaxRL's code uses 1e-6."""


class SeqWhiten(Frozen):
    """Whiten to mean 0 and deviation 1 over the completions of each
    minibatch (Magistral, arXiv:2506.10910).
    """

    type: Literal["seq_whiten"] = "seq_whiten"
    ddof: Ddof = 1
    """Delta degrees of freedom. 1 is the sample standard deviation, 0 that of the population."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Value added to the standard deviation, in units of reward."""


class TokenWhiten(Frozen):
    """Whiten to mean 0 and deviation 1 over all tokens of the step (PPO; REINFORCE++, arXiv:2501.03262)."""

    type: Literal["token_whiten"] = "token_whiten"
    ddof: Ddof = 1
    """Delta degrees of freedom. 1 is the sample standard deviation (TRL,
    verl), 0 that of the population (NeMo-RL).
    """
    eps: float = Field(default=1e-8, ge=0, le=1)
    """Value added to the standard deviation, in units of reward."""


class Sas(Frozen):
    """Standardise by the group and by all visits of the prompt, and use the smaller of two blends (smooth
    advantage standardisation, DCPO, arXiv:2509.02333). A group of equal rewards has a signal if the rewards
    of earlier visits differed. On the first visit of a prompt, only the deviation of the group is used.
    """

    type: Literal["sas"] = "sas"
    ddof: Ddof = 1
    """Delta degrees of freedom. 1 is the sample standard deviation of
    each group, 0 that of the population.
    """


Scale = Annotated[
    GroupStd | NoScale | BatchStd | MeanReward | SeqWhiten | TokenWhiten | Sas, Field(discriminator="type")
]


class _Baseline(Frozen):
    compares_group: ClassVar[bool] = False
    """Whether the baseline requires at least two completions per prompt."""
    judges_tokens: ClassVar[bool] = False
    """Whether each token has a separate advantage."""


class _Advantage(_Baseline):
    @field_validator("scale", check_fields=False)
    @classmethod
    def _sas_has_a_baseline_of_its_own(cls, scale: Scale) -> Scale:
        baseline = cls.model_fields["type"].default
        if scale.type == "sas" and baseline != "group_mean":
            reason = (
                f"is sas, which takes off the mean of a prompt's visits, but the baseline is {baseline}: "
            )
            raise combination_error([("type", reason + "expected baseline group_mean")])
        return scale

    group_sum: Literal["mean", "sqrt"] = "mean"
    """Divisor of the sum over a group: mean divides by G, as in all papers, and sqrt by the square root of G,
    which makes the gradient sqrt(G) times larger.
    """


class GroupMean(_Advantage):
    """Reward minus the mean of its group (GRPO, arXiv:2402.03300)."""

    type: Literal["group_mean"] = "group_mean"
    compares_group = True
    scale: Scale = GroupStd()
    """Divisor of the centred reward."""
    multi_reward: Literal["sum", "gdpo"] = "sum"
    """Combination of reward terms. With sum, their weighted sum is the reward. With gdpo, each term is
    divided by its deviation in the group before they are weighted, added up and whitened over the step (GDPO,
    arXiv:2601.05242). A length penalty counts as a term.
    """

    @field_validator("multi_reward")
    @classmethod
    def _gdpo_has_a_scale_of_its_own(cls, multi_reward: str, info: ValidationInfo) -> str:
        scale = getattr(info.data.get("scale"), "type", "group_std")
        if multi_reward == "gdpo" and scale != "group_std":
            reason = f"is gdpo, which divides each reward by its group's deviation, but scale is {scale}: "
            raise ValueError(reason + "expected scale group_std")
        return multi_reward


class LeaveOneOut(_Advantage):
    """Reward minus the mean of the other G-1 completions of its group (RLOO, arXiv:2402.14740)."""

    type: Literal["loo"] = "loo"
    compares_group = True
    scale: Scale = NoScale()
    """Divisor of the centred reward."""


class OptimalBaseline(_Advantage):
    """Reward minus the mean of its group weighted by the length of completions, which minimises the variance
    if the squared gradient grows with the length (OPO, arXiv:2505.23585).
    """

    type: Literal["optimal"] = "optimal"
    compares_group = True
    scale: Scale = NoScale()
    """Divisor of the centred reward."""


class BestOfGroup(_Advantage):
    """The lead of the best completion of a group over the second best, and 0 for all others (the pass@k
    objective for k = G, arXiv:2503.19595). With rewards 0 and 1, an answer counts only if it is the only
    right answer of its group.
    """

    type: Literal["best_of_group"] = "best_of_group"
    compares_group = True
    scale: Scale = NoScale()
    """Divisor of the lead. verl uses group_std."""


class GreedyBaseline(_Advantage):
    """Reward minus the reward of the prompt's greedy completion, which each step samples in addition to its
    groups and does not train on (ReMax, arXiv:2310.10505). One completion per prompt is sufficient.
    """

    type: Literal["greedy"] = "greedy"
    scale: Scale = NoScale()
    """Divisor of the centred reward."""


class BatchMean(_Advantage):
    """Reward minus the mean of all rewards of the step (REINFORCE with a baseline, Williams 1992)."""

    type: Literal["batch_mean"] = "batch_mean"
    scale: Scale = NoScale()
    """Divisor of the centred reward."""


class MovingAverage(_Advantage):
    """Reward minus a moving average of the mean rewards of earlier
    steps, which starts at 0 (Williams 1992).
    """

    type: Literal["ema"] = "ema"
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Weight of the old average at each step, in [0, 1)."""
    scale: Scale = NoScale()
    """Divisor of the centred reward."""


class NoBaseline(_Advantage):
    """The reward without a baseline (plain REINFORCE). With rewards 0 and 1,
    only correct completions change the policy.
    """

    type: Literal["none"] = "none"
    scale: Scale = NoScale()
    """Divisor of the reward."""


class LengthAdaptive(Frozen):
    """lambda = 1 - 1 / (alpha L) for a completion of L tokens, never below 0 (VAPO, arXiv:2504.05118)."""

    type: Literal["length_adaptive"] = "length_adaptive"
    alpha: float = Field(default=0.05, gt=0, le=1e3)
    """Factor in 1 / tokens. Larger values bring lambda closer to 1. VAPO uses 0.05, with lambda 0.8 at 100
    tokens and 0.98 at 1000. Completions shorter than 1 / alpha tokens have lambda 0.
    """


class OptimalTokenBaseline(_Baseline):
    """Reward minus a baseline for each token position: the mean reward of the group's completions that reach
    it, weighted by their accumulated gradient up to there (optimal token baseline, OTB, arXiv:2602.07078).
    Positions that only one completion reaches have a baseline of 0.
    """

    type: Literal["optimal_token"] = "optimal_token"
    compares_group = True
    judges_tokens = True
    scale: NoScale = NoScale()
    """No divisor, because the baseline already minimises the variance."""


class Critic(_Baseline):
    """An advantage for each token by a critic that is trained together with the policy: generalized advantage
    estimation (arXiv:1506.02438; PPO, arXiv:1707.06347). The reward belongs to the last token. One completion
    per prompt is sufficient.
    """

    type: Literal["critic"] = "critic"
    judges_tokens = True
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount factor per token. It is usually 1 for language models and 0.99 in games."""
    lambda_policy: Annotated[float, Field(ge=0, le=1)] | LengthAdaptive = 0.95
    """Weight of later tokens in the advantages. 0 uses only the critic, 1 only the reward. Alternatively,
    {"type": "length_adaptive", "alpha": 0.05}, which grows with the length of the completion."""
    lambda_critic: float = Field(default=1.0, ge=0, le=1)
    """Weight of later tokens in the targets of the critic. 1 uses the observed reward, which is unbiased
    (VAPO). PPO's code uses the same lambda for both.
    """
    n_step: int = Field(default=0, ge=0, le=10_000_000)
    """Number of later tokens that are included before the critic's value is used. 0 means all."""
    scale: Annotated[TokenWhiten | NoScale, Field(discriminator="type")] = TokenWhiten()
    """Scale of the advantages. Groups are not compared, so there is no group_std."""


RewardAdvantage = Annotated[
    GroupMean
    | LeaveOneOut
    | OptimalBaseline
    | BestOfGroup
    | GreedyBaseline
    | BatchMean
    | MovingAverage
    | NoBaseline,
    Field(discriminator="type"),
]
"""Advantages that compare whole completions by their rewards."""

Advantage = Annotated[
    GroupMean
    | LeaveOneOut
    | OptimalBaseline
    | BestOfGroup
    | GreedyBaseline
    | BatchMean
    | MovingAverage
    | NoBaseline
    | OptimalTokenBaseline
    | Critic,
    Field(discriminator="type"),
]


class Value(Frozen):
    """Training of the critic, used only if the advantage is `critic`. The critic is a copy of the policy's
    body with separate weights and a separate optimizer.
    """

    coef: float = Field(default=0.5, ge=0, le=1e3)
    """Weight of the critic's loss, usually 0.1 to 1. It has little effect, because Adam is invariant to a
    constant factor and the critic has a separate optimizer. It only determines when optimizer.max_grad_norm
    and the optimizer's eps take effect. Use lr_factor to change how fast the critic learns.
    """
    clip: float = Field(default=0.2, ge=0, le=1e6)
    """Maximum change of a value in a step, in units of reward, beyond which it gets no
    gradient. 0 means no limit. PPO's code uses 0.2.
    """
    lr_factor: float = Field(default=2.0, gt=0, le=1e3)
    """Learning rate of the critic in units of optimizer.lr. VAPO uses 2."""
    epochs: Annotated[int, Field(ge=1, le=1000)] | Literal["updates.epochs"] = "updates.epochs"
    """Number of passes over the rollouts of a step, or updates.epochs for the same
    number as the policy. TRPO's code uses 80.
    """
    pretrain_steps: int = Field(default=0, ge=0, le=10_000_000)
    """Number of steps at the start of the run in which only the critic learns and
    the policy does not change. VAPO uses 50.
    """
