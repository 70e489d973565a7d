"""Models with 8-bit arithmetic (W8A8), quantized by torchao, used if `sampling.precision` is int8.

The weights of a linear layer are rounded per output channel in advance, and its inputs per token on each
call. A GPU multiplies them as integers in torchao's layers. On a CPU without VNNI or AMX torch's integer
product is ten times slower than its float product, so the same integers are multiplied as floats. Up to
1,024 inputs every sum is below 2^24 and therefore exact.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from transformers import PreTrainedModel

from backend.base.errors import FieldError, InvalidConfig
from backend.catalog.policies.text_model import is_outside_text_model
from worker.policy.copies import changed_copy

GRID_STEPS = 127.5
"""Half of the 255 steps into which torchao's symmetric 8-bit grid divides a range."""


class Int8Linear(nn.Module):
    """A linear layer with 8-bit integers, computed as floats, that gives the same values as torchao's
    layer.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, quantised_weight: nn.Linear) -> None:
        super().__init__()
        tensor: Any = quantised_weight.weight
        self.register_buffer(
            "weight", tensor.qdata.to(tensor.dtype)
        )  # (outputs, inputs), integers stored as floats
        self.register_buffer("scale", tensor.scale.view(-1))  # (outputs,)
        self.bias = quantised_weight.bias

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the outputs (..., outputs) of inputs (..., inputs)."""
        scale = (hidden.abs().amax(dim=-1, keepdim=True) / GRID_STEPS).clamp_(
            min=torch.finfo(hidden.dtype).tiny
        )
        rounded_hidden = (hidden * (1 / scale)).round_().clamp_(-128, 127)
        product = functional.linear(rounded_hidden, self.weight) * scale * self.scale
        return product if self.bias is None else product + self.bias


def int8_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy with 8-bit linear layers. Embedding, output layer, routers and norms are shared.

    The experts of a mixture keep float arithmetic on weights that are rounded to the same grid. Raise
    InvalidConfig if the model has no linear layers of torch.
    """
    quantised_model = changed_copy(model, _rounded_experts)
    head = quantised_model.get_output_embeddings()
    if not any(type(module) is nn.Linear and module is not head for module in quantised_model.modules()):
        reason = f"is int8, but a {model.config.model_type} has no linear layers that can be quantised"
        raise InvalidConfig([FieldError("sampling.precision", reason)])
    _quantise(quantised_model, head)
    if model.device.type == "cpu":
        for path, module in list(quantised_model.named_modules()):
            if is_outside_text_model(path):
                continue
            for name, child in module.named_children():
                if type(child) is nn.Linear and child is not head:
                    setattr(module, name, Int8Linear(child))
    return quantised_model


def _quantise(model: nn.Module, head: nn.Module) -> None:
    """Quantise every linear layer except the head with torchao, in place."""
    quantize_(
        model,
        Int8DynamicActivationInt8WeightConfig(),
        filter_fn=lambda module, name: (
            type(module) is nn.Linear and module is not head and not is_outside_text_model(name)
        ),
    )


def _rounded_experts(weight: Tensor) -> Tensor:
    """Return weights (experts, outputs, inputs) rounded to torchao's grid, and other weights unchanged."""
    if weight.ndim != 3:
        return weight
    stacked_layer = nn.Linear(weight.shape[2], weight.shape[0] * weight.shape[1], bias=False, device="meta")
    stacked_layer.weight = nn.Parameter(weight.flatten(0, 1), requires_grad=False)
    quantize_(stacked_layer, Int8WeightOnlyConfig())
    tensor: Any = stacked_layer.weight
    return tensor.dequantize().view(weight.shape)
