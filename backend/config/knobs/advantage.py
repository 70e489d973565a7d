"""Knobs of the advantage: baselines, scales, and the critic."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from backend.config.base import Frozen, refusal

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
    """Advantages stay in units of reward: no difficulty bias (Dr. GRPO, arXiv:2503.20783)."""

    type: Literal["none"] = "none"


class GroupStd(Frozen):
    """Divide by the standard deviation of the prompt's own group (GRPO, arXiv:2402.03300)."""

    type: Literal["group_std"] = "group_std"
    ddof: Ddof = 1
    """1: sample standard deviation (divide by G-1; torch, TRL, verl); 0: population (hand calculations)."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Added to the standard deviation; units of reward. TRL 1e-4, verl 1e-6, Oat 1e-8."""


class BatchStd(Frozen):
    """Divide by a standard deviation over the whole step (Lite PPO, arXiv:2508.08221; ScaleRL,
    arXiv:2510.13786).
    """

    type: Literal["batch_std"] = "batch_std"
    of: Literal["rewards", "centred_rewards"] = "rewards"
    """rewards: of the rewards as they are (Lite PPO, TRL); centred_rewards: of what is left of them after the
    baseline (ScaleRL), smaller the more the prompts differ."""
    ddof: Ddof = 1
    """1: sample standard deviation; 0: population."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Added to the standard deviation; units of reward."""


class MeanReward(Frozen):
    """Divide by the mean reward of the prompt's own group, so that prompts with rarer right answers count
    more (maximum likelihood reinforcement learning, MaxRL, arXiv:2602.02710). Meant for rewards of 0 and
    1; where the mean is not positive the advantages are 0.
    """

    type: Literal["mean_reward"] = "mean_reward"
    eps: float = Field(default=1e-6, ge=0, le=1)
    """Added to the mean; units of reward. MaxRL's code 1e-6."""


class SeqWhiten(Frozen):
    """Mean 0 and deviation 1 over the completions of each minibatch (Magistral, arXiv:2506.10910)."""

    type: Literal["seq_whiten"] = "seq_whiten"
    ddof: Ddof = 1
    """1: sample standard deviation; 0: population."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Added to the standard deviation; units of reward."""


class TokenWhiten(Frozen):
    """Mean 0 and deviation 1 over all tokens of the step (PPO; REINFORCE++, arXiv:2501.03262)."""

    type: Literal["token_whiten"] = "token_whiten"
    ddof: Ddof = 1
    """1: sample standard deviation (TRL, verl); 0: population (NeMo-RL)."""
    eps: float = Field(default=1e-8, ge=0, le=1)
    """Added to the standard deviation; units of reward."""


class Sas(Frozen):
    """Standardise by the group and by all earlier visits of the prompt, and take the smaller of two blends
    (smooth advantage standardisation, DCPO, arXiv:2509.02333). A group of equal rewards keeps a signal once
    earlier visits differed; on a prompt's first visit it is the group's deviation.
    """

    type: Literal["sas"] = "sas"
    ddof: Ddof = 1
    """1: sample standard deviation of each group; 0: population."""


Scale = Annotated[
    GroupStd | NoScale | BatchStd | MeanReward | SeqWhiten | TokenWhiten | Sas, Field(discriminator="type")
]


class _Baseline(Frozen):
    compares_group: ClassVar[bool] = False
    """Whether it needs at least two completions of a prompt."""
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
            raise refusal([("type", reason + "expected baseline group_mean")])
        return scale

    group_sum: Literal["mean", "sqrt"] = "mean"
    """What the sum over a group is divided by: mean = G (every paper), sqrt = the square root of G, which
    makes the gradient sqrt(G) times larger."""


class GroupMean(_Advantage):
    """Reward minus the mean of its group (GRPO, arXiv:2402.03300)."""

    type: Literal["group_mean"] = "group_mean"
    compares_group = True
    scale: Scale = GroupStd()
    """Divisor of the centred reward."""
    multi_reward: Literal["sum", "gdpo"] = "sum"
    """Several reward terms: sum = their weighted sum is the reward; gdpo = each is divided by its own group's
    deviation, then weighted, added up and whitened over the step (GDPO, arXiv:2601.05242); a length penalty
    is one of the terms."""

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
    """Reward minus the mean of its group in which long completions weigh more, each by its tokens: the
    baseline of least variance where a gradient's square grows with length (OPO, arXiv:2505.23585).
    """

    type: Literal["optimal"] = "optimal"
    compares_group = True
    scale: Scale = NoScale()
    """Divisor of the centred reward."""


