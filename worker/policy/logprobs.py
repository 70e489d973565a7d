"""Log-probabilities and entropies of completion tokens under the current weights."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from worker.policy.head import Head, make_head
from worker.policy.lean import is_lean
from worker.policy.packing import is_packed, packed_hidden, packed_places
from worker.policy.recompute import recomputed_layers
from worker.policy.sampling_mask import MaskPairs, mask_log_mass, mask_pairs
from worker.policy.token_batch import TokenBatch
from worker.policy.tree import prefix_tree, tree_hidden

CHUNK_ELEMENTS = 2**27
"""Maximum number of float32 logits held at once (512 MiB). More are computed in chunks, and again in
backward.
"""


class TokenLogprobs(NamedTuple):
    """Log-probabilities and entropies of the tokens of a batch, 0 on padding."""

    logprobs: Float[Tensor, "B T"]
    """Log-probability of each completion token at the temperature, float32. If the batch has sampling
    masks, it is relative to the tokens that the sampler kept.
    """
    entropy: Float[Tensor, "B T"]
    """Entropy of the complete distribution at the temperature, in nats, float32."""
    kept_mass: Float[Tensor, "B T"]
    """Total probability of the tokens that the sampler kept, 1 if it kept all, without gradient."""


class States(NamedTuple):
    """The hidden states that predict the tokens of a batch."""

    hidden: Tensor
    """Hidden states after the final norm, (M, H)."""
    state_indices: Tensor
    """Index of the hidden state that predicts each token, (N,)."""


def token_logprobs(
    model: PreTrainedModel, batch: TokenBatch, *, temperature: float, entropy_gradient: bool = False
) -> TokenLogprobs:
    """Return the log-probabilities, with gradients, and the entropies of the completions' tokens.

    Only hidden states that predict a completion token reach the output layer. `entropy_gradient` enables
    gradients of the entropy too.
    """
    rows, tokens = batch.mask.nonzero(as_tuple=True)  # (N,) each
    columns = batch.prompt_lengths.to(rows.device)[rows] + tokens
    scores = score_states(
        make_head(model),
        compute_states(model, batch, rows, columns - 1),
        batch.ids[rows, columns],
        temperature=temperature,
        entropy_gradient=entropy_gradient,
        pairs=mask_pairs(batch.sampling_masks).to(rows.device) if batch.sampling_masks else None,
    )
    blank = torch.zeros(batch.mask.shape, device=rows.device)
    return TokenLogprobs(*(blank.index_put((rows, tokens), values) for values in scores))


@torch.no_grad()
def token_energies(model: PreTrainedModel, batch: TokenBatch, *, temperature: float) -> Tensor:
    """Return the squared norm (B, T) of each token's score with respect to the logits, 0 on padding.

        1 - 2 p(token) + sum over all tokens v of p(v)^2

    It needs bounded memory. Source: OTB, arXiv:2602.07078.
    """
    rows, tokens = batch.mask.nonzero(as_tuple=True)  # (N,) each
    columns = batch.prompt_lengths.to(rows.device)[rows] + tokens
    hidden, state_indices = compute_states(model, batch, rows, columns - 1)
    head, targets = make_head(model), batch.ids[rows, columns]
    chunk = max(1, CHUNK_ELEMENTS // head.vocabulary)
    energies = []
    for first in range(0, len(targets), chunk):
        chunk_states = hidden.index_select(0, state_indices[first : first + chunk])
        probabilities = (head(chunk_states) / temperature).softmax(dim=-1)
        token_probabilities = probabilities.gather(1, targets[first : first + chunk].unsqueeze(1)).squeeze(1)
        energies.append(1 - 2 * token_probabilities + probabilities.square().sum(dim=-1))
    blank = torch.zeros(batch.mask.shape, device=rows.device)
    return blank.index_put((rows, tokens), torch.cat(energies)) if energies else blank


class NextTokens(NamedTuple):
    """The complete next-token distributions at the completion tokens of a batch."""

    logprobs: Tensor
    """Log-probabilities at the temperature, (M, V), float32."""
    state_indices: Tensor
    """Index of the distribution that each token was sampled from, (N,)."""
    positions: tuple[Tensor, Tensor]
    """Row and column of each token in (B, T), (N,) each."""


def next_tokens(model: PreTrainedModel, batch: TokenBatch, *, temperature: float) -> NextTokens:
    """Return the distributions that the tokens of a batch are sampled from, with gradients of any order."""
    rows, tokens = batch.mask.nonzero(as_tuple=True)  # (N,) each
    columns = batch.prompt_lengths.to(rows.device)[rows] + tokens
    hidden, state_indices = compute_states(model, batch, rows, columns - 1)
    logits = make_head(model)(hidden)
    return NextTokens((logits / temperature).log_softmax(dim=-1), state_indices, (rows, tokens))


def compute_states(model: PreTrainedModel, batch: TokenBatch, rows: Tensor, columns: Tensor) -> States:
    """Return the states of input tokens (N,), given by row and column, from packing, prefix tree or padded
    rows.
    """
    if is_packed(model):
        hidden = packed_hidden(model, batch)[packed_places(batch, rows, columns)]
        return States(hidden, torch.arange(len(rows), device=rows.device))
    return (tree_states if suits_tree(model, batch) else row_states)(model, batch, rows, columns)


def compute_by_rows(model: PreTrainedModel) -> None:
    """Disable the prefix tree for a model and its future copies.

    Two models whose log-probabilities are compared must round in the same way. Otherwise a KL of 0 would have
    a gradient.
    """
    model.computes_by_rows = True


def suits_tree(model: PreTrainedModel, batch: TokenBatch) -> bool:
    """Return whether the prefix tree is faster, which holds on a CPU while plain attention has few scores."""
    if getattr(model, "computes_by_rows", False):
        return False
    scores = len(batch) * batch.ids.shape[1] ** 2 * model.config.get_text_config().num_attention_heads
    on_cpu = model.device.type == "cpu" and model.dtype == torch.float32
    return on_cpu and scores <= CHUNK_ELEMENTS and is_lean(model)


def row_states(model: PreTrainedModel, batch: TokenBatch, rows: Tensor, columns: Tensor) -> States:
    """Return states from the model's forward pass. Right padding needs no mask with causal attention."""
    with recomputed_layers(model):
        output = model.get_decoder()(input_ids=batch.ids[:, :-1], use_cache=False)
    return States(output.last_hidden_state[rows, columns], torch.arange(len(rows), device=rows.device))


