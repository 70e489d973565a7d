"""Config of the devices and the memory that a run uses."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

ONE_PROCESS = {"nodes": 1, "devices": 1}
"""Resources of a run that only samples, which needs one process."""


class ResourcesConfig(Frozen):
    """The devices and the memory that a run uses."""

    devices: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of GPUs per machine that train the run together, or without GPUs of processes that share a slot.
    Each computes a part of the forward and backward passes, and weights, gradients and moments are sharded
    over them. This does not change the gradient except for rounding.
    """

    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of machines that train the run together, with `devices` on each. Weights, gradients and moments
    are sharded within a machine and replicated across machines. A value above 1 requires a group of workers
    that were started with --nodes. This does not change the gradient except for rounding.
    """

    microbatch_completions: Annotated[int, Field(ge=0, le=65536)] = 0
    """Maximum number of completions per forward and backward pass. 0 means no limit. This
    does not change the gradient except for rounding.
    """

    microbatch_tokens: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Maximum number of tokens per forward and backward pass, including prompts and padding. A longer
    completion is processed alone. 0 means the whole minibatch, which is halved after an out-of-memory error
    until it fits.
    """

    packing: Literal["auto", "on", "off"] = "auto"
    """Whether the completions of a micro-batch are concatenated without padding. Each attends only to itself,
    by flash attention if it is installed, and otherwise by flex attention. auto packs on a GPU, unless the
    policy has recurrent layers or computes different numbers when packed. This does not change the gradient
    except for rounding.
    """

    activation_checkpointing: bool = False
    """Keep only the input of each layer for the backward pass and recompute the rest. This takes about a
    third more time and a fraction of the memory. It does not change the gradient.
    """

    offload_optimizer: bool = False
    """Keep float32 weights, gradients and moments of the optimizer in the memory of the host, which then
    computes the update. This has no effect on a CPU.
    """

    offload_reference: bool = False
    """Keep the weights of the reference policy in the memory of the host,
    except during the pass that needs them.
    """

    @property
    def ranks(self) -> int:
        """Number of processes that train the run together, on all nodes."""
        return self.nodes * self.devices
