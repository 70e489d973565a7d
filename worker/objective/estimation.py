"""Estimate the advantages of a step from its rewards, according to the knobs for baseline and scale."""

from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, assert_never

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from worker.objective import advantages, gae, masked, multi_reward, smoothing, whitening
from worker.objective.batch import PolicyBatch, require
from worker.objective.gae import GaeEstimate
from worker.objective.multi_reward import RewardTerms
from worker.objective.smoothing import Visits


class AdvantageEstimate(NamedTuple):
    """The advantages of a step and the state for the next step."""

    advantages: Float[Tensor, "P G"]
    visits: Visits | None = None
    """Stored statistics of each prompt if the scale is `sas`. They are saved in checkpoints."""


def estimate_advantages(
    rewards: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"],
    advantage: knobs.RewardAdvantage,
    *,
    average: float = 0.0,
    terms: RewardTerms | None = None,
    visits: Visits | None = None,
    lengths: Float[Tensor, "P G"] | None = None,
    greedy: Float[Tensor, "P"] | None = None,
) -> AdvantageEstimate:
    """Return the advantages of all groups of a step: apply the baseline, the scale and the group's sum rule.

    `rewards` are those after shaping and group filters, with every group complete. If the scale is a
    whitening, `whiten` applies it later. Rewards that are normalised separately are given as `terms`.
    `visits` holds the statistics of earlier visits to the prompts, if any, `average` is the reward of earlier
    steps that the `ema` baseline subtracts, `lengths` are the token counts of the completions, and `greedy`
    is the reward of each prompt's greedy completion. If it is NaN, the group has advantage 0.
    """
    factor = 1.0 if _is_whitening(advantage.scale) else _group_factor(advantage, rewards.shape[1])
    match advantage:
        case knobs.GroupMean(multi_reward="gdpo", scale=knobs.GroupStd(ddof=ddof, eps=eps)):
            decoupled_advantages = multi_reward.group_decoupled_advantages(
                require(terms, "reward terms"), scored, ddof=ddof, eps=eps
            )
            return AdvantageEstimate(decoupled_advantages * factor)
        case knobs.GroupMean(scale=knobs.Sas(ddof=ddof)):
            smoothed_advantages = smoothing.smooth_standardised_advantages(
                rewards, scored, visits or Visits.without_history(rewards), ddof=ddof
            )
            return AdvantageEstimate(smoothed_advantages.advantages * factor, smoothed_advantages.visits)
        case knobs.GroupMean():
            centred = advantages.group_centred_rewards(rewards, scored)
        case knobs.LeaveOneOut():
            centred = advantages.leave_one_out_rewards(rewards, scored)
        case knobs.OptimalBaseline():
            centred = advantages.length_weighted_rewards(
                rewards, scored, require(lengths, "lengths of completions")
            )
        case knobs.GreedyBaseline():
            baseline = require(greedy, "rewards of greedy completions").unsqueeze(1)
            scored = scored & baseline.isfinite()
            centred = advantages.constant_centred_rewards(
                rewards - baseline.nan_to_num(), scored, baseline=0.0
            )
        case knobs.BestOfGroup():
            centred = advantages.best_reward_lead(rewards, scored)
        case knobs.BatchMean():
            centred = advantages.batch_centred_rewards(rewards, scored)
        case knobs.MovingAverage():
            centred = advantages.constant_centred_rewards(rewards, scored, baseline=average)
        case knobs.NoBaseline():
            centred = advantages.constant_centred_rewards(rewards, scored, baseline=0.0)
        case _:
            assert_never(advantage)
    return AdvantageEstimate(_scaled_advantages(centred, rewards, scored, advantage.scale) * factor)