class BestOfGroup(_Advantage):
    """The lead of the best completion of a group over the second best; 0 for all others (the pass@k objective
    for k = G, arXiv:2503.19595). With rewards 0 and 1, an answer counts only if it is the only right one
    of its group.
    """

    type: Literal["best_of_group"] = "best_of_group"
    compares_group = True
    scale: Scale = NoScale()
    """Divisor of the lead. verl: group_std."""


class GreedyBaseline(_Advantage):
    """Reward minus that of the prompt's greedy completion, which each step samples besides its groups and
    does not train (ReMax, arXiv:2310.10505). One completion per prompt is enough.
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
    """Reward minus a moving average of the mean rewards of earlier steps, 0 at the start (Williams 1992)."""

    type: Literal["ema"] = "ema"
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Share of the old average that is kept at each step; in [0, 1)."""
    scale: Scale = NoScale()
    """Divisor of the centred reward."""


class NoBaseline(_Advantage):
    """The reward itself: plain REINFORCE; with rewards 0 and 1 only correct completions move the policy."""

    type: Literal["none"] = "none"
    scale: Scale = NoScale()
    """Divisor of the reward."""


class LengthAdaptive(Frozen):
    """lambda = 1 - 1 / (alpha L) for a completion of L tokens, never below 0 (VAPO, arXiv:2504.05118)."""

    type: Literal["length_adaptive"] = "length_adaptive"
    alpha: float = Field(default=0.05, gt=0, le=1e3)
    """Larger values bring lambda nearer to 1; 1 / tokens. VAPO 0.05: lambda 0.8 at 100 tokens, 0.98 at 1000.
    Completions shorter than 1 / alpha tokens get lambda 0."""


class OptimalTokenBaseline(_Baseline):
    """Reward minus a baseline for each token: the mean over the group's completions that have it, each
    weighted by how far its gradient has wandered up to there (optimal token baseline, OTB,
    arXiv:2602.07078). The tokens that one completion alone reaches have a baseline of 0.
    """

    type: Literal["optimal_token"] = "optimal_token"
    compares_group = True
    judges_tokens = True
    scale: NoScale = NoScale()
    """Nothing: the baseline is already that of least variance."""


class Critic(_Baseline):
    """An advantage for each token, by a critic that is trained beside the policy: generalized advantage
    estimation (arXiv:1506.02438; PPO, arXiv:1707.06347). The reward
    stands on the last token; one completion per prompt is enough.
    """

    type: Literal["critic"] = "critic"
    judges_tokens = True
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount per token. 1 for language models, 0.99 in games."""
    lambda_policy: Annotated[float, Field(ge=0, le=1)] | LengthAdaptive = 0.95
    """Weight of later tokens in the policy's advantages: 0 trusts the critic alone, 1 the reward alone. Or
    {"type": "length_adaptive", "alpha": 0.05}, which grows with the length of the completion."""
    lambda_critic: float = Field(default=1.0, ge=0, le=1)
    """Weight of later tokens in the critic's targets; 1 is the observed reward, without its bias (VAPO).
    PPO's code uses one lambda for both."""
    n_step: int = Field(default=0, ge=0, le=10_000_000)
    """Number of later tokens to include before the critic's value is used; 0: to the end."""
    scale: Annotated[TokenWhiten | NoScale, Field(discriminator="type")] = TokenWhiten()
    """Divisor of the advantages. Groups are not compared, so there is no group_std."""


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
"""The ones that compare whole completions by their rewards."""

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
    """Training of the critic; read only if the advantage is `critic`. The critic is a copy of the policy's
    body with its own weights and its own optimizer.
    """

    coef: float = Field(default=0.5, ge=0, le=1e3)
    """Weight of the critic's loss; 0.1 to 1. It has little effect: the critic has its own optimizer, and Adam
    divides a constant factor out; use lr_factor to set the critic's pace. What remains is how soon
    optimizer.max_grad_norm and the optimizer's eps take effect."""
    clip: float = Field(default=0.2, ge=0, le=1e6)
    """Distance that a value may move in one step before it gets no more gradient; units of reward, 0 = no
    limit (PPO's code: 0.2)."""
    lr_factor: float = Field(default=2.0, gt=0, le=1e3)
    """The critic's learning rate in units of optimizer.lr. VAPO 2."""
    epochs: Annotated[int, Field(ge=1, le=1000)] | Literal["updates.epochs"] = "updates.epochs"
    """Passes over a step's rollouts; updates.epochs: as many as the policy makes. TRPO's code 80."""
    pretrain_steps: int = Field(default=0, ge=0, le=10_000_000)
    """Steps at the start of the run in which only the critic learns and the policy stays as it is. VAPO
    50."""
