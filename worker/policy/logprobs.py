"""Log-probabilities and entropies of completion tokens under the current weights."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from worker.rollout.batching import TokenBatch

CHUNK_ELEMENTS = 2**27
"""Logits held at once, in float32 elements (512 MiB); more are computed chunk by chunk, again in backward."""


class TokenLogprobs(NamedTuple):
    """What the policy thinks of the tokens of a batch; 0 on padding."""

    logprobs: Float[Tensor, "B T"]
    """Log-probability of each completion token at the temperature, float32."""
    entropy: Float[Tensor, "B T"]
    """Entropy of the distribution it was drawn from at the temperature (whole vocabulary), nats, float32."""


def token_logprobs(
    model: PreTrainedModel, batch: TokenBatch, *, temperature: float, entropy_gradient: bool = False
) -> TokenLogprobs:
    """Log-probabilities and entropies of the completions; gradients flow through the log-probabilities.

    Rows are padded on the right only, so causal attention needs no mask. Only the hidden states that predict
    a completion token reach the output layer. `entropy_gradient` lets gradients flow through the entropy too.
    """
    rows, tokens = batch.mask.nonzero(as_tuple=True)  # (N,) each
    columns = batch.prompt_lengths.to(rows.device)[rows] + tokens
    output = model.get_decoder()(input_ids=batch.ids[:, :-1], use_cache=False)
    hidden = output.last_hidden_state[rows, columns - 1]  # (N, H)
    head = model.get_output_embeddings()
    scores = scored(head, hidden, batch.ids[rows, columns], temperature, entropy_gradient=entropy_gradient)
    blank = hidden.new_zeros(batch.mask.shape, dtype=torch.float32)
    return TokenLogprobs(*(blank.index_put((rows, tokens), values) for values in scores))


def scored(
    head: nn.Linear, hidden: Tensor, targets: Tensor, temperature: float, *, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (N,) of targets (N,) from hidden states (N, H), in bounded memory."""

    def score(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(hidden).float()
        logprobs = (logits if temperature == 1 else logits / temperature).log_softmax(dim=-1)  # (N, V)
        # without an entropy term the entropy is a figure to look at: no gradient is kept for it
        shown = logprobs if entropy_gradient else logprobs.detach()
        entropy = -(shown.exp() * shown).sum(dim=-1)
        return logprobs.gather(1, targets[:, None]).squeeze(1), entropy

    chunk = max(1, CHUNK_ELEMENTS // len(head.weight))
    if len(hidden) <= chunk:
        return score(hidden, targets)
    parts = [
        checkpoint(score, hidden[first : first + chunk], targets[first : first + chunk], use_reentrant=False)
        for first in range(0, len(hidden), chunk)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
