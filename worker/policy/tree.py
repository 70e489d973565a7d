"""Training forward over the tree of prefixes: what several completions have in common is computed once.

The G completions of a prompt share the prompt, and often their first words; a policy that is sure of most
tokens writes some of them word for word alike. Every distinct prefix is one node; linear layers run over
nodes, only attention spreads them out into rows. Log-probabilities and gradients are those of a padded batch.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from worker.policy.lean import LeanLayer, LeanModel
from worker.policy.recompute import layer_by_layer
from worker.policy.token_batch import TokenBatch


class PrefixTree(NamedTuple):
    """The distinct prefixes of a batch: N nodes, of which R rows are the longest paths."""

    tokens: Tensor
    """(N,) the last token of each prefix."""
    positions: Tensor
    """(N,) its position."""
    paths: Tensor
    """(R, S) the nodes along each row that is needed; padded with node 0."""
    seats: Tensor
    """(N,) where each node stands in `paths`, flattened."""
    nodes: Tensor
    """(B, S) the node after each input token of the batch; -1 on padding."""


def prefix_tree(batch: TokenBatch) -> PrefixTree:
    """The tree of all prefixes that predict something: every row without its last token."""
    ids = batch.ids[:, :-1].cpu().numpy()
    lengths = (batch.prompt_lengths + batch.lengths - 1).numpy()
    nodes = numbered(ids, lengths)
    real = np.flatnonzero(nodes.ravel() >= 0)
    _, first = np.unique(nodes.ravel()[real], return_index=True)
    seats = real[first]  # (N,) the first place of each node in the batch
    rows, columns = np.divmod(seats, ids.shape[1])
    needed, row_of_seat = np.unique(rows, return_inverse=True)
    places = row_of_seat * ids.shape[1] + columns
    device = batch.ids.device
    tokens, paths = ids.ravel()[seats], np.maximum(nodes[needed], 0)
    on_device = (torch.from_numpy(part).to(device) for part in (tokens, columns, paths, places, nodes))
    return PrefixTree(*on_device)


def numbered(ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number (B, S) for the prefix up to each token, equal for equal prefixes; -1 from the row's end on."""
    nodes = np.full(ids.shape, -1)
    before, count = np.zeros(len(ids), dtype=np.int64), 0
    for column in range(ids.shape[1]):
        rows = np.flatnonzero(lengths > column)
        _, member = np.unique((before[rows] << 32) + ids[rows, column], return_inverse=True)
        nodes[rows, column] = before[rows] = count + member
        count += int(member.max()) + 1 if len(rows) else 0
    return nodes


def tree_hidden(model: PreTrainedModel, tree: PrefixTree) -> Tensor:
    """The model's last hidden state (N, H), after the final norm, of every node."""
    lean = LeanModel(model)
    rotations = lean.rotations(tree.positions)
    mask = causal(tree.paths.shape[1], groups=lean.heads // lean.kv_heads, like=lean.head.weight)
    hidden = lean.embed(tree.tokens)
    computed = layer_by_layer(model)

    def output(layer: LeanLayer, hidden: Tensor) -> Tensor:
        return layer.finish(hidden, attend(layer, hidden, rotations, tree, mask))

    for layer in lean.layers:
        hidden = computed(output, layer, hidden)
    return lean.normed(hidden)


def attend(
    layer: LeanLayer, hidden: Tensor, rotations: tuple[Tensor, Tensor], tree: PrefixTree, mask: Tensor
) -> Tensor:
    """Mixed values (N, heads * D): each node attends to the prefixes of itself."""
    rows, length = tree.paths.shape
    heads = layer.project(hidden, *rotations)
    spread = [
        part.flatten(1)
        .index_select(0, tree.paths.view(-1))
        .view(rows, length, layer.kv_heads, -1, layer.width)
        for part in heads
    ]  # (R, S, KV heads, heads per KV head or 1, D)
    queries, keys, values = (part.permute(0, 2, 3, 1, 4).flatten(2, 3).flatten(0, 1) for part in spread)
    scores = torch.baddbmm(
        mask, queries, keys.transpose(1, 2), alpha=layer.scaling
    )  # (R * KV, heads/KV * S, S)
    mixed = torch.bmm(torch.softmax(scores, dim=-1), values)
    mixed = mixed.view(rows, layer.kv_heads, -1, length, layer.width).permute(0, 3, 1, 2, 4)
    return mixed.reshape(rows * length, -1).index_select(0, tree.seats)


def causal(length: int, *, groups: int, like: Tensor) -> Tensor:
    """The causal mask added to the scores of `groups` stacked query heads, (groups * S, S): -inf on later
    tokens.
    """
    return (
        torch.full((length, length), -torch.inf, dtype=like.dtype, device=like.device)
        .triu_(1)
        .repeat(groups, 1)
    )
