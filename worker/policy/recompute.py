"""Activation checkpointing: a layer keeps only its input, and the backward pass recomputes everything else.

transformers does the same, but only in training mode, in which dropout is active too. The mode of the model
does not matter here. Source: Chen et al., arXiv:1604.06174.
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
"""Call a function of tensors without keeping intermediate results. No random state is restored, as
policies use none.
"""


def enable_recompute(model: nn.Module) -> None:
    """Enable recomputation of the model's layers for gradients, also in its future copies.

    Raise InvalidConfig if transformers does not mark the model's layers.
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
    """Keep only the input of each layer in forward passes in the block, if `enable_recompute` was called.

    The context `again` is entered for each recomputation.
    """
    layers = _layers(model)
    for layer in layers:
        layer.forward = partial(recomputed, layer.forward, context_fn=lambda: (nullcontext(), again()))
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def layer_caller(model: nn.Module) -> Callable[..., Tensor]:
    """Return a function that calls a layer's function, directly or with recomputation if it is enabled."""
    return recomputed if _layers(model) else _call_layer


def _call_layer(layer: Callable[..., Tensor], *inputs: object) -> Tensor:
    return layer(*inputs)


def _layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    """Return the layers to recompute in the next backward pass, or none if no gradient is needed."""
    if not torch.is_grad_enabled():
        return []
    layers = (module for module in model.modules() if isinstance(module, GradientCheckpointingLayer))
    return [layer for layer in layers if layer.gradient_checkpointing]
