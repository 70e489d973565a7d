"""Advantages that depend on the rewards of a prompt's earlier visits."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective.advantages import group_spread

MAX_NEGLIGIBLE_VARIANCE = 1e-12
"""Running variance, in squared units of reward, up to which all rewards so far are treated as equal."""


class Visits(NamedTuple):
    """Statistics of the earlier visits of each of P prompts."""

    visit_count: Float[Tensor, "P 1"]
    """Number of groups seen so far."""
    mean: Float[Tensor, "P 1"]
    """Mean reward over these groups."""
    variance: Float[Tensor, "P 1"]
    """Running variance of the rewards, which starts with the sample variance of the first group."""

    @classmethod
    def without_history(cls, template: Float[Tensor, "P G"]) -> "Visits":
        """Return the statistics of prompts that were never seen."""
        zeros = template.new_zeros(len(template), 1)
        return cls(zeros, zeros, zeros)


class SmoothedAdvantages(NamedTuple):
    """Advantages of a step and the statistics after it."""

    advantages: Float[Tensor, "P G"]
    visits: Visits


def smooth_standardised_advantages(
    rewards: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"], past_visits: Visits, *, ddof: int
) -> SmoothedAdvantages:
    """Standardise by the group and by the prompt's history, and blend both by the number of visits.

        A_new = (R - mean) / std,  A_tot = (R - mean') / std'            0 where the deviation is 0
        S_new = (n A_new + A_tot) / (n + 1),  S_tot = (A_new + n A_tot) / (n + 1),  n earlier visits
        A = whichever of S_new and S_tot is smaller in magnitude

    A group of equal rewards keeps a signal if the rewards of other visits differed. A group without scores is
    not a visit. Source: smooth advantage standardisation, DCPO, arXiv:2509.02333.
    """
    group = group_spread(rewards, scored)
    updated_visits = _updated_visits(
        past_visits, group.mean, group.std(ddof=ddof).square(), counts=group.n > 0
    )
    group_advantages = _standardised_rewards(rewards, group.mean, group.std(ddof=ddof), group.varies & scored)
    varies = (updated_visits.variance > MAX_NEGLIGIBLE_VARIANCE) & scored
    history_advantages = _standardised_rewards(
        rewards, updated_visits.mean, updated_visits.variance.sqrt(), varies
    )
    share = 1 / (past_visits.visit_count + 1)
    recent_blend, history_blend = (
        (1 - share) * group_advantages + share * history_advantages,
        share * group_advantages + (1 - share) * history_advantages,
    )
    return SmoothedAdvantages(
        recent_blend.where(recent_blend.abs() <= history_blend.abs(), history_blend), updated_visits
    )


def _updated_visits(
    past_visits: Visits,
    mean: Float[Tensor, "P 1"],
    variance: Float[Tensor, "P 1"],
    *,
    counts: Bool[Tensor, "P 1"],
) -> Visits:
    """Return the running mean and variance with one more group of equal weight."""
    n = past_visits.visit_count
    mean_shift = n / (n + 1) * (mean - past_visits.mean).square()
    return Visits(
        visit_count=torch.where(counts, n + 1, n),
        mean=torch.where(counts, (n * past_visits.mean + mean) / (n + 1), past_visits.mean),
        variance=torch.where(
            counts, (n * past_visits.variance + variance + mean_shift) / (n + 1), past_visits.variance
        ),
    )


def _standardised_rewards(
    rewards: Float[Tensor, "P G"],
    mean: Float[Tensor, "P 1"],
    deviation: Float[Tensor, "P 1"],
    counts: Bool[Tensor, "P G"],
) -> Float[Tensor, "P G"]:
    divisor = deviation.where(deviation > 0, deviation.new_ones(()))
    return ((rewards - mean) / divisor).where(counts, rewards.new_zeros(()))
