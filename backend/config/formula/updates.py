"""Formulas of the update: the trust region of a natural-gradient step, limits and weight decay of AdamW."""

from backend.config.formula.mathml import (
    Math,
    bracketed,
    call,
    fraction,
    number,
    power,
    product,
    root,
    row,
    symbol,
)
from backend.config.run import RunConfig
from backend.config.sections import TrustRegion

_WEIGHTS = symbol("θ")
_CRITICS = symbol("θ", "V")
_STEP = symbol("s")
_DIRECTION = symbol("x")
_SLOPE = symbol("g")
_DISTANCE = symbol("D")
_TRY = symbol("m")
_LOSS = symbol("L")


def update_rows(config: RunConfig) -> list[Math]:
    """Return the change that an optimizer step makes to the weights."""
    match config.updates.rule:
        case "natural_gradient":
            trained, rows = [], _trust_region(config.updates.trust)
        case "adam":
            trained, rows = [_WEIGHTS], [_clipped(config.optimizer.max_grad_norm)]
    critics = [_CRITICS] if config.objective.critic is not None else []
    return [*rows, *_decay(config, [*trained, *critics])]


def _clipped(most: float) -> Math:
    slope, norm = symbol("∇L"), bracketed(symbol("∇L"), "‖‖")
    return row(slope, "←", product(slope, call("min", number(1), fraction(number(most), norm))))


def _decay(config: RunConfig, trained: list[Math]) -> list[Math]:
    decay = config.optimizer.weight_decay
    if not decay:
        return []
    decay_factor = bracketed(row(number(1), "−", product(number(decay), symbol("lr"))))
    match config.optimizer.decayed:
        case "matrices":
            whose = "for weights of two or more dimensions"
        case "all":
            whose = "for all weights"
    return [row(weights, "←", product(decay_factor, weights), whose) for weights in trained]


def _trust_region(trust: TrustRegion) -> list[Math]:
    """Return the longest of some lengths of the natural gradient that keeps to the region and improves."""
    matrix = symbol("F")
    damped = row(matrix, "+", product(number(trust.damping), symbol("I"))) if trust.damping else matrix
    image = product(damped, _DIRECTION)
    curvature = row(_DIRECTION, "·", image)
    length = root(fraction(number(2 * trust.delta), curvature))
    tries = row("the first of", number(0), "…", number(trust.backtracks - 1))
    region = row(_DISTANCE, "≤", number(trust.delta), "and", _LOSS, "falls; without one", _WEIGHTS, "stays")
    limit = row("after at most", number(trust.cg_iters), "conjugate-gradient iterations")
    return [
        row(_WEIGHTS, "←", _WEIGHTS, "+", product(power(number(trust.backtrack_factor), "m"), _STEP)),
        row(_TRY, "=", tries, "where", region),
        row(_STEP, "=", product(length, _DIRECTION)),
        row(image, "≈", _SLOPE, limit),
        row(_SLOPE, "=", "−", symbol("∇L")),
    ]


MEANINGS = {
    "θ": "weights of the policy",
    "θ_V": "weights of the critic",
    "∇L": "gradient of L",
    "m": "how often the step is shortened",
    "s": "step on the edge of the trust region",
    "x": "direction of the natural gradient",
    "g": "direction in which L falls",
    "F": "Fisher matrix: second derivatives of D where the step starts",
    "I": "identity matrix",
    "D": "mean over tokens of the KL of the next-token distributions after the step from those before; nats",
}
"""Meanings of the symbols that this module writes."""
