"""Completions as padded tensors for the trainer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from worker.types import SamplingMask


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The tokens of B completions, each after its prompt, padded on the right."""

    ids: Tensor
    """Token ids of prompt, completion and padding, (B, S) int64."""
    prompt_lengths: Tensor
    """Number of tokens of each prompt, (B,) int64, on the CPU."""
    lengths: Tensor
    """Number of tokens of each completion, (B,) int64, on the CPU."""
    mask: Tensor
    """Mask (B, T) bool that is True on completion tokens that the policy wrote and False on observations."""
    sampling_masks: tuple[SamplingMask, ...] = ()
    """One sampling mask per completion, or none. Log-probabilities are renormalized over the kept tokens."""
    routes: Tensor | None = None
    """Experts that processed each input token in the sampler, (B, S - 1, L, K), for replay, 0 on padding."""

    def rows(self, index: Tensor | slice) -> "TokenBatch":
        """Return some of the rows, without columns that only other rows need."""
        lengths, prompt_lengths = self.lengths[index], self.prompt_lengths[index]
        total = int((lengths + prompt_lengths).max()) if len(lengths) else 0
        width = int(lengths.max()) if len(lengths) else 0
        device_index = index if isinstance(index, slice) else index.to(self.ids.device)
        row_numbers = range(len(self))[index] if isinstance(index, slice) else index.tolist()
        return TokenBatch(
            self.ids[device_index, :total],
            prompt_lengths,
            lengths,
            self.mask[device_index, :width],
            tuple(self.sampling_masks[row] for row in row_numbers) if self.sampling_masks else (),
            None if self.routes is None else self.routes[device_index, : total - 1],
        )

    def __len__(self) -> int:
        return len(self.ids)


def token_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    pad_id: int,
    device: torch.device | str = "cpu",
    sampling_masks: Sequence[SamplingMask] = (),
    routes: Sequence[NDArray[np.integer]] = (),
    generated: Sequence[NDArray[np.bool_] | None] = (),
) -> TokenBatch:
    """Create the batch of B prompts (repeated for every completion) and their completions, as token ids.

    Tokens that are not `generated` are treated as prompt tokens, which are input but not trained on.
    """
    pairs = zip(prompts, completions, strict=True)
    rows = [torch.tensor([*prompt, *completion]) for prompt, completion in pairs]
    lengths = torch.tensor([len(completion) for completion in completions])
    columns = torch.arange(int(lengths.max()))
    return TokenBatch(
        ids=pad_sequence(rows, batch_first=True, padding_value=pad_id).to(device),
        prompt_lengths=torch.tensor([len(prompt) for prompt in prompts]),
        lengths=lengths,
        mask=_generated_mask(columns < lengths[:, None], generated).to(device),
        sampling_masks=tuple(sampling_masks),
        routes=pad_sequence([torch.from_numpy(row) for row in routes], batch_first=True).to(device)
        if routes
        else None,
    )


def _generated_mask(mask: Tensor, generated: Sequence[NDArray[np.bool_] | None]) -> Tensor:
    """Return the mask (B, T) of completion tokens, without observations."""
    for row, row_generated in enumerate(generated):
        if row_generated is not None:
            mask[row, : len(row_generated)] &= torch.from_numpy(row_generated)
    return mask


def prediction_mask(batch: TokenBatch) -> Tensor:
    """Return a mask (B, S - 1) of the tokens that predict another one: all except the last of each row."""
    columns = torch.arange(batch.ids.shape[1] - 1)
    return (columns < (batch.prompt_lengths + batch.lengths - 1)[:, None]).to(batch.ids.device)


def pad_values(values: Sequence[Sequence[float]], template: TokenBatch) -> Tensor:
    """Return per-token numbers of B completions as one float32 (B, T) tensor, 0 on padding."""
    rows = [torch.as_tensor(row, dtype=torch.float32) for row in values]
    return pad_sequence(rows, batch_first=True).to(template.ids.device)


def microbatches(
    batch: TokenBatch, *, max_rows: int = 0, max_tokens: int = 0, is_packed: bool = False
) -> list[Tensor]:
    """Return row indices of micro-batches of completions of similar length, to keep padding small.

    Each micro-batch holds at most `rows` completions and `tokens` tokens, including padding unless packed,
    but at least one completion. 0 means no limit.
    """
    widths = batch.lengths + batch.prompt_lengths
    order = torch.argsort(widths, stable=True)
    sizes, size, packed_tokens = [], 0, 0
    for width in widths[order].tolist():
        padded_tokens = packed_tokens + width if is_packed else (size + 1) * width
        if size and ((max_rows and size == max_rows) or (max_tokens and padded_tokens > max_tokens)):
            sizes.append(size)
            size = packed_tokens = 0
        size, packed_tokens = size + 1, packed_tokens + width
    return list(order.split([*sizes, size]))
