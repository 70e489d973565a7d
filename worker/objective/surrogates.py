"""Per-token objectives (to be maximised) that limit the policy's change in one step.

Ratios and advantages have shape (B, T), or (B, 1) with one value per completion. If every ratio is 1, each
objective has the gradient of A log p.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective import masked
from worker.objective.ratios import LOG_RATIO_LIMIT


class Surrogate(NamedTuple):
    """An objective with the ratio that it uses and the tokens whose gradient it removes or scales."""

    objective: Float[Tensor, "B N"]
    """The value to maximise; N is T, or 1 for one value per completion."""
    ratio: Float[Tensor, "B N"] | None
    """The ratio that is used, or None."""
    low: Bool[Tensor, "B M"] | None = None
    """Mask of the tokens whose gradient the lower bound removed."""
    high: Bool[Tensor, "B M"] | None = None
    """Mask of the tokens whose gradient the upper bound removed, or whose weight it capped."""
    dual: Bool[Tensor, "B M"] | None = None
    """Mask of the tokens whose gradient the cap for negative advantages removed."""
    gate: Float[Tensor, "B N"] | None = None
    """Factor of a smooth gate on the gradient."""


class Band(NamedTuple):
    """The smallest and the largest weight."""

    low: float
    high: float


class Bounds(NamedTuple):
    """The bounds at which a ratio is clipped: one pair for all tokens, or one per token."""

    low: float | Float[Tensor, "B T"]
    high: float | Float[Tensor, "B T"]


class GammaShape(NamedTuple):
    """The shape of a gamma density: w^k exp(-rate w)."""

    k: float
    rate: float


def log_likelihood(policy_logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B N"]) -> Surrogate:
    """Return the surrogate A log p, which has the score-function gradient. Source: REINFORCE, Williams
    1992.
    """
    return Surrogate(advantages * policy_logprobs, None)


def unclipped_surrogate(ratio: Float[Tensor, "B N"], advantages: Float[Tensor, "B M"]) -> Surrogate:
    """Return the unbounded surrogate r A. Source: TRPO, arXiv:1502.05477."""
    return Surrogate(ratio * advantages, ratio)


def ppo_clip(
    ratio: Float[Tensor, "B N"],
    advantages: Float[Tensor, "B M"],
    *,
    eps_low: float,
    eps_high: float,
    dual_clip: float = 0.0,
) -> Surrogate:
    """Return the pessimistic minimum of the ratio and its clipped copy.

        min(r A, clip(r, 1 - eps_low, 1 + eps_high) A);  for A < 0 not below c A when dual_clip c > 0

    Clipped tokens have no gradient. Source: PPO, arXiv:1707.06347, equation 7; eps_high > eps_low: DAPO,
    arXiv:2503.14476; dual clip: arXiv:1912.09729.
    """
    return bounded_surrogate(ratio, advantages, Bounds(1 - eps_low, 1 + eps_high), dual_clip=dual_clip)


def dynamic_bounds(
    old_logprobs: Float[Tensor, "B T"], *, eps_low: float, eps_high: float, r_max: float
) -> Bounds:
    """Return bounds that widen as the old probability q = exp(old) shrinks.

        low = 0.5 + 0.5 sqrt(max(1 - 4 eps_low / q, 0))
        high = min(0.5 + 0.5 sqrt(1 + 4 eps_high / q), r_max)

    Source: DCPO, arXiv:2509.02333, section 3.1.
    """
    inverse = torch.exp(-old_logprobs)
    low = 0.5 + 0.5 * (1 - 4 * eps_low * inverse).clamp(min=0).sqrt()
    high = (0.5 + 0.5 * (1 + 4 * eps_high * inverse).sqrt()).clamp(max=r_max)
    return Bounds(low, high)


def bounded_surrogate(
    ratio: Float[Tensor, "B N"],
    advantages: Float[Tensor, "B M"],
    bounds: Bounds,
    *,
    dual_clip: float = 0.0,
) -> Surrogate:
    """Return PPO's pessimistic minimum with the given bounds.

        A clamp(r, max = high) for A > 0;  A clamp(r, min = low, max = c) for A < 0

    This is min(r A, clip(r, low, high) A), and for A < 0 not below c A if dual_clip c > 0.
    """
    positive = advantages > 0
    floor = _select(positive, -torch.inf, bounds.low, ratio)
    ceiling = _select(positive, bounds.high, dual_clip or torch.inf, ratio)
    value = ratio.detach()  # detach: flags carry no gradient
    is_above = value > ceiling
    return Surrogate(
        objective=advantages * torch.clamp(ratio, floor, ceiling),
        ratio=ratio,
        low=(value < floor) & (advantages != 0),
        high=is_above & positive,
        dual=(is_above & (advantages < 0)) if dual_clip else None,
    )


def book_signed_surrogate(
    ratio: Float[Tensor, "B N"], advantages: Float[Tensor, "B M"], *, eps_high: float
) -> Surrogate:
    """Return the book's surrogate: min for A >= 0 but max for A < 0, which keeps only the upper bound.

        min(r A, clip(r) A) for A >= 0, max(r A, clip(r) A) for A < 0  =  A min(r, 1 + eps_high)

    It exists to reproduce the book's results. Source: seed 001, listing 7.8.
    """
    high = (ratio.detach() > 1 + eps_high) & (advantages != 0)  # detach: flags carry no gradient
    return Surrogate(advantages * ratio.clamp(max=1 + eps_high), ratio, low=torch.zeros_like(high), high=high)


def weight_cap(
    policy_logprobs: Float[Tensor, "B T"],
    ratio: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B M"],
    *,
    cap: float,
) -> Surrogate:
    """Return A log p weighted by the capped ratio as a constant, so that no token loses its gradient.

        sg[min(r, cap)] A log p

    The value is not an estimate of improvement, so compare it only between steps.
    Source: CISPO, arXiv:2506.13585, equation 4; ScaleRL, arXiv:2510.13786.
    """
    value = ratio.detach()  # detach: the weight is a constant, only log p carries gradient
    return Surrogate(value.clamp(max=cap) * advantages * policy_logprobs, ratio, high=value > cap)


def ppo_token_mask(
    ratio: Float[Tensor, "B T"], advantages: Float[Tensor, "B M"], *, eps_low: float, eps_high: float
) -> Bool[Tensor, "B T"]:
    """Return a mask that is False if PPO's clip would remove the gradient.

        M = 0 where A > 0 and r > 1 + eps_high, or A < 0 and r < 1 - eps_low

    Source: CISPO, arXiv:2506.13585, equation 6.
    """
    value = ratio.detach()  # detach: a mask carries no gradient
    return ~(((advantages > 0) & (value > 1 + eps_high)) | ((advantages < 0) & (value < 1 - eps_low)))


def divergence_mask(
    policy_logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B M"],
    ratio: Float[Tensor, "B T"],
    bounds: Bounds,
    *,
    measure: str,
    cap: float,
) -> Surrogate:
    """Return A log p weighted by the capped ratio as a constant, on the tokens inside a trust region.

        M sg[min(r, cap)] A log p
        M = 0 where A > 0, p > q and D > high, or A < 0, p < q and D > low; else 1

    p = exp(policy), q = exp(old); D = |p - q| ("tv") or binary_kl(q, p) ("kl").
    Source: DPPO, arXiv:2602.04879, and verl's dppo_tv and dppo_kl, which agree with each other.
    """
    p, q = policy_logprobs.detach().exp(), old_logprobs.exp()  # detach: a mask carries no gradient
    distance = (p - q).abs() if measure == "tv" else binary_kl(old_logprobs, policy_logprobs.detach())
    high = (advantages > 0) & (p > q) & (distance > bounds.high)
    low = (advantages < 0) & (p < q) & (distance > bounds.low)
    weight = ratio.detach().clamp(max=cap)  # detach: the weight is a constant, only log p carries gradient
    objective = (weight * advantages * policy_logprobs).masked_fill(low | high, 0)
    return Surrogate(objective, ratio, low=low, high=high)


def binary_kl(
    old_logprobs: Float[Tensor, "B T"], policy_logprobs: Float[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return the KL from the old to the new policy of the binary event that a token is sampled.

        q log(q / p) + (1 - q) log((1 - q + 1e-8) / (1 - p + 1e-8))

    The unit is nats. 1e-8 keeps the value finite if a token is certain, as in verl. Source: DPPO,
    arXiv:2602.04879.
    """
    q = old_logprobs.exp()
    complement_old, complement = (
        (1 - q).clamp(min=0),
        (1 - policy_logprobs.exp()).clamp(min=0),
    )  # rounding may pass 1
    return q * (old_logprobs - policy_logprobs) + complement_old * torch.log(
        (complement_old + 1e-8) / (complement + 1e-8)
    )


