"""The weight of an entropy bonus that follows the entropy itself."""


def next_coefficient(coef: float, entropy: float, *, target: float, step: float) -> float:
    """Return the weight after a step of training: up where the entropy was below its target, else down to 0
    at most.

    Source: Skywork-OR1, arXiv:2505.22312, section 4.3.
    """
    return coef + step if entropy < target else max(0.0, coef - step)


def used_coefficient(coef: float, entropy: float, *, target: float) -> float:
    """Return the weight in use: 0 while the entropy is above its target. Source: as above."""
    return coef if entropy <= target else 0.0
