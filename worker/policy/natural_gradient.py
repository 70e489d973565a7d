"""A trust-region policy optimization (TRPO) step: the natural gradient with a line search.

    g = grad S(theta),  x = (F + damping I)^-1 g,  step = sqrt(2 delta / (x . (F + damping I) x)) x

S is the surrogate to be raised, F the curvature of the mean KL between the policy as it was and as it is.
It is never written out: conjugate gradients need only its products with vectors, double backward passes.
Source: Schulman et al., arXiv:1502.05477, appendix C; Spinning Up.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backend.config.sections import TrustRegion

Parts = Callable[[], Iterable[Tensor]]
"""A number as the sum of its parts, one micro-batch at a time, from the parameters as they are."""

Product = Callable[[Tensor], Tensor]
"""A symmetric matrix, as what it makes of a vector."""


class TrustStep(NamedTuple):
    """The result of a natural-gradient step."""

    grad_norm: float
    """L2 norm of the surrogate's gradient; not finite: nothing was changed."""
    kl: float
    """Mean KL of the policy as it was from the policy as it is now, in nats; 0 after a failed search."""
    backtracks: int
    """How often the step was shortened."""
    improvement: float
    """How much the surrogate rose."""
    is_failed: bool
    """Whether no length of the step kept to the region and improved: the parameters are as they were."""


def natural_step(
    parameters: Sequence[Tensor],
    surrogate: Parts,
    divergence: Parts,
    trust: TrustRegion,
    *,
    lean: bool = False,
) -> TrustStep:
    """Raise `surrogate` by changing the parameters in place while `divergence` stays at most delta.

    `divergence` has its minimum, 0, at the parameters as they come. `lean` builds the graph of each part
    anew for each product instead of keeping all of them: slower, in less memory.
    """
    gradient, before = _slope(surrogate, parameters)
    norm = float(gradient.norm())
    if not math.isfinite(norm) or norm == 0:
        return TrustStep(norm, 0.0, 0, 0.0, is_failed=True)
    product = fisher_product(divergence, parameters, damping=trust.damping, lean=lean)
    direction = conjugate_gradient(product, gradient, iterations=trust.cg_iters)
    curvature = float(direction @ product(direction))
    if not math.isfinite(curvature) or curvature <= 0:
        return TrustStep(norm, 0.0, 0, 0.0, is_failed=True)
    step = math.sqrt(2 * trust.delta / curvature) * direction
    return _searched(parameters, surrogate, divergence, trust, step, before=before)._replace(grad_norm=norm)


def conjugate_gradient(product: Product, target: Tensor, *, iterations: int, least: float = 1e-10) -> Tensor:
    """x with product(x) about target; ends early once the squared residual is `least` of the first."""
    solution, residual = torch.zeros_like(target), target.clone()
    direction, square = residual.clone(), residual @ residual
    first = square.clone()
    for _ in range(iterations):
        if square <= least * first:
            break
        image = product(direction)
        length = square / (direction @ image)
        solution += length * direction
        residual -= length * image
        following = residual @ residual
        direction = residual + (following / square) * direction
        square = following
    return solution


def fisher_product(divergence: Parts, parameters: Sequence[Tensor], *, damping: float, lean: bool) -> Product:
    """The product of F + damping I with a vector: F v = grad((grad KL) . v)."""
    slopes = () if lean else tuple(_curved_slopes(divergence, parameters))

    def product(vector: Tensor) -> Tensor:
        total = damping * vector
        for slope in _curved_slopes(divergence, parameters) if lean else slopes:
            total = total + _flat(
                torch.autograd.grad(
                    slope @ vector,
                    parameters,
                    retain_graph=not lean,
                    allow_unused=True,
                    materialize_grads=True,
                )
            )
        return total

    return product


def _curved_slopes(divergence: Parts, parameters: Sequence[Tensor]) -> Iterable[Tensor]:
    """The gradient of each part, itself differentiable."""
    for term in divergence():
        yield _flat(
            torch.autograd.grad(
                term, parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
        )


def _slope(surrogate: Parts, parameters: Sequence[Tensor]) -> tuple[Tensor, float]:
    """Gradient and value of the surrogate."""
    total, value = torch.zeros_like(_flat(parameters)), 0.0
    for term in surrogate():
        total += _flat(torch.autograd.grad(term, parameters, allow_unused=True, materialize_grads=True))
        value += float(term.detach())
    return total, value


@torch.no_grad()
def _searched(
    parameters: Sequence[Tensor],
    surrogate: Parts,
    divergence: Parts,
    trust: TrustRegion,
    step: Tensor,
    *,
    before: float,
) -> TrustStep:
    """The longest of the steps backtrack_factor^j that keeps to the region and improves; none: no change."""
    start = _flat(parameters).clone()
    try:
        for j in range(trust.backtracks):
            _write(parameters, start + trust.backtrack_factor**j * step)
            kl = sum(float(term) for term in divergence())
            improvement = sum(float(term) for term in surrogate()) - before
            if kl <= trust.delta and improvement > 0:
                return TrustStep(0.0, kl, j, improvement, is_failed=False)
    except BaseException:
        _write(parameters, start)  # the step is tried again in smaller parts when memory runs out
        raise
    _write(parameters, start)
    return TrustStep(0.0, 0.0, trust.backtracks, 0.0, is_failed=True)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _write(parameters: Sequence[Tensor], flat: Tensor) -> None:
    offset = 0
    for parameter in parameters:
        parameter.copy_(flat[offset : offset + parameter.numel()].view_as(parameter))
        offset += parameter.numel()
