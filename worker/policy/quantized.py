"""Quantised base weights under an adapter (QLoRA, arXiv:2305.14314): int8 from torchao, NF4 implemented here.

torchao 0.18 no longer has NF4. Its 4-bit integers need GPU kernels and have no gradient.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from transformers import PreTrainedModel

from backend.catalog.policies.text_model import is_outside_text_model

BLOCK_SIZE = 64
"""Number of values that share a scale."""

SCALES_PER_BLOCK = 256
"""Number of scales that share a second-level scale under double quantisation."""

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Quantiles of a normal distribution, scaled to -1..1. Source: QLoRA, appendix E."""


def quantise_base(
    model: PreTrainedModel, kind: Literal["none", "int8", "nf4", "nf4_double"], device: torch.device | str
) -> None:
    """Quantise the weights of the linear layers while they are moved to a device, one at a time.

    Embeddings, the output layer, norms, the fused experts of a mixture and modules for images stay unchanged.
    """
    head = model.get_output_embeddings()
    if kind == "int8":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        is_quantised = lambda module, name: (  # noqa: E731
            type(module) is nn.Linear and module is not head and not is_outside_text_model(name)
        )
        quantize_(model, Int8WeightOnlyConfig(), filter_fn=is_quantised, device=torch.device(device))
    elif kind != "none":
        for path, parent in list(model.named_modules()):
            if is_outside_text_model(path):
                continue
            for name, child in parent.named_children():
                if type(child) is nn.Linear and child is not head and child.weight.numel() % BLOCK_SIZE == 0:
                    setattr(parent, name, NF4Linear(child.to(device), double=kind == "nf4_double"))


class NF4Linear(nn.Linear):
    """A frozen linear layer with 4 bits per weight and a float32 scale per block, in total 4.5 bits per
    weight.

    Double quantisation stores the scales as 8-bit distances from their mean, in total 4.13 bits per weight.
    """

    def __init__(self, layer: nn.Linear, *, double: bool = False) -> None:
        nn.Module.__init__(self)  # this layer has no weight parameter
        self.in_features, self.out_features, self.dtype = (
            layer.in_features,
            layer.out_features,
            layer.weight.dtype,
        )
        blocks = layer.weight.detach().float().view(-1, BLOCK_SIZE)
        largest = blocks.abs().amax(dim=1).clamp_(min=torch.finfo(torch.float32).tiny)
        self.scales = (RoundedScales if double else Scales)(largest)
        scales = self.scales()  # the codes compensate for the rounding of scales
        levels = torch.tensor(NF4, device=blocks.device)
        nearest_levels = (
            torch.bucketize(blocks / scales[:, None], (levels[1:] + levels[:-1]) / 2)
            .to(torch.uint8)
            .flatten()
        )
        self.codes = nn.Parameter(nearest_levels[::2] << 4 | nearest_levels[1::2], requires_grad=False)
        self.bias = layer.bias
        self.requires_grad_(requires_grad=False)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weight (outputs, inputs) that the codes represent, computed on each access."""
        levels = torch.tensor(NF4, device=self.codes.device)
        codes = torch.stack([self.codes >> 4, self.codes & 15], dim=1)
        values = levels[codes.int()].view(-1, BLOCK_SIZE) * self.scales()[:, None]
        return values.to(self.dtype).view(self.out_features, self.in_features)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the outputs (..., outputs) of inputs (..., inputs)."""
        product: Tensor = _Product.apply(hidden, self)
        return product if self.bias is None else product + self.bias


class Scales(nn.Module):
    """The float32 scales of blocks."""

    def __init__(self, scales: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(scales, requires_grad=False)

    def forward(self) -> Tensor:
        """Return the scales, (blocks,) float32."""
        return self.values


class RoundedScales(nn.Module):
    """The scales of blocks as 8-bit integers around their mean, with a float32 step for every 256 scales.

    QLoRA uses 8-bit floats instead, which round more coarsely at the same size.
    """

    def __init__(self, scales: Tensor) -> None:
        super().__init__()
        self.mean = nn.Parameter(scales.mean(), requires_grad=False)
        self.least = nn.Parameter(scales.min(), requires_grad=False)
        residuals = functional.pad(scales - self.mean, (0, -len(scales) % SCALES_PER_BLOCK)).view(
            -1, SCALES_PER_BLOCK
        )
        steps = (residuals.abs().amax(dim=1) / 127).clamp_(min=torch.finfo(torch.float32).tiny)
        codes = (residuals / steps[:, None]).round_().to(torch.int8).flatten()[: len(scales)]
        self.codes = nn.Parameter(codes, requires_grad=False)
        self.steps = nn.Parameter(steps, requires_grad=False)

    def forward(self) -> Tensor:
        """Return the scales, (blocks,) float32, none of which is below the smallest original scale."""
        steps = self.steps.repeat_interleave(SCALES_PER_BLOCK)[: len(self.codes)]
        return (self.mean + self.codes * steps).clamp(min=self.least)


class _Product(torch.autograd.Function):
    """Computes hidden W^T without keeping W or the hidden states, because W is frozen and can be
    recomputed.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, layer: NF4Linear) -> Tensor:
        ctx.layer = layer
        return functional.linear(hidden, layer.weight.to(hidden.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient @ ctx.layer.weight.to(gradient.dtype), None
