"""Advantages: how much better than expected each completion was.

Rewards are (P, G): P prompts, G completions of each. `scored` is False for completions that could not be
scored: they get advantage 0 and have no part in any mean or standard deviation. Results are constants.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Rewards = Float[Tensor, "P G"]
Scored = Bool[Tensor, "P G"]


class Spread(NamedTuple):
    """Mean and variation of the scored rewards along a group (P, 1) or the whole batch (1, 1)."""

    n: Tensor
    mean: Tensor
    squares: Tensor
    varies: Tensor

    def std(self, *, ddof: int) -> Tensor:
        """Standard deviation; ddof 1 is the sample one, 0 the population's."""
        return (self.squares / (self.n - ddof).clamp(min=1)).sqrt()


def group_spread(rewards: Rewards, scored: Scored) -> Spread:
    """Mean and variation of each prompt's group."""
    zero = rewards.new_zeros(())
    count = scored.sum(dim=1, keepdim=True)
    mean = rewards.where(scored, zero).sum(dim=1, keepdim=True) / count.clamp(min=1)
    squares = (rewards - mean).where(scored, zero).square().sum(dim=1, keepdim=True)
    # max == min, not std == 0: the mean of equal floats may miss them by a rounding
    highest = rewards.masked_fill(~scored, -torch.inf).amax(dim=1, keepdim=True)
    lowest = rewards.masked_fill(~scored, torch.inf).amin(dim=1, keepdim=True)
    return Spread(count, mean, squares, highest > lowest)


def batch_spread(rewards: Rewards, scored: Scored) -> Spread:
    """Mean and variation of all rewards of the step."""
    return group_spread(rewards.reshape(1, -1), scored.reshape(1, -1))


def group_centred_rewards(rewards: Rewards, scored: Scored) -> Rewards:
    """Reward relative to its group's mean.

        A[p, g] = r[p, g] - mean_g r[p]

    A group of equal rewards, or of one, gets zeros: it carries no signal.
    Source: GRPO, arXiv:2402.03300; without scale: Dr. GRPO, arXiv:2503.20783.
    """
    group = group_spread(rewards, scored)
    return (rewards - group.mean).where(scored & group.varies, rewards.new_zeros(()))


def leave_one_out_rewards(rewards: Rewards, scored: Scored) -> Rewards:
    """Reward relative to the mean of the others in its group.

        A[p, g] = r[p, g] - mean_{j != g} r[p, j] = G / (G - 1) (r[p, g] - mean_g r[p])

    A group of one gets zero. Source: RLOO, arXiv:2402.14740, equation 6.
    """
    count = scored.sum(dim=1, keepdim=True)
    return group_centred_rewards(rewards, scored) * count / (count - 1).clamp(min=1)


def length_weighted_rewards(rewards: Rewards, scored: Scored, lengths: Rewards) -> Rewards:
    """Reward relative to its group's mean by tokens.

        A[p, g] = r[p, g] - sum_j L[p, j] r[p, j] / sum_j L[p, j]

    Completions that are not scored are in neither sum; a group of equal rewards, or without tokens, gets
    zeros. Source: OPO, arXiv:2505.23585.
    """
    zero = rewards.new_zeros(())
    weights = lengths.to(rewards.dtype).where(scored, zero)
    total = weights.sum(dim=1, keepdim=True)
    baseline = (weights * rewards.where(scored, zero)).sum(dim=1, keepdim=True) / total.clamp(min=1)
    is_valid = scored & group_spread(rewards, scored).varies & (total > 0)
    return (rewards - baseline).where(is_valid, zero)


def best_reward_lead(rewards: Rewards, scored: Scored) -> Rewards:
    """Lead of the best reward of a group over the second best; 0 for all others.

        A[p, g] = max(r[p, g] - max_{j != g} r[p, j], 0)

    A group of one, or with two best, gets zeros. Source: arXiv:2503.19595 (pass@k with k = G); verl's
    grpo_passk.
    """
    if rewards.shape[1] < 2:
        return torch.zeros_like(rewards)
    best = rewards.masked_fill(~scored, -torch.inf).topk(2, dim=1)
    several = scored.sum(dim=1, keepdim=True) > 1
    lead = (best.values[:, :1] - best.values[:, 1:]).where(several, rewards.new_zeros(()))
    return torch.zeros_like(rewards).scatter(1, best.indices[:, :1], lead)


