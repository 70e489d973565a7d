"""Compute the loss of a run as its objective config defines it.

Only this module and the few that pyproject.toml names read the config. Every knob is one `match` over the
members of its union; the cases call other modules for the mathematics.
"""

from typing import NamedTuple, assert_never

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from worker.objective import (
    advantages,
    aggregation,
    diagnostics,
    kl,
    masked,
    off_policy_masks,
    ratios,
    regularizers,
    sampler_correction,
)
from worker.objective.aggregation import Denominators
from worker.objective.batch import PolicyBatch, require
from worker.objective.metric_sums import MetricSums
from worker.objective.policy_term import policy_surrogate
from worker.objective.sampler_correction import Correction


class PolicyLoss(NamedTuple):
    """The loss of a micro-batch. The losses of all micro-batches add up to that of the optimizer batch."""

    loss: Float[Tensor, ""]
    """The value to minimise, with its gradient."""
    metrics: MetricSums
    """Metrics to merge over micro-batches, minibatches and epochs. `.values()` returns the step's numbers."""
    per_token: dict[str, Float[Tensor, "B T"]]
    """Values of ratio, clipped (-1, 0, 1, 2) and, if they exist, kl (k3) and correction; detached, 0 where
    masked.
    """
    contributions: dict[str, Float[Tensor, "B T"]]
    """Token shares of the loss and its terms, gradient and policy_gradient; detached, 0 where masked."""


def kl_reward_penalty(batch: PolicyBatch, objective: Objective) -> Float[Tensor, "B T"]:
    """Return the KL penalty that is subtracted from each token's reward, or zeros if the KL is not in the
    reward.

    If a completion has one reward, the sum is subtracted from it. The old and reference log-probabilities are
    required; the advantages in `batch` are not used.
    """
    if not objective.kl_in_reward:
        return torch.zeros(batch.mask.shape, device=batch.mask.device)
    old_logprobs = masked.zero_masked(require(batch.old_logprobs, "old log-probabilities"), batch.mask)
    reference_logprobs = masked.zero_masked(
        require(batch.reference_logprobs, "reference log-probabilities"), batch.mask
    )
    return regularizers.kl_coefficient(batch, objective.kl) * kl.reward_penalty(
        old_logprobs, reference_logprobs, batch.mask
    )


def denominators(
    mask: Bool[Tensor, "B T"],
    group_index: Int[Tensor, "B"],
    objective: Objective,
    *,
    max_new_tokens: int,
    loss_share: float = 1.0,
    token_share: float = 1.0,
    correct: Bool[Tensor, "B"] | None = None,
    is_accepted: Bool[Tensor, "B"] | None = None,
) -> Denominators:
    """Return the loss weights of one optimizer batch.

    Call it once on all B completions that share an optimizer step. `loss_share` is filters.loss_share(...) if
    groups were left out, and scales means over completions or prompts. `token_share` is the same for their
    tokens, and scales a mean over sampled tokens; a mean over trained tokens counts only the remaining
    tokens. `correct` is needed for the NLL of correct completions. Completions that are not `is_accepted`
    count as empty, see accepted_completions().
    """
    lengths = masked.lengths(mask)
    if is_accepted is not None:
        lengths = lengths * is_accepted
    match objective.aggregation:
        case knobs.SeqMeanTokenMean():
            weights = aggregation.seq_mean_token_mean(lengths) * loss_share
        case knobs.TokenMean(over=over):
            weights = aggregation.token_mean(lengths) * (token_share if over == "sampled" else 1.0)
        case knobs.PromptMean():
            weights = aggregation.prompt_mean(lengths, group_index) * loss_share
        case knobs.SeqMeanTokenSum():
            weights = aggregation.seq_mean_token_sum(lengths) * loss_share
        case knobs.SeqMeanTokenSumNorm(l_max=l_max):
            constant = max_new_tokens if l_max == "max_new_tokens" else l_max
            weights = aggregation.seq_mean_token_sum_norm(lengths, l_max=constant) * loss_share
        case _:
            assert_never(objective.aggregation)
    nll_weight = None if correct is None else aggregation.reciprocal((lengths * correct).sum())
    return Denominators(weights, loss_share / len(lengths), len(lengths), nll_weight)


def accepted_completions(batch: PolicyBatch, objective: Objective) -> Bool[Tensor, "B"] | None:
    """Return the mask of completions that the correction accepts, or None if it cannot reject any.

    The tokens of a rejected completion are excluded from all sums and divisors, as if they were masked, but a
    mean over completions or prompts still counts it. The old and the sampler's log-probabilities are
    required. Source: verl's rollout correction, which overwrites the response mask.
    """
    if not isinstance(objective.correction, knobs.SequenceK3):
        return None
    old_logprobs = masked.zero_masked(require(batch.old_logprobs, "old log-probabilities"), batch.mask)
    correction = _correction(_log_rho(old_logprobs, batch, objective), batch.mask, objective.correction)
    return None if correction is None else ~correction.limited.squeeze(1)


