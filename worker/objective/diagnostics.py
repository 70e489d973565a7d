"""Compute the diagnostics of one pass of the loss under their canonical metric names, without gradients."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective import kl as kl_estimators
from worker.objective.batch import PolicyBatch
from worker.objective.metric_sums import Covariance, EffectiveShare, Highest, Lowest, Mean, Metric, MetricSums
from worker.objective.off_policy_masks import RouterGate
from worker.objective.sampler_correction import Correction
from worker.objective.surrogates import Surrogate
from worker.objective.token_choice import improbable_tokens


class LossTerms(NamedTuple):
    """Each token's share of the loss terms, with coefficients and signs. The sum over tokens is the loss."""

    policy: Float[Tensor, "B T"]
    kl: Float[Tensor, "B T"] | None
    entropy: Float[Tensor, "B T"] | None
    nll: Float[Tensor, "B T"] | None

    def in_use(self) -> dict[str, Float[Tensor, "B T"]]:
        """Return the terms that the objective uses, by name."""
        return {name: term for name, term in self._asdict().items() if term is not None}


def loss_terms(terms: LossTerms, *, share: float) -> MetricSums:
    """Return loss/*, where `share` is the fraction of the optimizer batch that these terms belong to.

    The shares of an optimizer batch add up to 1, even if several updates divide its tokens, so its terms are
    added and several batches are averaged. Sums use double precision, so that the tokens' contributions add
    up to the logged value.
    """
    count = torch.as_tensor(share, dtype=torch.float64, device=terms.policy.device)
    sums = {name: term.detach().sum(dtype=torch.float64) for name, term in terms.in_use().items()}
    sums_by_name = {"total": torch.stack(list(sums.values())).sum()} | sums
    return MetricSums({f"loss/{name}": Mean(value, count) for name, value in sums_by_name.items()})


def coefficient(
    name: str, value: float | Float[Tensor, "B 1"], batch: PolicyBatch, *, share: float
) -> MetricSums:
    """Return a coefficient that the step used, averaged over completions. `share` is that of `loss_terms`."""
    count = torch.as_tensor(share, dtype=torch.float64, device=batch.mask.device)
    mean = torch.as_tensor(value, dtype=torch.float64, device=batch.mask.device).mean()
    return MetricSums({name: Mean(mean * count, count)})


def policy_terms(
    policy_logprobs: Float[Tensor, "B T"], entropy: Float[Tensor, "B T"] | None, mask: Bool[Tensor, "B T"]
) -> MetricSums:
    """Return policy/*: the mean probability of the sampled tokens and the mean entropy in nats, over
    tokens.
    """
    metrics = {"policy/token_prob_mean": _token_mean(policy_logprobs.exp(), mask)}
    if entropy is not None:
        metrics["policy/entropy"] = _token_mean(entropy, mask)
    return MetricSums(metrics)


def covariance_terms(
    policy_logprobs: Float[Tensor, "B T"], token_advantages: Float[Tensor, "B N"], mask: Bool[Tensor, "B T"]
) -> MetricSums:
    """Return policy/covariance, that of log-probability and advantage over tokens.

    If it is positive, the entropy falls. Source: Cui et al., arXiv:2505.22617, theorem 1.
    """
    wide = torch.promote_types(policy_logprobs.dtype, torch.float32)
    x = policy_logprobs.to(wide).masked_fill(~mask, 0)
    y = token_advantages.to(wide).expand_as(mask).masked_fill(~mask, 0)
    return MetricSums({"policy/covariance": Covariance((x * y).sum(), x.sum(), y.sum(), mask.sum())})


def gradients(
    terms: dict[str, Float[Tensor, "B T"]],
    policy_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
) -> dict[str, Float[Tensor, "B T"]]:
    """Return the derivative of each term's sum with respect to the tokens' log-probabilities.

    Terms without a gradient have zeros. So have masked tokens, although a ratio of whole completions depends
    on the zeros that replace their log-probabilities.
    """
    by_term = {}
    for name, term in terms.items():
        gradient = None
        if term.requires_grad:
            (gradient,) = torch.autograd.grad(
                term, policy_logprobs, torch.ones_like(term), retain_graph=True, allow_unused=True
            )
        by_term[name] = torch.zeros_like(policy_logprobs) if gradient is None else gradient * mask
    return by_term


