"""Keep the weights of models in host memory until a pass needs them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def visiting(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Move the model to a device for the duration of the block, then restore its stored weights."""
    stored_weights = [(weight, weight.data) for weight in model.parameters()]
    try:
        model.to(device)
        yield
    finally:
        for weight, stored_data in stored_weights:
            weight.data = stored_data
