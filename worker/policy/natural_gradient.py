"""Trust-region policy optimization (TRPO) step: the natural gradient with a line search.

    g = grad S(theta),  x = (F + damping I)^-1 g,  step = sqrt(2 delta / (x . (F + damping I) x)) x

S is the surrogate to increase, and F is the curvature of the mean KL between the old and the new policy. F is
never materialized, because conjugate gradients need only its products with vectors, which are double backward
passes. Source:
Schulman et al., arXiv:1502.05477, appendix C; Spinning Up.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backend.config.sections import TrustRegion

Parts = Callable[[], Iterable[Tensor]]
"""Function that yields the parts of a sum, one micro-batch at a time, under the current parameters."""

Product = Callable[[Tensor], Tensor]
"""Function that multiplies a symmetric matrix by a vector."""


class TrustStep(NamedTuple):
    """The result of a natural-gradient step."""

    grad_norm: float
    """L2 norm of the surrogate's gradient. If it is not finite, nothing was changed."""
    kl: float
    """Mean KL of the old policy from the new policy, in nats, or 0 after a failed search."""
    backtracks: int
    """Number of times that the step was shortened."""
    improvement: float
    """Increase of the surrogate."""
    is_failed: bool
    """True if no step length stayed in the region and improved, so that the parameters are unchanged."""


def natural_step(
    parameters: Sequence[Tensor],
    surrogate: Parts,
    divergence: Parts,
    trust: TrustRegion,
    *,
    lean: bool = False,
) -> TrustStep:
    """Increase `surrogate` by changing the parameters in place while `divergence` stays at most delta.

    `divergence` has its minimum, 0, at the initial parameters. `lean` rebuilds the graph of each part for
    each product instead of keeping all graphs, which is slower but needs less memory.
    """
    gradient, initial_objective = _slope(surrogate, parameters)
    norm = float(gradient.norm())
    if not math.isfinite(norm) or norm == 0:
        return TrustStep(norm, 0.0, 0, 0.0, is_failed=True)
    product = fisher_product(divergence, parameters, damping=trust.damping, lean=lean)
    direction = conjugate_gradient(product, gradient, iterations=trust.cg_iters)
    curvature = float(direction @ product(direction))
    if not math.isfinite(curvature) or curvature <= 0:
        return TrustStep(norm, 0.0, 0, 0.0, is_failed=True)
    step = math.sqrt(2 * trust.delta / curvature) * direction
    return _search_step(
        parameters, surrogate, divergence, trust, step, initial_objective=initial_objective
    )._replace(grad_norm=norm)


def conjugate_gradient(product: Product, target: Tensor, *, iterations: int) -> Tensor:
    """Solve product(x) = target for x until the squared residual is at most 1e-10 times the initial one."""
    solution, residual = torch.zeros_like(target), target.clone()
    direction, square = residual.clone(), residual @ residual
    initial_square = square.clone()
    for _ in range(iterations):
        if square <= 1e-10 * initial_square:
            break
        image = product(direction)
        length = square / (direction @ image)
        solution += length * direction
        residual -= length * image
        next_square = residual @ residual
        direction = residual + (next_square / square) * direction
        square = next_square
    return solution


def fisher_product(divergence: Parts, parameters: Sequence[Tensor], *, damping: float, lean: bool) -> Product:
    """Return the product of F + damping I with a vector: F v = grad((grad KL) . v)."""
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
    """Yield the gradient of each part, which is differentiable itself."""
    for term in divergence():
        yield _flat(
            torch.autograd.grad(
                term, parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
        )


def _slope(surrogate: Parts, parameters: Sequence[Tensor]) -> tuple[Tensor, float]:
    """Return the gradient and the value of the surrogate."""
    total, value = torch.zeros_like(_flat(parameters)), 0.0
    for term in surrogate():
        total += _flat(torch.autograd.grad(term, parameters, allow_unused=True, materialize_grads=True))
        value += float(term.detach())
    return total, value


@torch.no_grad()
def _search_step(
    parameters: Sequence[Tensor],
    surrogate: Parts,
    divergence: Parts,
    trust: TrustRegion,
    step: Tensor,
    *,
    initial_objective: float,
) -> TrustStep:
    """Apply the longest step backtrack_factor^j that stays in the region and improves.

    If there is none, change nothing.
    """
    start = _flat(parameters).clone()
    try:
        for j in range(trust.backtracks):
            _write(parameters, start + trust.backtrack_factor**j * step)
            kl = sum(float(term) for term in divergence())
            improvement = sum(float(term) for term in surrogate()) - initial_objective
            if kl <= trust.delta and improvement > 0:
                return TrustStep(0.0, kl, j, improvement, is_failed=False)
    except BaseException:
        _write(parameters, start)  # the step is retried in smaller parts if memory runs out
        raise
    _write(parameters, start)
    return TrustStep(0.0, 0.0, trust.backtracks, 0.0, is_failed=True)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _write(parameters: Sequence[Tensor], flat_values: Tensor) -> None:
    offset = 0
    for parameter in parameters:
        parameter.copy_(flat_values[offset : offset + parameter.numel()].view_as(parameter))
        offset += parameter.numel()
