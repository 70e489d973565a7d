"""Train in float64 to distinguish rounding from real differences, for tests only.

python -m tests.worker.training.wide        a rank above 0, like worker.training.follower, in float64"""

import sys
from typing import Any

import torch

from worker.policy.model import load_policy
from worker.training import follower, replica, trainer

WIDE = torch.float64

FOLLOWER_COMMAND = (sys.executable, "-m", "tests.worker.training.wide")
"""Command of the ranks above 0."""


class WideTorch:
    """The torch module as seen by the worker and its models, in which float32 is float64."""

    def __getattr__(self, name: str) -> Any:
        return WIDE if name == "float32" else getattr(torch, name)


def widen() -> None:
    """Make this process compute in float64 instead of float32."""
    torch.set_default_dtype(WIDE)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]

    def load_wide(*arguments: Any, **options: Any) -> Any:
        policy = load_policy(*arguments, **options)
        policy.model.double()
        _widen_modules()  # transformers has imported the model's own modules
        return policy

    replica.load_policy = load_wide  # type: ignore[attr-defined]
    _widen_modules()


def _widen_modules() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(("worker.", "transformers.models.")) and getattr(module, "torch", None) is torch:
            module.torch = WideTorch()  # type: ignore[attr-defined]


if __name__ == "__main__":
    assert trainer  # all modules of a trainer have been imported
    widen()
    follower.main()
