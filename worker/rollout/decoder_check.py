"""Check before training that decoding a policy from a cache matches one forward pass over the text."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from backend.base.errors import FieldError, InvalidConfig
from worker.out_of_memory import is_memory_error
from worker.policy.head import make_head
from worker.policy.model import Policy
from worker.rollout.decoders import Decoder, decoder_for
from worker.rollout.lean_decoder import LeanDecoder

MAX_DEVIATION = {torch.float32: 1e-3, torch.bfloat16: 0.2}
"""Maximum distance of the logits relative to their norm. In bfloat16 a token may be routed differently."""

PROMPT_LENGTHS = (8, 5)
"""Numbers of tokens of the prompts. The shorter prompt is padded."""

CONTINUATION_TOKENS = 3
"""Number of tokens decoded after the prompts."""


@torch.inference_mode()
def check_decoder(policy: Policy, *, name: str) -> None:
    """Raise InvalidConfig if a policy cannot be decoded, or if its logits differ from those in training."""
    model = policy.model
    decoder = decoder_for(model)
    if isinstance(decoder, LeanDecoder):
        return
    try:
        error = _deviation(model, decoder)
    except Exception as why:  # an architecture may raise anything
        if is_memory_error(why):
            raise
        raise _invalid(model, name, f"cannot be decoded with a cache ({type(why).__name__})") from why
    if not error < MAX_DEVIATION[model.dtype]:
        reason = f"samples other tokens from its cache than it learns from (logits off by {error:.1%})"
        raise _invalid(model, name, reason)


def _deviation(model: PreTrainedModel, decoder: Decoder) -> float:
    """Return the larger of the deviations of two completions, one for each prompt."""
    count, longest = model.get_input_embeddings().weight.shape[0], max(PROMPT_LENGTHS)
    prompts = [
        [(7 * row + 3 * position) % count for position in range(length)]
        for row, length in enumerate(PROMPT_LENGTHS)
    ]
    continuation = [11 * position % count for position in range(CONTINUATION_TOKENS)]
    padding = [longest - length for length in PROMPT_LENGTHS]
    ids = [[0] * pad + text for pad, text in zip(padding, prompts, strict=True)]
    mask = [[0] * pad + [1] * (longest - pad) for pad in padding]
    device = model.device
    decoder.prefill(
        torch.tensor(ids, device=device),
        torch.tensor(mask, device=device),
        max_rows=3,
        max_new_tokens=CONTINUATION_TOKENS,
    )
    decoder.select(torch.tensor([0, 0, 1], device=device))
    for token in continuation:
        logits = decoder.step(torch.full((3,), token, device=device))
    return max(
        _distance(model, text + continuation, logits[row]) for text, row in zip(prompts, (1, 2), strict=True)
    )


def _distance(model: PreTrainedModel, text: list[int], logits: Tensor) -> float:
    """Return the distance of logits (V,) after a text from those of one forward pass, relative to their
    norm.
    """
    output = model.get_decoder()(input_ids=torch.tensor([text], device=model.device), use_cache=False)
    real = make_head(model)(output.last_hidden_state[0, -1])
    return float((logits - real).norm() / real.norm())


def _invalid(model: PreTrainedModel, name: str, reason: str) -> InvalidConfig:
    return InvalidConfig([FieldError("policy.name", f"{name!r} ({model.config.model_type}) {reason}")])