def kl_share(by_policy: Float[Tensor, "B T"], by_kl: Float[Tensor, "B T"]) -> MetricSums:
    """Return optim/kl_share: the KL term's fraction of |d loss / d log p|, summed over tokens."""
    size = by_kl.abs().sum()
    return MetricSums({"optim/kl_share": Mean(size, size + by_policy.abs().sum())})


def ratio_terms(surrogate: Surrogate, mask: Bool[Tensor, "B T"]) -> MetricSums:
    """Return ratio/*, clip/* and gate/mean over the tokens in `mask`, which this update trains.

    If the tokens of a completion share one ratio, the metrics are over the completions with such tokens.
    """
    metrics: dict[str, Metric] = {}
    if surrogate.ratio is not None:
        ratio, unit_mask = surrogate.ratio, _units(surrogate.ratio, mask)
        metrics["ratio/mean"] = _token_mean(ratio, unit_mask)
        metrics["ratio/max"] = Highest(ratio.masked_fill(~unit_mask, -torch.inf).amax())
        metrics["ratio/min"] = Lowest(ratio.masked_fill(~unit_mask, torch.inf).amin())
    flags = {
        "clip/low_frac": surrogate.low,
        "clip/high_frac": surrogate.high,
        "clip/dual_frac": surrogate.dual,
        "gate/mean": surrogate.gate,
    }
    for name, flag in flags.items():
        if flag is not None:
            metrics[name] = _token_mean(flag, _units(flag, mask))
    return MetricSums(metrics)


def off_policy_terms(
    keep_mask: Bool[Tensor, "B N"] | None, gate: RouterGate | None, mask: Bool[Tensor, "B T"]
) -> MetricSums:
    """Return opsm/masked_frac over completions or tokens and router/* over tokens, for the knobs in use."""
    metrics: dict[str, Metric] = {}
    if keep_mask is not None:
        metrics["opsm/masked_frac"] = _token_mean(~keep_mask, _units(keep_mask, mask))
    if gate is not None:
        metrics["router/shift_mean"] = _token_mean(gate.gamma, mask)
        metrics["router/shift_min"] = Lowest(gate.gamma.masked_fill(~mask, torch.inf).amin())
        metrics["router/floor_frac"] = _token_mean(gate.floored, mask)
    return MetricSums(metrics)


def lopti_terms(
    policy: Float[Tensor, "B T"], old_logprobs: Float[Tensor, "B T"], batch: PolicyBatch, *, eta: float
) -> MetricSums:
    """Return lopti/low_frac and lopti/high_shift.

    The first is the fraction of rare tokens. The second is the mean |log p - log p_old| of the other tokens
    in their update, a shift that the update of the rare tokens caused.
    """
    rare = batch.mask & improbable_tokens(old_logprobs, eta=eta)
    frequent = batch.mask & ~rare if batch.trained is None else batch.mask & batch.trained & ~rare
    return MetricSums(
        {
            "lopti/low_frac": _token_mean(rare, batch.mask),
            "lopti/high_shift": _token_mean((policy - old_logprobs).abs(), frequent),
        }
    )


def kl_terms(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, limit: float) -> MetricSums:
    """Return kl/k1, kl/k2 and kl/k3 to the reference (or to the old policy) in nats per token."""
    return MetricSums(
        {
            "kl/k1": _token_mean(kl_estimators.k1(x), mask),
            "kl/k2": _token_mean(kl_estimators.k2(x), mask),
            "kl/k3": _token_mean(kl_estimators.k3(x, limit=limit), mask),
        }
    )


def domain_terms(x: Float[Tensor, "B T"], batch: PolicyBatch, *, limit: float) -> MetricSums:
    """Return kl/<domain>, the k3 estimate within each domain in nats per token, if there are several
    domains.
    """
    if batch.domain_index is None or len(batch.domains) < 2:
        return MetricSums()
    k3 = kl_estimators.k3(x, limit=limit)
    inside = {
        name: batch.mask & (batch.domain_index == number).unsqueeze(1)
        for number, name in enumerate(batch.domains)
    }
    return MetricSums({f"kl/{name}": _token_mean(k3, tokens) for name, tokens in inside.items()})


