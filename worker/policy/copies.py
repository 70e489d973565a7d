"""Copies of a model that share whatever does not differ."""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


def changed_copy(model: PreTrainedModel, change: Callable[[Tensor], Tensor]) -> PreTrainedModel:
    """The model with `change(weight)` for each of its weights, without gradients.

    A weight that `change` gives back as it is stays the model's own; tied weights stay tied, buffers (such as
    the frequencies of rotary embeddings) keep their precision.
    """
    memo = {id(weight): nn.Parameter(change(weight.detach()), False) for weight in model.parameters()}
    return copy.deepcopy(model, memo)


def with_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """The model with these weights, by name, in place of its own."""
    by_place = {weight.data_ptr(): weights[name] for name, weight in model.named_parameters()}
    return changed_copy(model, lambda weight: by_place[weight.data_ptr()].to(weight.device))


@torch.no_grad()
def copied_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights as they are now, by name; tied ones once."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}
