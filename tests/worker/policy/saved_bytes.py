"""Measure the bytes that autograd saves for the backward pass, which dominate GPU memory while learning."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")


def saved_bytes(model: nn.Module, forward: Callable[[], Result]) -> tuple[Result, int]:
    """Return the result of `forward`, and the bytes saved for its gradients, excluding the model's weights.

    A storage that several operations save counts once."""
    weights = {_storage_address(weight) for weight in model.parameters()}
    bytes_by_storage: dict[int, int] = {}
    kept_tensors: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = _storage_address(tensor)
        if storage not in weights and storage not in bytes_by_storage:
            bytes_by_storage[storage] = tensor.untyped_storage().nbytes()
            kept_tensors.append(tensor.detach())  # otherwise the address could be reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    return result, sum(bytes_by_storage.values())


def _storage_address(tensor: Tensor) -> int:
    """Return the address of a tensor's storage, or of its integers if torchao has quantised it."""
    plain_tensor: Tensor = getattr(tensor, "qdata", tensor)
    return plain_tensor.untyped_storage().data_ptr()
