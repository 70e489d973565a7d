"""Measure the peak bytes of live tensors, as an allocator without rounding would, on any device."""

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Count the storages created within the context until nothing refers to them.

    A tensor that autograd saves is live, and a view belongs to its base. Temporary memory of a kernel
    within one operation is not measured."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._ends: dict[int, Any] = {}

    def ignore(self, tensors: Any) -> None:
        """Exclude tensors that existed before."""
        for tensor in tensors:
            for plain_tensor in plain_parts(tensor):
                self._known[plain_tensor.untyped_storage()] = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and count its results."""
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                for plain_tensor in plain_parts(tensor):
                    self._see(plain_tensor if plain_tensor.is_mkldnn else plain_tensor.untyped_storage())
        return result

    def _see(self, storage: Any) -> None:
        if storage in self._known:
            return
        is_packed = isinstance(storage, torch.Tensor)  # a tensor of oneDNN has no accessible storage
        size = storage.numel() * storage.element_size() if is_packed else storage.nbytes()
        self._known[storage] = size
        weakref.finalize(storage, self._forget, size)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _forget(self, size: int) -> None:
        self.now -= size


def plain_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors with memory that a tensor consists of, such as torchao's codes and scales."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [plain_tensor for name in names for plain_tensor in plain_parts(getattr(tensor, name))]
