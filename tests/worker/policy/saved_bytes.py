"""Bytes that autograd keeps for the backward pass: what fills a GPU while a step learns."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")


def saved_bytes(model: nn.Module, work: Callable[[], Result]) -> tuple[Result, int]:
    """Return what `work` returns, and the bytes that stay saved for its gradients, without the model's
    weights.

    A storage that several operations keep counts once.
    """
    weights = {_place(weight) for weight in model.parameters()}
    bytes_by_storage: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = _place(tensor)
        if storage not in weights and storage not in bytes_by_storage:
            bytes_by_storage[storage] = tensor.untyped_storage().nbytes()
            alive.append(tensor.detach())  # or its place could be given to another one
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = work()
    return result, sum(bytes_by_storage.values())


def _place(tensor: Tensor) -> int:
    """Return where a tensor's storage begins; of torchao's quantised ones that of the integers."""
    plain: Tensor = getattr(tensor, "qdata", tensor)
    return plain.untyped_storage().data_ptr()