def has_gradient(batch: PolicyBatch, objective: Objective) -> Bool[Tensor, "B"]:
    """Return the mask of rows that need a backward pass because the loss depends on their log-probabilities.

    Only the surrogate can leave a row out, and only if all advantages of its tokens are 0.
    """
    other_terms = (objective.kl.type != "none" and not objective.kl_in_reward) or any(
        knob.type != "none" for knob in (objective.entropy, objective.nll)
    )
    if other_terms or isinstance(objective.surrogate, knobs.KlCov):
        return torch.ones(len(batch.mask), dtype=torch.bool, device=batch.mask.device)
    advantages = batch.advantages
    per_token = advantages.unsqueeze(1) if advantages.ndim == 1 else advantages
    return ((per_token != 0) & batch.mask).any(dim=1)


def policy_loss(
    policy_logprobs: Float[Tensor, "B T"],
    batch: PolicyBatch,
    objective: Objective,
    denominators: Denominators,
    *,
    entropy: Float[Tensor, "B T"] | None = None,
) -> PolicyLoss:
    """Return the loss, the metrics and the per-token values of a micro-batch.

        loss = -sum_i w_i sum_t mask * correction * surrogate
               + kl.coef * KL - entropy.coef * H + nll.coef * NLL

    `policy_logprobs` and `entropy` come from the current weights and carry the gradient (entropy needs one
    only if `objective.needs_entropy_gradient`). A batch with every token masked gives loss 0 with a graph.
    """
    mask = batch.mask
    policy = masked.zero_masked(policy_logprobs, mask)
    old_logprobs, trainer_old_logprobs = _old_logprobs(policy, batch, objective), _trainers_old(policy, batch)
    token_advantages = _token_advantages(batch, trainer_old_logprobs, objective.token_weight)
    gate = off_policy_masks.router_gate(batch, objective.router)
    surrogate = policy_surrogate(policy, old_logprobs, token_advantages, batch, objective, gate)
    keep_mask = off_policy_masks.policy_keep_mask(policy, token_advantages, batch, objective.off_policy_mask)
    log_rho = _log_rho(trainer_old_logprobs, batch, objective)
    correction = _correction(log_rho, mask, objective.correction)
    x = _log_ratio_to_anchor(policy, batch, objective)

    weighted_objective = (
        surrogate.objective if correction is None else surrogate.objective * correction.weights
    )
    weighted_objective = weighted_objective if keep_mask is None else weighted_objective * keep_mask
    is_trained = mask if batch.trained is None else mask & batch.trained
    if correction is not None and isinstance(objective.correction, knobs.SequenceK3):
        is_trained = is_trained & ~correction.limited
    loss_mask = is_trained.to(policy.dtype)
    token_weights = loss_mask * denominators.weights.to(policy.dtype).unsqueeze(1)  # (B, T)
    kl_coef = regularizers.kl_coefficient(batch, objective.kl)
    kl_term = regularizers.kl_term(
        x, surrogate, token_weights, loss_mask * denominators.sequence_weight, kl_coef, objective.kl
    )
    entropy_coef = regularizers.entropy_coefficient(batch, objective.entropy)
    entropy_term = regularizers.entropy_term(entropy, mask, token_weights, entropy_coef, objective.entropy)
    nll_term = regularizers.nll_term(policy, batch.correct, loss_mask, denominators.nll_weight, objective.nll)
    terms = diagnostics.LossTerms(-(weighted_objective * token_weights), kl_term, entropy_term, nll_term)
    terms_by_name = terms.in_use()
    loss = sum((term.sum() for term in terms_by_name.values()), start=policy.new_zeros(()))

    share = len(mask) / denominators.completions / batch.updates
    with torch.no_grad():
        metrics = diagnostics.loss_terms(terms, share=share)
        metrics += diagnostics.policy_terms(policy, entropy, mask)
        metrics += diagnostics.covariance_terms(policy, token_advantages, mask)
        metrics += diagnostics.ratio_terms(surrogate, is_trained)
        metrics += diagnostics.off_policy_terms(keep_mask, gate, mask)
        if isinstance(objective.token_weight, knobs.Lopti):
            metrics += diagnostics.lopti_terms(
                policy, trainer_old_logprobs, batch, eta=objective.token_weight.eta
            )
        if x is not None:
            metrics += diagnostics.kl_terms(x, mask, limit=objective.largest_k3)
            metrics += diagnostics.domain_terms(x, batch, limit=objective.largest_k3)
        gradients = diagnostics.gradients(terms_by_name, policy, mask) if policy.requires_grad else {}
        if gradients and kl_term is not None and kl_term.requires_grad:
            metrics += diagnostics.kl_share(gradients["policy"], gradients["kl"])
        if objective.kl.type != "none":
            metrics += diagnostics.coefficient("kl/coef", kl_coef, batch, share=share)
        if objective.entropy.type != "none":
            metrics += diagnostics.coefficient("entropy/coef", entropy_coef, batch, share=share)
        if log_rho is not None:
            metrics += diagnostics.mismatch_terms(log_rho, trainer_old_logprobs, correction, mask)
        per_token = diagnostics.per_token(surrogate, correction, x, mask, largest_k3=objective.largest_k3)
        contributions = diagnostics.contributions(terms, gradients)
    return PolicyLoss(loss, metrics, per_token, contributions)


