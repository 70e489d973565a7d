"""Packing: concatenate the texts of a micro-batch in a single row, without padding.

Positions restart with each text. From them transformers restricts attention to one text, with a block mask
for flex attention or cumulative lengths for flash attention. Source: Krell et al., arXiv:2107.02027.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import is_flash_attn_2_available

from backend.base.errors import FieldError, InvalidConfig
from backend.catalog.policies.architectures import packing_error
from worker.policy.prompt_form import shorten
from worker.policy.recompute import recomputed_layers
from worker.policy.token_batch import TokenBatch, prediction_mask, token_batch

PROBE_LENGTHS = (3, 5, 4, 4, 3)
"""Numbers of tokens of the probe's texts, which are so short that a leaking state would reach most tokens."""

MAX_DEVIATION = {torch.float32: 1e-3, torch.bfloat16: 0.05}
"""Maximum deviation of the probe's hidden states by rounding, relative to their norm."""

MAX_LEAK = 1e-3
"""Maximum deviation if other texts precede the same text, in which case rounding hardly differs."""


def enable_packing(model: PreTrainedModel, setting: Literal["auto", "on", "off"]) -> str:
    """Enable packing of a micro-batch's texts if the results are correct, for the model and its future
    copies.

    `auto` packs on a GPU. Return the reason why packing is off, or "" if it is on or was not requested.
    Raise InvalidConfig if packing is `on` and not possible.
    """
    if setting == "off" or (setting == "auto" and model.device.type != "cuda"):
        return ""
    reason = packing_error(model.config.to_dict()) or _pack(model)
    if reason and setting == "on":
        raise InvalidConfig([FieldError("resources.packing", f"is on, but {reason}: expected auto")])
    return reason


def is_packed(model: object) -> bool:
    """Return whether `enable_packing` has enabled packing."""
    return hasattr(model, "packed_attention")


def packed_hidden(model: Any, batch: TokenBatch) -> Tensor:
    """Return hidden states (N, H), after the final norm, of all tokens except each text's last, in row
    order.
    """
    input_mask = prediction_mask(batch)

    @contextmanager
    def attention() -> Iterator[None]:
        config: Any = model.get_decoder().config
        previous_attention, config._attn_implementation = config._attn_implementation, model.packed_attention  # noqa: SLF001
        try:
            yield
        finally:
            config._attn_implementation = previous_attention  # noqa: SLF001

    with attention(), recomputed_layers(model, attention):
        output = model.get_decoder()(
            input_ids=batch.ids[:, :-1][input_mask][None],
            position_ids=input_mask.nonzero()[:, 1][None],
            use_cache=False,
        )
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


def packed_places(batch: TokenBatch, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the positions (N,) in the packed row of input tokens given by row and column."""
    lengths = (batch.prompt_lengths + batch.lengths - 1).to(rows.device)
    return (lengths.cumsum(0) - lengths)[rows] + columns


def _pack(model: Any) -> str:
    """Enable packing if the probe succeeds, else return the reason."""
    model.packed_attention = _choose_attention(model)
    try:
        reason = _probe(model)
    except Exception as error:  # noqa: BLE001 - a kernel may raise any error about shapes, types and compilers
        reason = f"{model.packed_attention} failed: {shorten(str(error))}"
    if reason:
        del model.packed_attention
    return reason


def _choose_attention(model: Any) -> str:
    """Return the best attention for packing: flash, flex, or the model's attention with a full mask."""
    if model.device.type == "cuda":
        if model.dtype == torch.bfloat16 and model._supports_flash_attn and is_flash_attn_2_available():  # noqa: SLF001
            return "flash_attention_2"
        if model._supports_flex_attn:  # noqa: SLF001
            return "flex_attention"
    return str(model.get_decoder().config._attn_implementation)  # noqa: SLF001


def _probe(model: PreTrainedModel) -> str:
    """Compare packed texts with the same texts alone and next to others, and describe a difference, else
    "".
    """
    texts = [list(range(1, 1 + length)) for length in PROBE_LENGTHS]
    packed_states = _packed_states(model, texts)
    trained_weight = next((weight for weight in model.parameters() if weight.requires_grad), None)
    if trained_weight is not None:  # a kernel may lack a gradient
        torch.autograd.grad(packed_states.float().sum(), [trained_weight], allow_unused=True)
    with torch.no_grad():
        alone = torch.cat([_packed_states(model, [text]) for text in texts])
        with_neighbour = _packed_states(
            model, [text[::-1] if row % 2 else text for row, text in enumerate(texts)]
        )
    is_unchanged = torch.tensor(
        [not row % 2 for row, length in enumerate(PROBE_LENGTHS) for _ in range(length - 1)]
    )
    kind = model.config.model_type
    if (deviation := _deviation(packed_states, alone)) > MAX_DEVIATION[model.dtype]:
        return f"a {kind} gives other states for packed texts than for each alone (by {deviation:.2g})"
    if (deviation := _deviation(packed_states[is_unchanged], with_neighbour[is_unchanged])) > MAX_LEAK:
        return f"in a {kind} the states of a text depend on the texts before it (by {deviation:.2g})"
    return ""


def _packed_states(model: PreTrainedModel, texts: list[list[int]]) -> Tensor:
    prompts, completions = [text[:1] for text in texts], [text[1:] for text in texts]
    return packed_hidden(model, token_batch(prompts, completions, pad_id=0, device=model.device))


def _deviation(actual: Tensor, expected: Tensor) -> float:
    """Return the mean distance of the states, relative to their mean norm."""
    actual, expected = actual.detach().float(), expected.float()  # detach: for comparison
    return float((actual - expected).norm(dim=-1).mean() / expected.norm(dim=-1).mean())
