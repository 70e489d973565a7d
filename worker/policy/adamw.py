"""AdamW with moments in float32, or in 8 or 4 bits per value with a scale for each block, by torchao.

Source: Dettmers et al., arXiv:2110.02861; Li et al., arXiv:2309.01507.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from backend.config.run import OptimizerConfig


def adamw(groups: Sequence[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    """The optimizer of a config; torchao's keeps weights with fewer than 4,096 values in float32."""
    knobs: dict[str, Any] = {"lr": config.lr, "betas": config.betas, "eps": config.eps}
    if config.moments == "float32":
        return torch.optim.AdamW(list(groups), fused=True, **knobs)
    from torchao.optim import AdamW4bit, AdamW8bit

    kind: Any = AdamW8bit if config.moments == "int8" else AdamW4bit
    made: Optimizer = kind(list(groups), **knobs)
    return made


def take_step(adam: Optimizer, lr: float) -> None:
    """Apply the gradients with a learning rate.

    torchao compiles its update for a GPU. On a CPU a minute of compilation would save nothing.
    """
    on_cpu = all(weight.device.type == "cpu" for group in adam.param_groups for weight in group["params"])
    for group in adam.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
    with torch.compiler.set_stance("force_eager" if on_cpu else "default"):
        adam.step()


def stored(key: str, value: Any) -> dict[str, Tensor]:
    """A moment or step count as plain tensors: its own, or the parts of a quantised one."""
    if not hasattr(value, "codes"):
        return {key: value.detach()}
    return {f"{key}.codes": value.codes, f"{key}.scale": value.scale}


def put_back(adam: Any, master: nn.Parameter, key: str, value: Tensor) -> None:
    """Put one of the tensors of `stored` in its place in the optimizer's state."""
    state = adam.state[master]
    name, _, part = key.partition(".")
    if not part:
        # AdamW keeps its step count beside the weights where it is fused, torchao's on the host
        is_on_host = name == "step" and not isinstance(adam, torch.optim.AdamW)
        state[name] = value.clone().to("cpu" if is_on_host else master.device)
        return
    if name not in state:
        # torchao has no public way to make an empty moment
        state[name] = adam._new_buffer(master, name == "exp_avg")  # noqa: SLF001
    getattr(state[name], part).copy_(value)
