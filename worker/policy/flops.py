"""Count the floating-point operations that a model needs, and look up the peak rates of known GPUs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from backend.catalog.policies.text_model import is_outside_text_model

PEAK_FLOPS_BY_GPU = {
    "B200": (2250e12, 75e12),
    "H200": (989e12, 67e12),
    "H100 NVL": (835e12, 60e12),
    "H100 PCIe": (756e12, 51e12),
    "H100": (989e12, 67e12),
    "A100": (312e12, 19.5e12),
    "L40S": (362e12, 91.6e12),
    "L4": (121e12, 30.3e12),
    "RTX 4090": (165e12, 82.6e12),
}
"""Peak FLOP/s of dense bfloat16 and float32 matrix products from NVIDIA's data sheets, by GPU name. The
first key whose words the name contains is used.
"""


def peak_flops(device: torch.device, dtype: torch.dtype) -> float | None:
    """Return the device's peak FLOP/s at this precision, or None if it is unknown."""
    if device.type != "cuda":
        return None
    return find_peak_flops(torch.cuda.get_device_name(device), dtype)


def find_peak_flops(name: str, dtype: torch.dtype) -> float | None:
    """Return the peak FLOP/s of the GPU with this name, or None if it is unknown."""
    words = name.split()
    for gpu, (narrow, wide) in PEAK_FLOPS_BY_GPU.items():
        if all(
            any(word == expected_word or word.startswith(f"{expected_word}-") for word in words)
            for expected_word in gpu.split()
        ):
            return wide if dtype == torch.float32 else narrow
    return None


class ModelFlops:
    """The number of operations that a causal language model needs for some sequences.

        forward     2 for each weight and token, 4 * heads * head size for each token that a token attends to
        backward    the same for the inputs' gradients, and 2 for each token and trained weight for its own

    The input embedding is a look-up without operations. In a mixture only the experts that process a token
    count. Recomputation is not counted. Source: PaLM, arXiv:2204.02311, appendix B.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config: Any = model.config.get_text_config()
        embedding = model.get_input_embeddings().weight
        experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None) or 1
        active_share = min(1.0, (getattr(config, "num_experts_per_tok", None) or experts) / experts)
        self.weights = self.trained_weights = 0.0
        head = model.get_output_embeddings()
        is_tied = head is not None and head.weight is embedding
        for name, weight in model.named_parameters():
            if weight.ndim < 2 or (weight is embedding and not is_tied) or is_outside_text_model(name):
                continue
            count = weight.numel() * (active_share if ".experts." in name else 1.0)
            self.weights += count
            self.trained_weights += count if weight.requires_grad else 0.0
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.per_pair = 4.0 * config.num_attention_heads * width
        self.windows = _windows(config)

    def forward(self, lengths: Sequence[int], cached_tokens: Sequence[int] | int = 0) -> float:
        """Return the operations of a forward pass over sequences (B,), of which `cached_tokens` tokens are
        cached.
        """
        full_lengths = np.asarray(lengths, dtype=np.float64)
        cached_lengths = np.broadcast_to(np.asarray(cached_tokens, dtype=np.float64), full_lengths.shape)
        return 2 * self.weights * float((full_lengths - cached_lengths).sum()) + self._attention(
            full_lengths, cached_lengths
        )

    def learn(self, lengths: Sequence[int]) -> float:
        """Return the operations of a forward and a backward pass over sequences (B,)."""
        full_lengths = np.asarray(lengths, dtype=np.float64)
        per_token = 4 * self.weights + 2 * self.trained_weights
        return per_token * float(full_lengths.sum()) + 3 * self._attention(
            full_lengths, np.zeros_like(full_lengths)
        )

    def _attention(self, full_lengths: NDArray[np.float64], cached_lengths: NDArray[np.float64]) -> float:
        pairs = sum(
            float((_pairs(full_lengths, window) - _pairs(cached_lengths, window)).sum())
            for window in self.windows
        )
        return self.per_pair * pairs


def _windows(config: Any) -> list[float]:
    """Return the attention window in tokens of each layer that has attention."""
    window = getattr(config, "sliding_window", None) or float("inf")
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    window_by_kind = {"full_attention": float("inf"), "attention": float("inf"), "sliding_attention": window}
    return [window_by_kind[kind] for kind in kinds if kind in window_by_kind]


def _pairs(length: NDArray[np.float64], window: float) -> NDArray[np.float64]:
    """Return the number of pairs of a token and a token that it attends to, including itself."""
    clipped_length = np.minimum(length, window)
    return clipped_length * (clipped_length + 1) / 2 + (length - clipped_length) * (
        0.0 if window == float("inf") else window
    )
