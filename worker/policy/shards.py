"""Sharded training of a model: FSDP2 stores a part of weights, gradients and moments on each rank.

In addition to its shards every rank has the complete model, which samples, scores without gradient and is
saved. The shards compute gradients, and each update is published to the complete model. With several
nodes each node has all shards (hybrid sharding), and gradients are summed over the nodes.

Source: Zhao et al., arXiv:2304.11277; PyTorch, `torch.distributed.fsdp.fully_shard`.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from backend.config.sections import OptimizerConfig
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.ranks import Ranks

Forward = Callable[..., Any]
"""The type of a forward pass: (model, batch, ...) -> tensors."""

METHOD = "sharded_forward"
"""Name of the method for which FSDP gathers weights, which maps tokens to the inputs of the loss."""


class ShardedModel:
    """A sharded model together with the complete model."""

    def __init__(self, model: PreTrainedModel, ranks: Ranks, forward: Forward) -> None:
        """Shard a model.

        `forward` computes the inputs of the loss, whose sums run over the rows of all ranks.
        """
        self.whole_model, self.ranks = model, ranks
        self.model: Any = copy.deepcopy(model)
        self.model.sharded_forward = forward.__get__(self.model)
        for layer in self.model.get_decoder().layers:
            fully_shard(layer, mesh=ranks.mesh)
        fully_shard(self.model, mesh=ranks.mesh)
        for module in self.model.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(1.0)  # the losses are parts of one sum already
                module.set_force_sum_reduction_for_comms(True)
        register_fsdp_forward_method(self.model, METHOD)

    def __call__(self, *batch: Any, **knobs: Any) -> Any:
        """Run the forward pass. Every rank must call it."""
        return self.model.sharded_forward(*batch, **knobs)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the weights of the shards to the complete model. Every rank must call it."""
        shards = dict(self.model.named_parameters())
        for name, weight in self.whole_model.named_parameters():
            if weight.requires_grad:
                weight.copy_(shards[name].full_tensor())

    @torch.no_grad()
    def load_weights(self) -> None:
        """Copy the complete model's weights to the shards."""
        shards = dict(self.model.named_parameters())
        for name, weight in self.whole_model.named_parameters():
            if weight.requires_grad:
                shards[name].to_local().copy_(local_shard(weight.detach(), shards[name]))


class ShardedOptimizer(PolicyOptimizer):
    """AdamW on the shards of this rank."""

    def __init__(
        self, shards: ShardedModel, config: OptimizerConfig, *, steps: int, announce: Callable[[], None]
    ) -> None:
        """Create the optimizer. `announce` is called to make the other ranks send their parts of the
        state.
        """
        self.shards, self.announce = shards, announce
        super().__init__(shards.model, config, steps=steps)

    def _master(self, weight: Any, *, offload: bool) -> nn.Parameter:  # noqa: ARG002 - never offloaded
        local = weight.to_local().detach()
        return nn.Parameter(local if local.dtype == torch.float32 else local.float())

    def _gradient(self, weight: Any) -> Tensor:
        gradient: Tensor = weight.grad.to_local()
        return gradient

    def _clip(self) -> float:
        """Clip by the norm of the gradient over all ranks, and return the norm before clipping."""
        gradients = [master.grad for master in self.masters.values() if master.grad is not None]
        squares = [gradient.double().square().sum() for gradient in gradients]
        ranks = self.shards.ranks
        norm = (ranks.total(torch.stack(squares).sum()) / ranks.nodes).sqrt()  # each node has all shards
        scale = (self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.to(gradient.dtype))
        return float(norm)

    @torch.no_grad()
    def _write_back(self) -> None:
        for name, weight in self.weights.items():
            self._local(weight).copy_(self.masters[name])
        self.shards.publish()

    @staticmethod
    def _local(weight: Any) -> Tensor:
        local: Tensor = weight.to_local()
        return local

    def tensors(self) -> dict[str, Tensor]:
        """See PolicyOptimizer. Return complete tensors on the CPU, which fit any number of ranks."""
        self.announce()
        return self.gather()

    @torch.no_grad()
    def gather(self) -> dict[str, Tensor]:
        """Gather the complete tensors on all ranks. Every rank must call it."""
        return {key: self._gather_whole(key, value).cpu() for key, value in super().tensors().items()}

    def _gather_whole(self, key: str, value: Tensor) -> Tensor:
        weight: Any = self.weights[key.partition("/")[2]]
        if not value.ndim:  # a step count
            return value
        sharded = DTensor.from_local(
            value, weight.device_mesh, weight.placements, shape=weight.shape, stride=weight.stride()
        )
        return sharded.full_tensor()

    @torch.no_grad()
    def restore(self, values: Any, tensors: Any) -> None:
        """See PolicyOptimizer.

        The complete model's weights must be restored already, and `tensors` are complete.
        """
        self.shards.load_weights()
        local_tensors = {
            key: local_shard(value, self.weights[key.partition("/")[2]]) if value.ndim else value
            for key, value in tensors.items()
        }
        super().restore(values, local_tensors)


def local_shard(tensor: Tensor, template: Any) -> Tensor:
    """Return this rank's part of a complete tensor that is sharded like `template`, without communication."""
    sharded = distribute_tensor(
        tensor.to(template.device), template.device_mesh, template.placements, src_data_rank=None
    )
    return sharded.to_local()
