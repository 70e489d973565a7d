"""Formulas of the update: the trust region of natural-gradient steps,
and AdamW's clipping and weight decay.
"""

from backend.config.formula.notation import fraction, number
from backend.config.run import RunConfig
from backend.config.sections import TrustRegion


def update_rows(config: RunConfig) -> list[str]:
    """Return the formulas of the change of the weights by an optimizer step."""
    match config.updates.rule:
        case "natural_gradient":
            trained, rows = [], _trust_region(config.updates.trust)
        case "adam":
            trained, rows = (
                ["θ"],
                [f"∇L ← ∇L min(1, {fraction(number(config.optimizer.max_grad_norm), '‖∇L‖')})"],
            )
    critics = ["θ_V"] if config.objective.critic is not None else []
    return [*rows, *_decay(config, [*trained, *critics])]


def _decay(config: RunConfig, trained: list[str]) -> list[str]:
    decay = config.optimizer.weight_decay
    if not decay:
        return []
    match config.optimizer.decayed:
        case "matrices":
            condition = "for weights of two or more dimensions"
        case "all":
            condition = "for all weights"
    return [f"{weights} ← (1 − {number(decay)} lr) {weights} {condition}" for weights in trained]


def _trust_region(trust: TrustRegion) -> list[str]:
    """Return the formulas of the line search for the longest step that stays in the region and improves."""
    image = f"(F + {number(trust.damping)} I) x" if trust.damping else "F x"
    region = f"D ≤ {number(trust.delta)} and L falls; without one θ stays"
    return [
        f"θ ← θ + {number(trust.backtrack_factor)}ᵐ s",
        f"m = the first of 0 … {number(trust.backtracks - 1)} where {region}",
        f"s = √({number(2 * trust.delta)} / (x · {image})) x",
        f"{image} ≈ g after at most {number(trust.cg_iters)} conjugate-gradient iterations",
        "g = − ∇L",
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
