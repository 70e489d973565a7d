"""Off-policy masks and damping: for completions that the present policy would no longer write."""

from typing import NamedTuple, assert_never

from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from worker.objective import masked
from worker.objective.batch import PolicyBatch, require


class RouterGate(NamedTuple):
    """gamma of every token, and what became of it."""

    log_gamma: Float[Tensor, "B T"]
    """After the floor; added to the token's log-ratio, without a gradient; 0 where masked."""
    gamma: Float[Tensor, "B T"]
    """Before the floor."""
    floored: Bool[Tensor, "B T"]


def off_policy_keep_mask(
    drift: Float[Tensor, "B 1"], advantages: Float[Tensor, "B N"], *, delta: float
) -> Bool[Tensor, "B N"]:
    """Mask of the completions (or tokens, if advantages differ between them) that still count.

        M = 0 where A < 0 and mean_t(log p_source - log p) > delta, else 1

    Source: DeepSeek-V3.2, arXiv:2512.02556, equation 9.
    """
    return ~((advantages < 0) & (drift > delta))


def floored_gate(router_shift: Float[Tensor, "B T"], *, gamma_min: float) -> RouterGate:
    """sg[max(gamma, gamma_min)] with gamma = exp(router_shift), router_shift <= 0.

        gamma = exp(-mean over layers of mean over the old top-k experts of |log p_new - log p_old|)

    Detached: with a gradient through the router training collapses. Source: RSPO, arXiv:2510.23027.
    """
    gamma = router_shift.detach().exp()  # detach: the gate is a weight
    return RouterGate(gamma.clamp(min=gamma_min).log(), gamma, gamma < gamma_min)


def policy_keep_mask(
    policy: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B N"],
    batch: PolicyBatch,
    knob: knobs.OffPolicyMask,
) -> Bool[Tensor, "B N"] | None:
    """Mask of what the off-policy mask leaves in the policy term; None without a mask."""
    match knob:
        case knobs.NoOffPolicyMask():
            return None
        case knobs.Opsm(delta=delta, source=source):
            if source == "sampler":
                origin = require(batch.sampler_logprobs, "sampler log-probabilities")
            else:
                origin = policy if batch.old_logprobs is None else batch.old_logprobs
            moved = masked.zero_masked(origin, batch.mask) - policy
            drift = masked.token_mean(moved.detach(), batch.mask)  # detach: the mask is a constant
            return off_policy_keep_mask(drift, advantages, delta=delta)
        case _:
            assert_never(knob)


def router_gate(batch: PolicyBatch, knob: knobs.Router) -> RouterGate | None:
    """Return the gate by which the router's shift scales the token ratios; None without such a knob or with a
    dense policy.
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
