"""The state of a run beside the policy's weights, in named parts that a checkpoint holds.

Whatever outlives a step is a part: progress, optimizer, random numbers, a moving baseline, a critic, ... Its
JSON values and its tensors go into every checkpoint, so a resumed run goes on as if it had never stopped.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor


class Stateful(Protocol):
    """One part of a run's state."""

    def values(self) -> dict[str, Any]:
        """The part's numbers and texts, as JSON."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The part's tensors, detached, by name."""
        ...

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Take over what `values` and `tensors` gave."""
        ...


Parts = Mapping[str, Stateful]
