"""Models whose weights stay in host memory until a pass needs them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def visiting(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Let the model compute on a device within, with copies of weights that are stored elsewhere."""
    home = [(weight, weight.data) for weight in model.parameters()]
    try:
        model.to(device)
        yield
    finally:
        for weight, data in home:
            weight.data = data
