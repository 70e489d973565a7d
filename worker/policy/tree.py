"""Training forward pass over the tree of prefixes, in which shared prefixes are computed once.

The G completions of a prompt share the prompt, and often their first words. A policy that is certain of most
tokens writes identical completions. Every distinct prefix is one node. Linear layers run over nodes, and only
attention expands them into rows. Log-probabilities and gradients equal those of a padded
batch.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from worker.policy.lean import Heads, LeanLayer, LeanModel
from worker.policy.recompute import layer_caller
from worker.policy.token_batch import TokenBatch


class PathBlock(NamedTuple):
    """Paths of similar length whose first part is already computed by other paths."""

    paths: Tensor
    """Nodes along each path, (R, S), padded with node 0."""
    first: int
    """First column for which any of these paths is needed."""


class PrefixTree(NamedTuple):
    """The N distinct prefixes of a batch as nodes, all of which are on the paths of the blocks."""

    tokens: Tensor
    """Last token of each prefix, (N,)."""
    positions: Tensor
    """Position of each prefix's last token, (N,)."""
    blocks: tuple[PathBlock, ...]
    """Blocks of the longest paths. Each path ends with the nodes for which it is needed."""
    seats: Tensor
    """Position (N,) of each node in `paths[:, first:]` of all blocks, flattened and concatenated."""
    nodes: Tensor
    """Node after each input token of the batch, (B, S), -1 on padding."""


MIN_SAVED = 2**13
"""Minimum number of scores per query head that splitting a block must save. A block's overhead costs about
half.
"""


