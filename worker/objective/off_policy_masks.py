"""Off-policy masks and gates for completions that the current policy is unlikely to write."""

from typing import NamedTuple, assert_never

from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from worker.objective import masked
from worker.objective.batch import PolicyBatch, require


class RouterGate(NamedTuple):
    """The router gate gamma of every token."""

    log_gamma: Float[Tensor, "B T"]
    """Logarithm of gamma after the floor, added to the token's log-ratio without a gradient; 0 where
    masked.
    """
    gamma: Float[Tensor, "B T"]
    """Value of gamma before the floor."""
    floored: Bool[Tensor, "B T"]


def off_policy_keep_mask(
    drift: Float[Tensor, "B 1"], advantages: Float[Tensor, "B N"], *, delta: float
) -> Bool[Tensor, "B N"]:
    """Return the mask of the completions, or tokens if they have advantages of their own, that are kept.

        M = 0 where A < 0 and mean_t(log p_source - log p) > delta, else 1

    Source: DeepSeek-V3.2, arXiv:2512.02556, equation 9.
    """
    return ~((advantages < 0) & (drift > delta))


def floored_gate(router_shift: Float[Tensor, "B T"], *, gamma_min: float) -> RouterGate:
    """Return sg[max(gamma, gamma_min)] with gamma = exp(router_shift), router_shift <= 0.

        gamma = exp(-mean over layers of mean over the old top-k experts of |log p_new - log p_old|)

    The gate is detached because a gradient through the router makes training collapse. Source: RSPO,
    arXiv:2510.23027.
    """
    gamma = router_shift.detach().exp()  # detach: the gate is a weight
    return RouterGate(gamma.clamp(min=gamma_min).log(), gamma, gamma < gamma_min)


def policy_keep_mask(
    policy: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B N"],
    batch: PolicyBatch,
    knob: knobs.OffPolicyMask,
) -> Bool[Tensor, "B N"] | None:
    """Return what the off-policy mask keeps in the policy term, or None without such a mask."""
    match knob:
        case knobs.NoOffPolicyMask():
            return None
        case knobs.Opsm(delta=delta, source=source):
            if source == "sampler":
                origin = require(batch.sampler_logprobs, "sampler log-probabilities")
            else:
                origin = policy if batch.old_logprobs is None else batch.old_logprobs
            log_ratios = masked.zero_masked(origin, batch.mask) - policy
            drift = masked.token_mean(log_ratios.detach(), batch.mask)  # detach: the mask is a constant
            return off_policy_keep_mask(drift, advantages, delta=delta)
        case _:
            assert_never(knob)


def router_gate(batch: PolicyBatch, knob: knobs.Router) -> RouterGate | None:
    """Return the gate that scales the token ratios by the router's shift.

    Return None if the objective has no router knob or the policy is dense.
    """
    match knob:
        case knobs.NoRouterShift():
            return None
        case knobs.RouterShift(gamma_min=gamma_min):
            if batch.router_shift is None:
                return None
            return floored_gate(masked.zero_masked(batch.router_shift, batch.mask), gamma_min=gamma_min)
        case _:
            assert_never(knob)
