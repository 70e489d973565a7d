"""The output layer of a language model, including scales and soft caps of the logits."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.base.errors import FieldError, InvalidConfig

PROBE_TOKENS = 8
PROBE_LOGIT = 60.0
"""Largest logit of the second probe. It exceeds the soft caps of all known models (30 in Gemma 2)."""


class Head(NamedTuple):
    """Computes the logits of hidden states in the same way as the model's forward pass."""

    layer: nn.Linear
    scale: float
    """Factor of the logits (Cohere, Granite, Falcon-H1)."""
    cap: float | None
    """Soft cap, applied as cap * tanh(logits / cap) (Gemma 2). None if there is no cap."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the float32 logits (..., V) of hidden states (..., H) after the final norm."""
        logits: Tensor = self.layer(hidden).float()
        if self.scale != 1:
            logits = logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    @property
    def vocabulary(self) -> int:
        """Number of logits, V."""
        return len(self.layer.weight)


def make_head(model: PreTrainedModel) -> Head:
    """Return the head that the model's config describes. `check_head` verifies it against the model."""
    config: Any = model.config.get_text_config()
    scale = 1.0
    for name in ("logit_scale", "lm_head_multiplier"):
        scale *= getattr(config, name, None) or 1.0
    scale /= getattr(config, "logits_scaling", None) or 1.0
    return Head(model.get_output_embeddings(), scale, getattr(config, "final_logit_softcapping", None))


@torch.no_grad()
def check_head(model: PreTrainedModel, *, name: str) -> None:
    """Raise InvalidConfig if a model's logits differ from those of its head.

    Both are compared twice: with ordinary hidden states, and with hidden states large enough to reveal a soft
    cap. The logits of a probe or of newly initialized weights are too small for that.
    """
    ids = torch.arange(PROBE_TOKENS, device=model.device)[None] % model.get_input_embeddings().weight.shape[0]
    body, head = model.get_decoder(), make_head(model)
    hidden = body(input_ids=ids, use_cache=False).last_hidden_state
    largest = float(head(hidden).abs().max()) if head.cap is None else float(head.layer(hidden).abs().max())
    for factor, tolerance in ((1.0, 0.05), (PROBE_LOGIT / max(largest, 1e-6), 0.02 * PROBE_LOGIT)):

        def enlarge(_body: nn.Module, _inputs: Any, output: Any, by: float = factor) -> Any:
            output.last_hidden_state = output.last_hidden_state * by
            return output

        hook = body.register_forward_hook(enlarge)
        try:
            model_logprobs = model(input_ids=ids, use_cache=False).logits.float().log_softmax(dim=-1)
        finally:
            hook.remove()
        head_logprobs = head(hidden * factor).log_softmax(dim=-1)
        if not torch.allclose(head_logprobs, model_logprobs, rtol=0.02, atol=tolerance):
            kind = model.config.model_type
            reason = f"{name!r} ({kind}) changes its logits in a way that is not supported"
            raise InvalidConfig([FieldError("policy.name", reason)])