def _old_logprobs(
    policy: Float[Tensor, "B T"], batch: PolicyBatch, objective: Objective
) -> Float[Tensor, "B T"]:
    source = getattr(objective.ratio, "old", "recompute")
    if source == "sampler":
        return masked.zero_masked(require(batch.sampler_logprobs, "sampler log-probabilities"), batch.mask)
    if source == "current":
        return policy.detach()  # detach: the denominator of the ratio is a constant
    return _trainers_old(policy, batch)


def _token_advantages(
    batch: PolicyBatch, old_logprobs: Float[Tensor, "B T"], token_weight: knobs.TokenWeight
) -> Float[Tensor, "B N"]:
    values = batch.advantages.detach().to(old_logprobs.dtype)  # detach: an advantage is a constant
    per_token = values.unsqueeze(1) if values.ndim == 1 else masked.zero_masked(values, batch.mask)
    match token_weight:
        case knobs.NoTokenWeight() | knobs.Lopti():
            return per_token
        case knobs.TopEntropy():
            return per_token * require(batch.uncertain, "the tokens of highest entropy")
        case knobs.AdvantageReweighting(alpha=alpha):
            return advantages.probability_weighted_advantages(per_token, old_logprobs, alpha=alpha)
        case _:
            assert_never(token_weight)


def _trainers_old(policy: Float[Tensor, "B T"], batch: PolicyBatch) -> Float[Tensor, "B T"]:
    """Return the trainer's log-probabilities at the start of the step, whatever the ratio uses."""
    if batch.old_logprobs is None:
        return policy.detach()  # detach: the first update has the weights of the start of the step
    return masked.zero_masked(batch.old_logprobs.detach(), batch.mask)  # detach: as above


def _log_rho(
    old_logprobs: Float[Tensor, "B T"], batch: PolicyBatch, objective: Objective
) -> Float[Tensor, "B T"] | None:
    """Return log(p_old / p_sampler), or None without sampler log-probabilities."""
    if objective.correction.type == "none" and batch.sampler_logprobs is None:
        return None
    sampler_logprobs = masked.zero_masked(
        require(batch.sampler_logprobs, "sampler log-probabilities"), batch.mask
    )
    return ratios.token_log_ratio(old_logprobs, sampler_logprobs)


def _correction(
    log_rho: Float[Tensor, "B T"] | None, mask: Bool[Tensor, "B T"], correction: knobs.Correction
) -> Correction | None:
    if log_rho is None:
        return None
    match correction:
        case knobs.NoCorrection():
            return None
        case knobs.TokenTis(cap=cap):
            return sampler_correction.truncated_weights(log_rho, cap=cap)
        case knobs.TokenMask(low=low, high=high):
            return sampler_correction.banded_weights(log_rho, low=low, high=high)
        case knobs.SequenceTis(level=level, cap=cap):
            return sampler_correction.truncated_weights(
                sampler_correction.sequence_log_rho(log_rho, mask, level=level), cap=cap
            )
        case knobs.SequenceMask(level=level, low=low, high=high):
            log_rho_of_sequence = sampler_correction.sequence_log_rho(log_rho, mask, level=level)
            return sampler_correction.banded_weights(log_rho_of_sequence, low=low, high=high)
        case knobs.SequenceK3(threshold=threshold):
            return sampler_correction.k3_rejection(log_rho, mask, threshold=threshold)
        case knobs.GeoFilter(low=low, high=high):
            return sampler_correction.geometric_filter(log_rho, mask, low=low, high=high)
        case _:
            assert_never(correction)


def _log_ratio_to_anchor(
    policy: Float[Tensor, "B T"], batch: PolicyBatch, objective: Objective
) -> Float[Tensor, "B T"] | None:
    """Return x of the KL estimators, relative to the reference policy, or the old one if kl.to = old."""
    if not isinstance(objective.kl, knobs.NoKl) and objective.kl.to == "old":
        # detach: the anchor of the KL is a constant
        old_logprobs = (
            policy.detach()
            if batch.old_logprobs is None
            else masked.zero_masked(batch.old_logprobs, batch.mask)
        )
        return kl.log_ratio_to_reference(policy, old_logprobs)
    if batch.reference_logprobs is None and not objective.needs_reference:
        return None
    reference_logprobs = masked.zero_masked(
        require(batch.reference_logprobs, "reference log-probabilities"), batch.mask
    )
    return kl.log_ratio_to_reference(policy, reference_logprobs)
