"""AdamW with moments in float32, or in 8 or 4 bits with a scale per block (torchao).

Paged moments in float32 or 8 bits are implemented by bitsandbytes.

Source: Dettmers et al., arXiv:2110.02861; Li et al., arXiv:2309.01507.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from backend.base.errors import FieldError, InvalidConfig
from backend.config.sections import OptimizerConfig

PAGED_KEYS = {"state1", "state2", "absmax1", "absmax2"}
"""Keys of the tensors in a weight's bitsandbytes state that depend on the gradients."""


def adamw(groups: Sequence[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    """Create the optimizer of a config. Weights with fewer than 4,096 values keep float32 moments.

    Raise InvalidConfig if moments cannot be paged.
    """
    knobs: dict[str, Any] = {"lr": config.lr, "betas": config.betas, "eps": config.eps}
    if config.paged:
        return _paged_optimizer(groups, knobs, bits=32 if config.moments == "float32" else 8)
    if config.moments == "float32":
        return torch.optim.AdamW(list(groups), fused=True, **knobs)
    from torchao.optim import AdamW4bit, AdamW8bit

    kind: Any = AdamW8bit if config.moments == "int8" else AdamW4bit
    optimizer: Optimizer = kind(list(groups), **knobs)
    return optimizer


def _paged_optimizer(groups: Sequence[dict[str, Any]], knobs: dict[str, Any], *, bits: int) -> Optimizer:
    if any(weight.device.type != "cuda" for group in groups for weight in group["params"]):
        reason = "is on, but this worker computes without a GPU, whose memory alone is paged"
        raise InvalidConfig([FieldError("optimizer.paged", f"{reason}: expected false")])
    try:
        from bitsandbytes.optim import PagedAdamW8bit, PagedAdamW32bit
    except Exception as error:  # A broken installation may raise any error.
        reason = "is on, but bitsandbytes does not load on this worker (pip install bitsandbytes)"
        raise InvalidConfig([FieldError("optimizer.paged", reason)]) from error
    optimizer: Optimizer = (PagedAdamW32bit if bits == 32 else PagedAdamW8bit)(list(groups), **knobs)
    return optimizer


def take_step(adam: Optimizer, lr: float) -> None:
    """Apply the gradients with a learning rate.

    torchao's update is compiled on a GPU. On a CPU, compilation would take a minute and save nothing.
    """
    on_cpu = all(weight.device.type == "cpu" for group in adam.param_groups for weight in group["params"])
    for group in adam.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
    with torch.compiler.set_stance("force_eager" if on_cpu else "default"):
        adam.step()


def forget_moments(adam: Any) -> None:
    """Reset the moments. Pages are cleared but kept, because bitsandbytes never frees them."""
    if not is_paged(adam):
        adam.state.clear()
    for state in adam.state.values():
        state["step"] = 0
        for key in PAGED_KEYS & state.keys():
            state[key].zero_()


def is_paged(adam: object) -> bool:
    """Return whether this is a bitsandbytes optimizer with paged moments."""
    return getattr(adam, "is_paged", False) is True


def to_plain_tensors(key: str, value: Any) -> dict[str, Tensor]:
    """Return a moment or step count as plain tensors: itself, or the components of a quantized one."""
    if key in ("qmap1", "qmap2"):  # the 256 levels are constant
        return {}
    if isinstance(value, int):
        return {key: torch.tensor(value)}
    if not hasattr(value, "codes"):
        return {key: value.detach()}
    return {f"{key}.codes": value.codes, f"{key}.scale": value.scale}


def put_back(adam: Any, master: nn.Parameter, key: str, value: Tensor) -> None:
    """Restore one of the tensors of `to_plain_tensors` in the optimizer's state."""
    state = adam.state[master]
    name, _, attribute = key.partition(".")
    if is_paged(adam):
        _restore_paged(adam, state, master, name, value)
    elif not attribute:
        # A fused AdamW keeps its step count on the device of the weights, and torchao keeps it on the host.
        is_on_host = name == "step" and not isinstance(adam, torch.optim.AdamW)
        state[name] = value.clone().to("cpu" if is_on_host else master.device)
    else:
        if name not in state:
            # torchao has no public way to create an empty moment
            state[name] = adam._new_buffer(master, name == "exp_avg")  # noqa: SLF001
        getattr(state[name], attribute).copy_(value)


def _restore_paged(adam: Any, state: Any, master: nn.Parameter, name: str, value: Tensor) -> None:
    if name == "step":
        state[name] = int(value)
        return
    if not name.startswith("state"):
        state[name] = value.clone().to(master.device)
        return
    state[name] = adam.get_state_buffer(master, dtype=value.dtype)
    torch.accelerator.synchronize()  # the GPU clears a new page asynchronously
    state[name].copy_(value)
    if value.dtype == torch.uint8:
        quantization_map = adam.name2qmap["dynamic" if name == "state1" else "udynamic"]
        state[f"qmap{name[-1]}"] = quantization_map.to(master.device)