def mismatch_terms(
    log_rho: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    correction: Correction | None,
    mask: Bool[Tensor, "B T"],
) -> MetricSums:
    """Return mismatch/*, the difference between the sampler's and the trainer's probabilities, per token.

    k1 and k3 estimate KL(sampler, trainer) in nats, chi2 is mean(rho^2) - 1, and ess is the effective share
    of the weights in use, or of rho without a correction.
    """
    rho = log_rho.exp()
    difference = (old_logprobs.exp() - (old_logprobs - log_rho).exp()).abs()
    weights = rho if correction is None else correction.weights.expand_as(rho)
    zeroed_weights = weights.where(mask, weights.new_zeros(()))
    metrics: dict[str, Metric] = {
        "mismatch/prob_diff_mean": _token_mean(difference, mask),
        "mismatch/prob_diff_max": Highest(difference.masked_fill(~mask, -torch.inf).amax()),
        "mismatch/k1": _token_mean(-log_rho, mask),
        "mismatch/k3": _token_mean(torch.expm1(log_rho) - log_rho, mask),
        "mismatch/rho_mean": _token_mean(rho, mask),
        "mismatch/rho_max": Highest(rho.masked_fill(~mask, -torch.inf).amax()),
        "mismatch/chi2": _token_mean(rho.square() - 1, mask),
        "mismatch/ess": EffectiveShare(zeroed_weights.sum(), zeroed_weights.square().sum(), mask.sum()),
    }
    if correction is not None:
        metrics["mismatch/masked_frac"] = _token_mean(correction.limited.expand_as(mask), mask)
    return MetricSums(metrics)


def per_token(
    surrogate: Surrogate,
    correction: Correction | None,
    x: Float[Tensor, "B T"] | None,
    mask: Bool[Tensor, "B T"],
    *,
    largest_k3: float,
) -> dict[str, Float[Tensor, "B T"]]:
    """Return the values to store for each token.

    They are, if they exist: ratio, clipped (-1 below, 1 above, 2 by the cap for negative advantages), kl (k3)
    and correction.
    """
    flags_by_code = {-1: surrogate.low, 1: surrogate.high, 2: surrogate.dual}
    flags = [flag.expand_as(mask) * code for code, flag in flags_by_code.items() if flag is not None]
    values = {
        "ratio": surrogate.ratio,
        "clipped": _last_set(flags) if flags else None,
        "kl": None if x is None else kl_estimators.k3(x, limit=largest_k3),
        "correction": None if correction is None else correction.weights,
    }
    present_values = {
        name: value.detach().float().expand_as(mask) for name, value in values.items() if value is not None
    }
    return {name: value.masked_fill(~mask, 0) for name, value in present_values.items()}


def contributions(
    terms: LossTerms, gradients: dict[str, Float[Tensor, "B T"]]
) -> dict[str, Float[Tensor, "B T"]]:
    """Return each token's share of the loss, and of every term if there are several, with its gradient.

    `gradients` are those of the terms. `gradient` is their sum, the derivative of the loss with respect to
    the token's log-probability, and `policy_gradient` is the absolute gradient of the policy term.
    """
    terms_by_name = terms.in_use()
    values_by_name = {"loss": torch.stack(list(terms_by_name.values())).sum(dim=0)}
    values_by_name |= {f"loss_{name}": term for name, term in terms_by_name.items() if len(terms_by_name) > 1}
    if gradients:
        values_by_name["gradient"] = torch.stack(list(gradients.values())).sum(dim=0)
        values_by_name["policy_gradient"] = gradients["policy"].abs()
    return {name: value.detach() for name, value in values_by_name.items()}


def _last_set(flags: list[Tensor]) -> Tensor:
    """Return the last nonzero value of each token."""
    last = flags[0]
    for flag in flags[1:]:
        last = torch.where(flag != 0, flag, last)
    return last


def _units(values: Tensor, mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B N"]:
    """Return the mask of the units that the values belong to.

    These are tokens for values of shape (B, T), and completions with any token for values of shape (B, 1).
    """
    return mask if values.shape[1] == mask.shape[1] else mask.any(dim=1, keepdim=True)


def _token_mean(values: Tensor, mask: Bool[Tensor, "B N"]) -> Mean:
    masked_values = values.to(torch.promote_types(values.dtype, torch.float32)).masked_fill(~mask, 0)
    return Mean(masked_values.sum(), mask.sum())