def prefix_tree(batch: TokenBatch) -> PrefixTree:
    """Build the tree of all prefixes that predict a token, which are the rows without their last tokens."""
    ids = batch.ids[:, :-1].cpu().numpy()
    lengths = (batch.prompt_lengths + batch.lengths - 1).numpy()
    nodes = number_prefixes(ids, lengths)
    token_positions = np.flatnonzero(nodes.ravel() >= 0)
    _, first_position = np.unique(nodes.ravel()[token_positions], return_index=True)
    rows, columns = np.divmod(
        token_positions[first_position], ids.shape[1]
    )  # (N,), the first position of each node in the batch
    used_rows, first_nodes = np.unique(rows, return_index=True)
    blocks, seats, seat_count = [], np.zeros(len(rows), dtype=np.int64), 0
    # In node order, the columns of a row ascend. The first is the column at which the row leaves earlier
    # rows.
    for members in group_alike_paths(columns[first_nodes], lengths[used_rows]):
        first, width = int(columns[first_nodes][members].min()), int(lengths[used_rows][members].max())
        member_numbers = np.full(len(ids), -1)
        member_numbers[used_rows[members]] = np.arange(len(members))
        in_block = member_numbers[rows] >= 0
        seats[in_block] = (
            seat_count + member_numbers[rows[in_block]] * (width - first) + columns[in_block] - first
        )
        seat_count += len(members) * (width - first)
        blocks.append((np.maximum(nodes[used_rows[members], :width], 0), first))
    device = batch.ids.device

    def on_device(array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return PrefixTree(
        tokens=on_device(ids[rows, columns]),
        positions=on_device(columns),
        blocks=tuple(PathBlock(on_device(paths), first) for paths, first in blocks),
        seats=on_device(seats),
        nodes=on_device(nodes),
    )


def group_alike_paths(first: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Group R paths into blocks of path indices, so that few unneeded scores are computed.

    Each path is needed from column `first` (R,) on. A block computes a rectangle of scores: all columns
    between the first and the last that any of its paths needs, times all earlier columns.
    """
    return _split(np.arange(len(first)), first, lengths)


def _split(
    rows: NDArray[np.int64], first: NDArray[np.int64], lengths: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    best_saving, halves = MIN_SAVED, None
    for order in (rows[np.argsort(values[rows], kind="stable")] for values in (first, lengths)):
        prefix_costs = _count_scores(first[order], lengths[order])
        suffix_costs = _count_scores(first[order][::-1], lengths[order][::-1])[::-1]
        unsplit_cost, split_costs = prefix_costs[-1], prefix_costs[:-1] + suffix_costs[1:]
        if len(split_costs) and unsplit_cost - split_costs.min() > best_saving:
            split_position = int(split_costs.argmin()) + 1
            best_saving, halves = (
                unsplit_cost - split_costs.min(),
                (order[:split_position], order[split_position:]),
            )
    if halves is None:
        return [np.sort(rows)]
    return [block for half in halves for block in _split(half, first, lengths)]


def _count_scores(first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of scores (R,) that blocks of the first 1, 2, ... R paths compute."""
    widest = np.maximum.accumulate(lengths)
    return np.arange(1, len(first) + 1) * (widest - np.minimum.accumulate(first)) * widest


def number_prefixes(ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the prefix up to each token, (B, S), equally for equal prefixes, and -1 after the row's end."""
    nodes = np.full(ids.shape, -1)
    previous_nodes, count = np.zeros(len(ids), dtype=np.int64), 0
    for column in range(ids.shape[1]):
        rows = np.flatnonzero(lengths > column)
        _, member_indices = np.unique((previous_nodes[rows] << 32) + ids[rows, column], return_inverse=True)
        nodes[rows, column] = previous_nodes[rows] = count + member_indices
        count += int(member_indices.max()) + 1 if len(rows) else 0
    return nodes


def tree_hidden(model: PreTrainedModel, tree: PrefixTree) -> Tensor:
    """Return the model's last hidden state (N, H), after the final norm, of every node."""
    lean = LeanModel(model)
    rotations = lean.rotations(tree.positions)
    groups, template = lean.heads // lean.kv_heads, lean.head.weight
    masks = [
        causal_mask(block.paths.shape[1], block.first, groups=groups, template=template)
        for block in tree.blocks
    ]
    hidden = lean.embed(tree.tokens)
    run_layer = layer_caller(model)

    def output(decoder_layer: Any, hidden: Tensor) -> Tensor:
        layer = LeanLayer(
            decoder_layer, lean
        )  # create it here, because gradients of copies that are joined earlier wait for the last layer
        heads = layer.project(hidden, *rotations)
        block_outputs = [attend(layer, heads, *block) for block in zip(tree.blocks, masks, strict=True)]
        joined_outputs = block_outputs[0] if len(block_outputs) == 1 else torch.cat(block_outputs)
        return layer.finish(hidden, joined_outputs.index_select(0, tree.seats))

    for decoder_layer in lean.body.layers:
        hidden = run_layer(output, decoder_layer, hidden)
    return lean.final_norm(hidden)


def attend(layer: LeanLayer, heads: Heads, block: PathBlock, mask: Tensor) -> Tensor:
    """Return the mixed values (R * (S - first), heads * D) of a block, whose nodes attend to their
    prefixes.
    """
    rows, length = block.paths.shape
    count = length - block.first
    expanded = [
        tensor.flatten(1)
        .index_select(0, paths.reshape(-1))
        .view(*paths.shape, layer.kv_heads, -1, layer.width)
        for tensor, paths in zip(
            heads, (block.paths[:, block.first :], block.paths, block.paths), strict=True
        )
    ]  # (R, S - first or S, KV heads, heads per KV head or 1, D)
    queries, keys, values = (tensor.permute(0, 2, 3, 1, 4).flatten(2, 3).flatten(0, 1) for tensor in expanded)
    scores = torch.baddbmm(
        mask, queries, keys.transpose(1, 2), alpha=layer.scaling
    )  # (R * KV, heads/KV * (S - first), S)
    outputs = torch.bmm(torch.softmax(scores, dim=-1), values)
    outputs = outputs.view(rows, layer.kv_heads, -1, count, layer.width).permute(0, 3, 1, 2, 4)
    return outputs.reshape(rows * count, -1)


def causal_mask(length: int, first: int, *, groups: int, template: Tensor) -> Tensor:
    """Return the mask (groups * (S - first), S) that is added to the scores of `groups` stacked query heads.

    The mask is -inf on later tokens. Queries begin at column `first`.
    """
    mask = torch.full((length, length), -torch.inf, dtype=template.dtype, device=template.device).triu_(1)
    return mask[first:].repeat(groups, 1)