def sapo(
    ratio: Float[Tensor, "B N"], advantages: Float[Tensor, "B M"], *, tau_pos: float, tau_neg: float
) -> Surrogate:
    """Return the surrogate with a smooth gate instead of a clip.

        f(r) A with f(r) = 4 p / tau and p = sigmoid(tau (r - 1)); gradient weight 4 p (1 - p)

    tau is tau_pos where A > 0, else tau_neg. Source: SAPO, arXiv:2511.20347, equation 5.
    """
    tau = _select(advantages > 0, tau_pos, tau_neg, ratio)
    p = torch.sigmoid(tau * (ratio - 1))
    weight = (4 * p * (1 - p)).detach()  # detach: it is only reported
    return Surrogate(p * 4 / tau * advantages, ratio, gate=weight)


def silence_tokens(surrogate: Surrogate, selected_tokens: Bool[Tensor, "B T"]) -> Surrogate:
    """Return the surrogate without the chosen tokens, which are counted as clipped at the upper bound.

    Source: Clip-Cov, arXiv:2505.22617.
    """
    high = selected_tokens if surrogate.high is None else surrogate.high | selected_tokens
    return surrogate._replace(objective=surrogate.objective.masked_fill(selected_tokens, 0), high=high)


def penalised_surrogate(
    log_ratio: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B M"],
    selected_tokens: Bool[Tensor, "B T"],
    *,
    coef: float,
) -> Surrogate:
    """Return r A with a penalty on the change of the chosen tokens.

        r A - coef |log r| where chosen, else r A

    Source: KL-Cov, arXiv:2505.22617; the distance is that of verl's kl_cov.
    """
    ratio = log_ratio.exp()
    return Surrogate(ratio * advantages - coef * log_ratio.abs() * selected_tokens, ratio)