def batch_centred_rewards(rewards: Rewards, scored: Scored) -> Rewards:
    """Reward relative to the mean of the whole step. Source: REINFORCE with a baseline, Williams 1992."""
    batch = batch_spread(rewards, scored)
    return (rewards - batch.mean).where(scored & batch.varies, rewards.new_zeros(()))


def optimal_token_rewards(
    rewards: Rewards, scored: Scored, mask: Bool[Tensor, "P G T"], energies: Float[Tensor, "P G T"]
) -> Float[Tensor, "P G T"]:
    """Reward relative to the minimum-variance baseline at each token, 0 where masked or not scored.

        W_it = sum over k <= t of energy_ik,  b_t = sum_i W_it r_i / sum_i W_it,  A_it = r_i - b_t

    over the completions of the group that have token t; b_t is 0 if there is only one. Source: OTB,
    arXiv:2602.07078; verl, core_algos.compute_optimal_token_baseline_advantage.
    """
    is_valid = mask & scored.unsqueeze(2)
    cumulative_energy = energies.where(is_valid, energies.new_zeros(())).cumsum(dim=2)
    weights = cumulative_energy.where(is_valid, energies.new_zeros(()))
    expanded_rewards = rewards.unsqueeze(2).to(weights)
    baseline = (weights * expanded_rewards).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-8)
    baseline = baseline.where(is_valid.sum(dim=1) > 1, baseline.new_zeros(()))
    return (expanded_rewards - baseline.unsqueeze(1)).where(is_valid, baseline.new_zeros(()))


def constant_centred_rewards(rewards: Rewards, scored: Scored, *, baseline: float) -> Rewards:
    """Reward relative to a constant: a moving average of earlier steps, or 0. Source: Williams 1992."""
    return (rewards - baseline).where(scored, rewards.new_zeros(()))


def moving_average(previous: float, rewards: Rewards, scored: Scored, *, decay: float) -> float:
    """Return the next step's baseline: decay * previous + (1 - decay) * mean reward; unchanged without
    scores.
    """
    if not bool(scored.any()):
        return previous
    return decay * previous + (1 - decay) * float(batch_spread(rewards, scored).mean)


def scaled_advantages(advantages: Rewards, spread: Spread, *, ddof: int, eps: float) -> Rewards:
    """Advantages in units of a standard deviation: the group's, or the batch's rewards' or advantages'.

        A / (std(r) + eps)

    The advantage is 0 if all rewards are equal. Source: GRPO, arXiv:2402.03300, section 4.1.2 (group; ddof is
    left open there, implementations use 1); Lite PPO, arXiv:2508.08221 (batch).
    """
    deviation = spread.std(ddof=ddof) + eps
    return (advantages / deviation).where(spread.varies, advantages.new_zeros(()))


def over_mean_reward(advantages: Rewards, spread: Spread, *, eps: float) -> Rewards:
    """Advantages in units of the group's mean reward.

        A / (mean(r) + eps)

    With rewards 0 and 1, of which K are 1: (G - K) / K for a right answer, -1 for a wrong one. 0 where the
    mean is not positive. Source: MaxRL, arXiv:2602.02710.
    """
    positive = spread.mean > 0
    divisor = (spread.mean + eps).where(positive, advantages.new_ones(()))
    return (advantages / divisor).where(positive, advantages.new_zeros(()))


def probability_weighted_advantages(
    advantages: Float[Tensor, "B N"], old_logprobs: Float[Tensor, "B T"], *, alpha: float
) -> Float[Tensor, "B T"]:
    """Advantages that shrink on improbable tokens.

        A[i, t] = A[i] (alpha exp(old[i, t]) + 1 - alpha)

    Source: advantage reweighting, arXiv:2505.12929, equation 7.
    """
    return advantages * (alpha * old_logprobs.exp() + 1 - alpha)
