"""The coefficient of an entropy bonus that adapts to the measured entropy."""


def next_coefficient(coef: float, entropy: float, *, target: float, step: float) -> float:
    """Return the coefficient after a step of training.

    It grows by `step` if the entropy was below its target and shrinks by `step`, down to 0, otherwise.
    Source: Skywork-OR1, arXiv:2505.22312, section 4.3.
    """
    return coef + step if entropy < target else max(0.0, coef - step)


def used_coefficient(coef: float, entropy: float, *, target: float) -> float:
    """Return the coefficient to use, which is 0 if the entropy is above its target. Source: Skywork-OR1."""
    return coef if entropy <= target else 0.0
