"""The terms that a loss adds to the policy term, as the config selects them: KL, entropy and imitation.

Each term is what every token adds to the loss (B, T) with the weights of its micro-batch. Summed over all
micro-batches, it is the term of the optimizer batch.
"""

from typing import assert_never

from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from worker.objective import kl, masked
from worker.objective.batch import PolicyBatch, require
from worker.objective.surrogates import Surrogate


def _cast_coefficient(
    coef: float | Float[Tensor, "B 1"], values: Float[Tensor, "B N"]
) -> float | Float[Tensor, "B 1"]:
    """Return the coefficient in the precision of the values that it multiplies."""
    return coef if isinstance(coef, float) else coef.to(values.dtype)


def kl_coefficient(batch: PolicyBatch, knob: knobs.Kl) -> float | Float[Tensor, "B 1"]:
    """Return the weight of the KL at this step: one for all completions, one for each, or 0 without a KL
    term.
    """
    if isinstance(knob, knobs.NoKl):
        return 0.0
    if batch.kl_coef is None and isinstance(knob.coef, float):
        return knob.coef
    return require(batch.kl_coef, "the KL coefficient of each completion").unsqueeze(1)


def kl_term(
    x: Float[Tensor, "B T"] | None,
    surrogate: Surrogate,
    token_weights: Float[Tensor, "B T"],
    sequence_weights: Float[Tensor, "B T"],
    coef: float | Float[Tensor, "B 1"],
    knob: knobs.Kl,
) -> Float[Tensor, "B T"] | None:
    """Return the KL term of the loss with its coefficient, or None. The weights are 0 on masked tokens."""
    match knob:
        case knobs.NoKl():
            return None
        case knobs.KlK1(place="reward"):
            return None
        case knobs.KlK1():
            estimate = kl.k1(require(x, "reference log-probabilities"))
        case knobs.KlK2():
            estimate = kl.k2(require(x, "reference log-probabilities"))
        case knobs.KlK3():
            estimate = kl.k3(require(x, "reference log-probabilities"), limit=knob.largest_k3)
        case knobs.KlRatioK3():
            x = require(x, "reference log-probabilities")
            estimate = require(surrogate.ratio, "a ratio") * kl.k3(x, limit=knob.largest_k3)
        case knobs.KlRatioK1():
            estimate = require(surrogate.ratio, "a ratio") * kl.k1(require(x, "reference log-probabilities"))
        case _:
            assert_never(knob)
    weights = sequence_weights if knob.aggregation == "seq_sum" else token_weights
    return _cast_coefficient(coef, estimate) * estimate * weights


def entropy_coefficient(batch: PolicyBatch, knob: knobs.Entropy) -> float | Float[Tensor, "B 1"]:
    """Return the weight of the entropy bonus at this step, for all completions or for each, or 0 without
    one.
    """
    match knob:
        case knobs.NoEntropyBonus():
            return 0.0
        case knobs.EntropyBonus(coef=coef):
            return coef
        case knobs.AdaptiveEntropy():
            return require(batch.entropy_coef, "the entropy coefficient of each completion").unsqueeze(1)
        case _:
            assert_never(knob)


def entropy_term(
    entropy: Float[Tensor, "B T"] | None,
    mask: Bool[Tensor, "B T"],
    token_weights: Float[Tensor, "B T"],
    coef: float | Float[Tensor, "B 1"],
    knob: knobs.Entropy,
) -> Float[Tensor, "B T"] | None:
    """Return the entropy term of the loss with its coefficient and sign, or None."""
    if isinstance(knob, knobs.NoEntropyBonus):
        return None
    nats = masked.zero_masked(require(entropy, "entropy"), mask)
    return -(_cast_coefficient(coef, nats) * nats * token_weights)


def nll_term(
    policy: Float[Tensor, "B T"],
    correct: Bool[Tensor, "B"] | None,
    loss_mask: Float[Tensor, "B T"],
    weight: Float[Tensor, ""] | None,
    knob: knobs.Nll,
) -> Float[Tensor, "B T"] | None:
    """Return the mean negative log-likelihood over the tokens of correct completions, or None without this
    term.

        coef / N sum_{i correct} sum_t -log p[i, t],  N = tokens of correct completions in the optimizer batch

    It is 0 without any correct completion. Source: VAPO, arXiv:2504.05118, section 4.3.
    """
    match knob:
        case knobs.NoNll():
            return None
        case knobs.PositiveNll(coef=coef):
            rows = require(correct, "which completions are correct").to(policy.dtype).unsqueeze(1)  # (B, 1)
            share = require(weight, "the number of correct tokens").to(policy.dtype)
            return -coef * (policy * loss_mask * rows) * share
        case _:
            assert_never(knob)