def tree_states(model: PreTrainedModel, batch: TokenBatch, rows: Tensor, columns: Tensor) -> States:
    """Return states from the prefix tree, one for each prefix that predicts a token."""
    tree = prefix_tree(batch)
    predicting_nodes, state_indices = torch.unique(tree.nodes[rows, columns], return_inverse=True)
    return States(tree_hidden(model, tree).index_select(0, predicting_nodes), state_indices)


class DrawnLogprobs(torch.autograd.Function):
    """Log-probabilities (N,) of targets (N,), and entropies (M,) without gradient, of logits (M, V).

    `state_indices` (N,) holds the index of each target's distribution. Separate operations would compute the
    same values, but their backward pass needs three additional tensors as large as the logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, state_indices: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """See the class."""
        logprobs = logits.log_softmax(dim=-1)
        probabilities = logprobs.exp()
        target_indices = state_indices * logits.shape[1] + targets
        target_logprobs = logprobs.view(-1).index_select(0, target_indices)
        entropy = -logprobs.mul_(probabilities).sum(dim=-1)
        ctx.save_for_backward(probabilities, state_indices, target_indices)
        ctx.mark_non_differentiable(entropy)
        return target_logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradients of the logits (M, V): the targets' gradients minus probabilities times row
        sums.
        """
        probabilities, state_indices, target_indices = ctx.saved_tensors
        row_gradients = gradient.new_zeros(len(probabilities)).index_add_(0, state_indices, gradient)
        logit_gradients = probabilities * -row_gradients.unsqueeze(1)
        logit_gradients.view(-1).index_add_(0, target_indices, gradient)
        return logit_gradients, None, None


def score_states(
    head: Head,
    states: States,
    targets: Tensor,
    *,
    temperature: float,
    entropy_gradient: bool,
    pairs: MaskPairs | None = None,
) -> tuple[Tensor, ...]:
    """Return log-probabilities, entropies and kept mass (N,) of targets (N,), using bounded memory."""

    def score(
        hidden: Tensor, state_indices: Tensor, targets: Tensor, pairs: MaskPairs | None
    ) -> tuple[Tensor, ...]:
        logits = head(hidden) if temperature == 1 else head(hidden) / temperature
        if pairs is None and not entropy_gradient:
            target_logprobs, entropy = DrawnLogprobs.apply(logits, state_indices, targets)
            return target_logprobs, entropy.index_select(0, state_indices), torch.ones_like(target_logprobs)
        logprobs = logits.log_softmax(dim=-1)  # (M, V)
        # Without an entropy term the entropy is only a metric, so no gradient is kept.
        entropy_logprobs = logprobs if entropy_gradient else logprobs.detach()
        entropy = -(entropy_logprobs.exp() * entropy_logprobs).sum(dim=-1)
        target_indices = state_indices * logprobs.shape[1] + targets
        target_logprobs = logprobs.view(-1).index_select(0, target_indices)
        entropy = entropy.index_select(0, state_indices)
        if pairs is None:
            return target_logprobs, entropy, torch.ones_like(entropy)
        log_mass = mask_log_mass(logprobs, state_indices, pairs)
        # detach: the mass is only a metric
        return target_logprobs - log_mass, entropy, log_mass.detach().exp()

    chunk_size = max(1, CHUNK_ELEMENTS // head.vocabulary)
    if len(states.hidden) <= chunk_size:
        return score(*states, targets, pairs)
    hidden = states.hidden.index_select(0, states.state_indices)  # (N, H)
    chunk_results = []
    for start in range(0, len(hidden), chunk_size):
        hidden_chunk = hidden[start : start + chunk_size]
        chunk_indices, chunk_targets = (
            torch.arange(len(hidden_chunk), device=hidden_chunk.device),
            targets[start : start + chunk_size],
        )
        chunk_pairs = None if pairs is None else pairs.between(start, start + len(hidden_chunk))
        chunk_results.append(
            checkpoint(score, hidden_chunk, chunk_indices, chunk_targets, chunk_pairs, use_reentrant=False)
        )
    return tuple(torch.cat(column) for column in zip(*chunk_results, strict=True))
