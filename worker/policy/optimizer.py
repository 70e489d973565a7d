"""AdamW for a policy with float32 master weights, clipping, a learning-rate schedule and skipped bad updates.

Moments may be stored in 8 or 4 bits, and master weights and moments in host memory.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backend.config.sections import OptimizerConfig
from worker.policy.adamw import adamw, forget_moments, put_back, take_step, to_plain_tensors


class Update(NamedTuple):
    """The result of one optimizer step."""

    grad_norm: float
    """L2 norm of the complete gradient before clipping."""
    lr: float
    applied: bool
    """True if the update was applied. It is not if the gradient was not finite; then nothing changes."""


def learning_rate(config: OptimizerConfig, *, step: int, steps: int) -> float:
    """Return the learning rate of training step `step` of 1..steps.

    The rate rises linearly over `warmup_steps`. Then it stays constant, or falls to 0 one step after the last
    one, linearly or along half a cosine.
    """
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    progress = min(1.0, (step - 1 - config.warmup_steps) / max(1, steps - config.warmup_steps))
    match config.schedule:
        case "constant":
            return config.lr
        case "linear":
            return config.lr * (1 - progress)
        case "cosine":
            return config.lr * 0.5 * (1 + math.cos(math.pi * progress))


class PolicyOptimizer:
    """Updates a model in place.

    Weights narrower than float32 are updated through float32 copies, because a small learning rate would
    otherwise be rounded away. With `offload`, the host holds all copies, their gradients and moments, and
    computes the update.
    """

    def __init__(
        self, model: nn.Module, config: OptimizerConfig, *, steps: int, offload: bool = False
    ) -> None:
        self.config, self.steps = config, steps
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.masters = {name: self._master(weight, offload=offload) for name, weight in self.weights.items()}
        min_dimensions = 2 if config.decayed == "matrices" else 0
        decayed_masters = [master for master in self.masters.values() if master.ndim >= min_dimensions]
        undecayed_masters = [master for master in self.masters.values() if master.ndim < min_dimensions]
        groups = [
            {"params": decayed_masters, "weight_decay": config.weight_decay},
            {"params": undecayed_masters, "weight_decay": 0.0},
        ]
        self.adam = adamw([group for group in groups if group["params"]], config)

    def _master(self, weight: nn.Parameter, *, offload: bool) -> nn.Parameter:
        if weight.dtype == torch.float32 and not offload:
            return weight
        return nn.Parameter(weight.detach().to("cpu" if offload else weight.device, torch.float32, copy=True))

    def _gradient(self, weight: Any) -> Tensor:
        gradient: Tensor = weight.grad
        return gradient

    def take_gradients(self) -> None:
        """Add the gradients of a backward pass to those of the step, in float32. Call it between passes."""
        for name, weight in self.weights.items():
            master = self.masters[name]
            if master is weight or weight.grad is None:
                continue
            gradient = self._gradient(weight).to(master.device, torch.float32)
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            weight.grad = None

    def forget_gradients(self) -> None:
        """Discard the gradients of the step so far."""
        for name, weight in self.weights.items():
            weight.grad = self.masters[name].grad = None

    def step(self, step: int) -> Update:
        """Apply the gradients with the learning rate of training step `step`, then discard them."""
        self.take_gradients()
        lr = learning_rate(self.config, step=step, steps=self.steps)
        update = self._apply_update(lr)
        self.forget_gradients()
        return update

    def _apply_update(self, lr: float) -> Update:
        grad_norm = self._clip()
        if not math.isfinite(grad_norm):
            return Update(grad_norm, lr, applied=False)
        take_step(self.adam, lr)
        self._write_back()
        return Update(grad_norm, lr, applied=True)

    def _clip(self) -> float:
        """Clip the gradient to the maximum norm, and return its norm before clipping."""
        return float(nn.utils.clip_grad_norm_(self.masters.values(), self.config.max_grad_norm))

    @torch.no_grad()
    def _write_back(self) -> None:
        for name, weight in self.weights.items():
            if self.masters[name] is not weight:
                weight.copy_(self.masters[name])

    @staticmethod
    def _local(weight: Any) -> Tensor:
        """Return the part of a weight that this process stores, which is all of it."""
        local: Tensor = weight
        return local

    def reset(self) -> None:
        """Reset the moments and step counts, and keep the weights."""
        forget_moments(self.adam)

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"moments": self.config.moments, "paged": self.config.paged}

    def tensors(self) -> dict[str, Tensor]:
        """Return moments, step counts and master weights by parameter name."""
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            for key, value in self.adam.state.get(master, {}).items():
                tensors |= {
                    f"{stored_key}/{name}": tensor
                    for stored_key, tensor in to_plain_tensors(key, value).items()
                }
            if self.weights[name].dtype != torch.float32:
                tensors[f"master/{name}"] = master.detach()
        return tensors

    @torch.no_grad()
    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See Stateful. Call it after the weights are restored.

        Moments whose precision or paging differs from the config are not restored and start from 0.
        """
        forget_moments(self.adam)
        is_same = (values.get("moments", "float32"), values.get("paged", False)) == (
            self.config.moments,
            self.config.paged,
        )
        for name, weight in self.weights.items():
            self.masters[name].copy_(tensors.get(f"master/{name}", self._local(weight)))
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            if kind != "master" and is_same:
                put_back(self.adam, self.masters[name], kind, value)
