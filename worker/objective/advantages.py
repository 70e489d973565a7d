"""Compute advantages, which measure how much better each completion is than expected.

Rewards have shape (P, G): P prompts with G completions each. `scored` is False for completions that could
not be scored. They get advantage 0 and are excluded from every mean and standard deviation. The results
carry no gradient.
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
        """Return the standard deviation: the sample one if ddof is 1, the population one if it is 0."""
        return (self.squares / (self.n - ddof).clamp(min=1)).sqrt()


def group_spread(rewards: Rewards, scored: Scored) -> Spread:
    """Return the mean and variation of each prompt's group."""
    zero = rewards.new_zeros(())
    count = scored.sum(dim=1, keepdim=True)
    mean = rewards.where(scored, zero).sum(dim=1, keepdim=True) / count.clamp(min=1)
    squares = (rewards - mean).where(scored, zero).square().sum(dim=1, keepdim=True)
    # Compare max and min instead of testing std == 0: the mean of equal floats may differ from them by a
    # rounding error.
    max_reward = rewards.masked_fill(~scored, -torch.inf).amax(dim=1, keepdim=True)
    min_reward = rewards.masked_fill(~scored, torch.inf).amin(dim=1, keepdim=True)
    return Spread(count, mean, squares, max_reward > min_reward)


def batch_spread(rewards: Rewards, scored: Scored) -> Spread:
    """Return the mean and variation of all rewards of the step."""
    return group_spread(rewards.reshape(1, -1), scored.reshape(1, -1))


def group_centred_rewards(rewards: Rewards, scored: Scored) -> Rewards:
    """Return each reward minus the mean of its group.

        A[p, g] = r[p, g] - mean_g r[p]

    A group of equal rewards, or with a single completion, gets zeros because it carries no signal.
    Source: GRPO, arXiv:2402.03300; without scale: Dr. GRPO, arXiv:2503.20783.
    """
    group = group_spread(rewards, scored)
    return (rewards - group.mean).where(scored & group.varies, rewards.new_zeros(()))


def leave_one_out_rewards(rewards: Rewards, scored: Scored) -> Rewards:
    """Return each reward minus the mean of the other rewards in its group.

        A[p, g] = r[p, g] - mean_{j != g} r[p, j] = G / (G - 1) (r[p, g] - mean_g r[p])

    A group with a single completion gets zero. Source: RLOO, arXiv:2402.14740, equation 6.
    """
    count = scored.sum(dim=1, keepdim=True)
    return group_centred_rewards(rewards, scored) * count / (count - 1).clamp(min=1)


def length_weighted_rewards(rewards: Rewards, scored: Scored, lengths: Rewards) -> Rewards:
    """Return each reward minus the token-weighted mean of its group.

        A[p, g] = r[p, g] - sum_j L[p, j] r[p, j] / sum_j L[p, j]

    Completions that are not scored are in neither sum. A group with equal rewards or without tokens gets
    zeros. Source: OPO, arXiv:2505.23585.
    """
    zero = rewards.new_zeros(())
    weights = lengths.to(rewards.dtype).where(scored, zero)
    total = weights.sum(dim=1, keepdim=True)
    baseline = (weights * rewards.where(scored, zero)).sum(dim=1, keepdim=True) / total.clamp(min=1)
    is_valid = scored & group_spread(rewards, scored).varies & (total > 0)
    return (rewards - baseline).where(is_valid, zero)


def best_reward_lead(rewards: Rewards, scored: Scored) -> Rewards:
    """Return the lead of the best reward of a group over the second best, and 0 for all other completions.

        A[p, g] = max(r[p, g] - max_{j != g} r[p, j], 0)

    A group with a single completion, or with a tie for the best, gets zeros. Source: arXiv:2503.19595 (pass@k
    with k = G); verl's grpo_passk.
    """
    if rewards.shape[1] < 2:
        return torch.zeros_like(rewards)
    best = rewards.masked_fill(~scored, -torch.inf).topk(2, dim=1)
    several = scored.sum(dim=1, keepdim=True) > 1
    lead = (best.values[:, :1] - best.values[:, 1:]).where(several, rewards.new_zeros(()))
    return torch.zeros_like(rewards).scatter(1, best.indices[:, :1], lead)


def batch_centred_rewards(rewards: Rewards, scored: Scored) -> Rewards:
    """Return each reward minus the mean of the whole step. Source: REINFORCE with a baseline, Williams
    1992.
    """
    batch = batch_spread(rewards, scored)
    return (rewards - batch.mean).where(scored & batch.varies, rewards.new_zeros(()))


def optimal_token_rewards(
    rewards: Rewards, scored: Scored, mask: Bool[Tensor, "P G T"], energies: Float[Tensor, "P G T"]
) -> Float[Tensor, "P G T"]:
    """Return each reward minus the minimum-variance baseline at each token, 0 if masked or not scored.

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
    """Return each reward minus a constant: a moving average of earlier steps, or 0. Source: Williams 1992."""
    return (rewards - baseline).where(scored, rewards.new_zeros(()))


def moving_average(previous: float, rewards: Rewards, scored: Scored, *, decay: float) -> float:
    """Return the next step's baseline: decay * previous + (1 - decay) * mean reward.

    The baseline stays unchanged if no completion was scored.
    """
    if not bool(scored.any()):
        return previous
    return decay * previous + (1 - decay) * float(batch_spread(rewards, scored).mean)


def scaled_advantages(advantages: Rewards, spread: Spread, *, ddof: int, eps: float) -> Rewards:
    """Return the advantages divided by a standard deviation.

        A / (std(r) + eps)

    The deviation is that of a group's rewards, of the batch's rewards or of its advantages. The advantage is
    0 if all rewards are equal. Source: GRPO, arXiv:2402.03300, section 4.1.2 (group; ddof is left open there,
    implementations use 1); Lite PPO, arXiv:2508.08221 (batch).
    """
    deviation = spread.std(ddof=ddof) + eps
    return (advantages / deviation).where(spread.varies, advantages.new_zeros(()))


def over_mean_reward(advantages: Rewards, spread: Spread, *, eps: float) -> Rewards:
    """Return the advantages divided by the mean reward of the group.

        A / (mean(r) + eps)

    With rewards 0 and 1, K of them 1, a right answer gets (G - K) / K and a wrong one -1. The advantage is 0
    if the mean is not positive. Source: MaxRL, arXiv:2602.02710.
    """
    positive = spread.mean > 0
    divisor = (spread.mean + eps).where(positive, advantages.new_ones(()))
    return (advantages / divisor).where(positive, advantages.new_zeros(()))


def probability_weighted_advantages(
    advantages: Float[Tensor, "B N"], old_logprobs: Float[Tensor, "B T"], *, alpha: float
) -> Float[Tensor, "B T"]:
    """Return advantages that are reduced on improbable tokens.

        A[i, t] = A[i] (alpha exp(old[i, t]) + 1 - alpha)

    Source: advantage reweighting, arXiv:2505.12929, equation 7.
    """
    return advantages * (alpha * old_logprobs.exp() + 1 - alpha)