def estimate_against_tokens(
    rewards: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"],
    mask: Bool[Tensor, "B T"],
    energies: Float[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """Return the advantages of all tokens of a step for the optimal token baseline, from whole groups in
    order.
    """
    shape = (*rewards.shape, mask.shape[1])
    token_advantages = advantages.optimal_token_rewards(
        rewards.to(mask.device), scored.to(mask.device), mask.view(shape), energies.view(shape)
    )
    return token_advantages.view(mask.shape)


def whiten(
    batch: PolicyBatch, advantage: knobs.Advantage, *, scope: Literal["step", "minibatch"]
) -> PolicyBatch:
    """Return the batch with whitened advantages if the scale is a whitening.

    Call it with over="step" on all rows of a step, and with over="minibatch" on the rows of
    each optimizer batch: token_whiten acts in the first call, seq_whiten in the second. A critic's advantages
    are whitened where they are estimated.
    """
    if isinstance(advantage, knobs.Critic | knobs.OptimalTokenBaseline):
        return batch
    scale = advantage.scale
    if isinstance(scale, knobs.TokenWhiten) and scope == "step":
        counts = masked.lengths(batch.mask)
    elif isinstance(scale, knobs.SeqWhiten) and scope == "minibatch":
        counts = torch.ones_like(batch.group_index)
    else:
        return batch
    counts = counts if batch.scored is None else counts * batch.scored
    whitened_advantages = whitening.whitened_advantages(
        batch.advantages.unsqueeze(1), counts.unsqueeze(1), ddof=scale.ddof, eps=scale.eps
    )
    group_size = int((batch.group_index == batch.group_index[0]).sum())
    return replace(batch, advantages=whitened_advantages.squeeze(1) * _group_factor(advantage, group_size))


def _is_whitening(scale: knobs.Scale) -> bool:
    return isinstance(scale, knobs.SeqWhiten | knobs.TokenWhiten)


def _group_factor(advantage: knobs.RewardAdvantage, group_size: int) -> float:
    return group_size**0.5 if advantage.group_sum == "sqrt" else 1.0


def _scaled_advantages(
    centred_rewards: Float[Tensor, "P G"],
    rewards: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"],
    scale: knobs.Scale,
) -> Float[Tensor, "P G"]:
    match scale:
        case knobs.NoScale() | knobs.SeqWhiten() | knobs.TokenWhiten() | knobs.Sas():
            return centred_rewards
        case knobs.MeanReward(eps=eps):
            group = advantages.group_spread(rewards, scored)
            return advantages.over_mean_reward(centred_rewards, group, eps=eps)
        case knobs.GroupStd():
            spread = advantages.group_spread(rewards, scored)
        case knobs.BatchStd(of=of):
            spread = advantages.batch_spread(rewards if of == "rewards" else centred_rewards, scored)
        case _:
            assert_never(scale)
    return advantages.scaled_advantages(centred_rewards, spread, ddof=scale.ddof, eps=scale.eps)


def estimate_token_advantages(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    critic: knobs.Critic,
) -> GaeEstimate:
    """Return the advantages of all tokens of a step and the critic's targets, from token rewards and values.

    Tokens of completions without a reward have to be masked.
    """
    estimate = partial(
        gae.generalized_advantages, rewards, values, mask, gamma=critic.gamma, n_step=critic.n_step
    )
    token_advantages = estimate(lambda_=policy_lambda(mask, critic).to(values))
    critic_advantages = estimate(lambda_=critic.lambda_critic)
    returns = critic_advantages + masked.zero_masked(values, mask)
    match critic.scale:
        case knobs.NoScale():
            return GaeEstimate(token_advantages, returns)
        case knobs.TokenWhiten(ddof=ddof, eps=eps):
            return GaeEstimate(
                whitening.whitened_advantages(token_advantages, mask, ddof=ddof, eps=eps), returns
            )
        case _:
            assert_never(critic.scale)


def policy_lambda(mask: Bool[Tensor, "B T"], critic: knobs.Critic) -> Float[Tensor, "B"]:
    """Return the lambda of each completion's advantages."""
    lengths = masked.lengths(mask)
    match critic.lambda_policy:
        case knobs.LengthAdaptive(alpha=alpha):
            return gae.length_adaptive_lambda(lengths, alpha=alpha)
        case float():
            return torch.full(lengths.shape, critic.lambda_policy, dtype=torch.float64, device=mask.device)
        case _:
            assert_never(critic.lambda_policy)