def future_log_ratio(log_ratio: Float[Tensor, "B T"], *, half_life: float) -> Float[Tensor, "B T"]:
    """Return the discounted sum of the log-ratios of a token and all later ones.

        F[i, t] = sum_{k >= t} 2^(-(k - t) / half_life) log r[i, k]

    The weight of a log-ratio halves every `half_life` tokens. Source: FIPO, arXiv:2603.19835, as implemented
    in ms-swift.
    """
    decay = 2 ** (-1 / half_life)
    total = torch.zeros_like(log_ratio[:, :1])
    columns = []
    for column in reversed(log_ratio.split(1, dim=1)):
        total = column + decay * total
        columns.append(total)
    return torch.cat(columns[::-1], dim=1)


def influence_weighted_surrogate(
    clipped_surrogate: Surrogate,
    log_ratio: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B M"],
    *,
    half_life: float,
    weights: Band,
    safety: float,
    dual_clip: float,
) -> Surrogate:
    """Return a clipped objective with a constant weight on each token from the ratios of later tokens.

        f = clip(exp(F), low, high);  clip(f, 0.8, 1) where A < 0 and r > safety

    F is future_log_ratio, without the tokens whose ratio is above the dual clip. Source: FIPO,
    arXiv:2603.19835, as implemented in ms-swift.
    """
    log_ratio_value = log_ratio.detach()  # detach: the weight is a constant
    ratio = log_ratio_value.exp()
    counted_log_ratio = log_ratio_value.masked_fill(ratio > dual_clip, 0) if dual_clip else log_ratio_value
    future = future_log_ratio(counted_log_ratio, half_life=half_life)
    weight = future.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(weights.low, weights.high)
    weight = weight.clamp(0.8, 1).where((advantages < 0) & (ratio > safety), weight)
    return clipped_surrogate._replace(objective=clipped_surrogate.objective * weight, gate=weight)


def vespo(
    policy_logprobs: Float[Tensor, "B T"],
    ratio: Float[Tensor, "B 1"],
    advantages: Float[Tensor, "B 1"],
    *,
    positive: GammaShape,
    negative: GammaShape,
) -> Surrogate:
    """Return A log p with a constant weight per completion that has the shape of a gamma density.

        sg[phi(w)] A log p with phi(w) = w^k exp(lambda (1 - w)), w >= 1e-8

    k and lambda are those of `positive` where A >= 0, else of `negative`; phi(1) = 1.
    Source: VESPO, arXiv:2602.10693, and TRL's vespo loss, which also bounds w.
    """
    log_w = ratio.detach().log().clamp(min=math.log(1e-8))  # detach: only log p carries gradient
    is_positive = advantages >= 0
    k = _select(is_positive, positive.k, negative.k, log_w)
    rate = _select(is_positive, positive.rate, negative.rate, log_w)
    phi = torch.exp(k * log_w + rate * (1 - log_w.exp()))
    return Surrogate(phi * advantages * policy_logprobs, ratio, gate=phi)


def geo_token(
    log_ratio: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B M"],
    mask: Bool[Tensor, "B T"],
    *,
    eps_low: float,
    eps_high: float,
) -> Surrogate:
    """Return the surrogate with the geometric mean of one-sidedly clipped token ratios.

        s[i] A with log s[i] = mean_t d'[i, t],  d' = min(d, eps_high) for A > 0, max(d, -eps_low) for A < 0

    Clipped tokens have no gradient. Source: GMPO, arXiv:2507.20673, equation 4.
    """
    positive = advantages > 0
    floor = _select(positive, -torch.inf, -eps_low, log_ratio)
    ceiling = _select(positive, eps_high, torch.inf, log_ratio)
    value = log_ratio.detach()  # detach: flags carry no gradient
    ratio = masked.token_mean(torch.clamp(log_ratio, floor, ceiling), mask).exp()  # (B, 1)
    signal = advantages != 0
    return Surrogate(ratio * advantages, ratio, low=(value < floor) & signal, high=(value > ceiling) & signal)


def _select(
    condition: Bool[Tensor, "B N"], yes: float | Tensor, no: float | Tensor, template: Tensor
) -> Float[Tensor, "B M"]:
    """Return `yes` where the condition holds, else `no`, in the precision of `template`."""
    first, second = (v if isinstance(v, Tensor) else template.new_full((), v) for v in (yes, no))
    return torch.where(condition, first, second)
