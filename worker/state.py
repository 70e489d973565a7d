"""The state of a run, except the policy's weights, in named parts that a checkpoint stores.

All state that outlives a step is a part: progress, optimizer, random numbers, a moving baseline, a critic,
and so on. Its JSON values and tensors are stored in every checkpoint, so a resumed run continues as if it had
never stopped.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor


class Stateful(Protocol):
    """One part of a run's state."""

    def values(self) -> dict[str, Any]:
        """Return the part's numbers and texts as JSON values."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Return the part's detached tensors by name."""
        ...

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from the results of `values` and `tensors`."""
        ...


Parts = Mapping[str, Stateful]
