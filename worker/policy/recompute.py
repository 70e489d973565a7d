"""Activation checkpointing: a layer keeps only its input, and the backward pass computes the rest again.

transformers does the same only in training mode, where dropout would also begin to act; here the mode of the
model does not matter. Source: Chen et al., arXiv:1604.06174.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from backend.base.errors import FieldError, InvalidConfig

recomputed = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
"""A function of tensors whose intermediate results are not kept; nothing in a policy is random."""


def enable_recompute(model: nn.Module) -> None:
    """Let gradients of the model be computed with recomputed layers; its copies inherit it.

    Raises InvalidConfig for a model whose layers transformers does not mark.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        reason = f"is on, but transformers marks no layers of {type(model).__name__} that can be recomputed"
        raise InvalidConfig([FieldError("resources.activation_checkpointing", reason)])
    for layer in layers:
        layer.gradient_checkpointing = True


@contextmanager
def recomputed_layers(
    model: nn.Module, again: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """Forward passes within keep only the input of each layer, where `enable_recompute` was called.

    What is computed again is computed within `again`.
    """
    layers = _layers(model)
    for layer in layers:
        layer.forward = partial(recomputed, layer.forward, context_fn=lambda: (nullcontext(), again()))
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def layer_by_layer(model: nn.Module) -> Callable[..., Tensor]:
    """Calls a function that stands for one layer: plainly, or recomputed where that is wanted."""
    return recomputed if _layers(model) else _plainly


def _plainly(layer: Callable[..., Tensor], *inputs: object) -> Tensor:
    return layer(*inputs)


def _layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    """The layers to recompute in the backward pass of what comes now; none where no gradient is wanted."""
    if not torch.is_grad_enabled():
        return []
    marked = (module for module in model.modules() if isinstance(module, GradientCheckpointingLayer))
    return [layer for layer in marked if layer.gradient_checkpointing]
