"""The memory of the machine that a run may use, and the measures that save some of it."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

ONE_PROCESS = {"nodes": 1, "devices": 1}
"""Resources of a run that only samples, which takes one process."""


class ResourcesConfig(Frozen):
    """The needs of a run on its machine."""

    devices: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs of each machine that the run trains on together, or processes that share a slot if there is no
    GPU: each makes its part of the forward and backward passes, and weights, gradients and moments are
    sharded over them. Never changes the gradient beyond the rounding of sums."""

    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Machines that the run trains on together, with `devices` on each: weights, gradients and moments
    are sharded within a machine and replicated over the machines. More than 1 needs a group of workers that
    were started with --nodes. Never changes the gradient beyond the rounding of sums."""

    microbatch_completions: Annotated[int, Field(ge=0, le=65536)] = 0
    """Most completions per forward and backward pass; 0: no limit of this kind. Never changes the gradient
    beyond the rounding of sums."""

    microbatch_tokens: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Most tokens per forward and backward pass, prompts and any padding included; a longer completion
    goes alone. 0: the whole minibatch, halved after an out-of-memory error until it fits."""

    packing: Literal["auto", "on", "off"] = "auto"
    """Completions of a micro-batch concatenated without padding, each attending to itself alone: by
    flash attention where it is installed, else by flex attention. auto packs on a GPU, unless the policy has
    recurrent layers or gives other numbers when packed. Never changes the gradient beyond the rounding of
    sums."""

    activation_checkpointing: bool = False
    """Keep only the input of each layer for the backward pass and compute the rest again: about a third more
    time for a fraction of the memory. Never changes the gradient."""

    offload_optimizer: bool = False
    """Keep float32 weights, gradients and moments of the optimizer in the host's memory, if the update is
    then computed. Never changes the numbers on a CPU."""

    offload_reference: bool = False
    """Keep the reference's weights in the host's memory but for the pass that needs them."""

    @property
    def ranks(self) -> int:
        """Processes that share the passes of the run, on all of its nodes."""
        return self.nodes * self.devices
