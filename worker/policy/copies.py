"""Copy models so that all unchanged weights are shared."""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


def changed_copy(model: PreTrainedModel, change: Callable[[Tensor], Tensor]) -> PreTrainedModel:
    """Return a copy of the model with `change(weight)` for each of its weights, without gradients.

    A weight that `change` returns unchanged is shared with the model. Tied weights stay tied, and buffers
    (such as the frequencies of rotary embeddings) keep their precision.
    """
    memo = {id(weight): nn.Parameter(change(weight.detach()), False) for weight in model.parameters()}
    return copy.deepcopy(model, memo)


def copy_trainable(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the model with copies of the trainable weights. Frozen weights are shared."""
    return copy.deepcopy(
        model, {id(weight): weight for weight in model.parameters() if not weight.requires_grad}
    )


def replace_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """Return a copy of the model with some weights replaced by name. All others are shared."""
    parameters = dict(model.named_parameters())
    memo = {
        id(parameters[name]): nn.Parameter(weight.to(parameters[name].device), requires_grad=False)
        for name, weight in weights.items()
    }
    shared_weights = {id(weight): weight for weight in parameters.values() if id(weight) not in memo}
    return copy.deepcopy(model, {**shared_weights, **memo})


@torch.no_grad()
def copied_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of the trainable weights by name. Tied weights are copied once."""
    return {
        name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad
    }
