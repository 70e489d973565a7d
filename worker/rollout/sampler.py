"""Sample a step's completions, all groups in one batch, with the log-probabilities actually used."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from worker.policy.model import Policy
from worker.policy.routing import RouterWatch, routers
from worker.rollout.alternatives import AlternativesLog
from worker.rollout.decoders import Decoder, decoder_for
from worker.rollout.engine import Interrupted, PolicySampler, SamplingLike, make_completion
from worker.rollout.graph_decoder import MIN_PLACES, round_up
from worker.rollout.routes import RoutesLog
from worker.rollout.row_limit import RowLimit
from worker.rollout.sampling_log import SamplingMaskLog
from worker.rollout.sharing import UnfinishedRows
from worker.types import Completion


class Cadence(NamedTuple):
    """Settings for sharing and checking decoder rows."""

    share: bool
    """True if completions with the same tokens so far share a decoder row."""
    interval: int
    """Number of tokens between two checks for completions that have ended."""


def choose_cadence(device: torch.device) -> Cadence:
    """Return the cadence for a device. A CPU is slowed down by every row, a GPU by every wait of the host."""
    return Cadence(share=True, interval=1) if device.type == "cpu" else Cadence(share=False, interval=16)


@dataclass(frozen=True, slots=True)
class Decoding:
    """Rules for choosing tokens. Temperature 0 chooses the most likely token, and the lowest id in a tie."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


class SampledTokens(NamedTuple):
    """Results of one batch, with tokens as the first dimension. Entries after a row's end are meaningless."""

    ids: Tensor
    """Token ids, (T, B) int64."""
    logprobs: Tensor
    """Log-probabilities under the sampling distribution, (T, B) float32."""
    entropies: Tensor
    """Entropies in nats, (T, B) float32."""

    @classmethod
    def blank(cls, tokens: int, rows: int, device: torch.device) -> "SampledTokens":
        """Return zeros to be overwritten."""
        ids = torch.zeros(tokens, rows, dtype=torch.int64, device=device)
        return cls(ids, torch.zeros(ids.shape, device=device), torch.zeros(ids.shape, device=device))


class Notes(NamedTuple):
    """Optional records besides the tokens."""

    masks: SamplingMaskLog | None
    routes: RoutesLog | None
    alternatives: AlternativesLog | None


POLL_EVERY_TOKENS = 16
"""Number of tokens between two checks of whether the completions are still needed."""


class Sampler(PolicySampler):
    """Samples completions from a policy.

    The random numbers of a call come from one CPU generator before the first token: token t of row b depends
    only on number (t, b). So neither the device nor rows that end earlier change what a row samples.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        rows_at_once: int = 0,
        limit: RowLimit | None = None,
        is_unwanted: Callable[[], bool] = lambda: False,
        keep_mask: bool = False,
        routes: bool = False,
        alternatives: int = 0,
        version: int = 0,
    ) -> None:
        """Create a sampler.

        `rows_at_once` limits the rows decoded together to complete groups, or to what fits a GPU if 0.
        `limit` is the number of rows that was found to fit after memory ran out, which samplers may share.
        `version` is the version of the policy's weights.

        `is_unwanted` is polled every few tokens. If it returns true, `sample` raises Interrupted.
        `keep_mask` records the ids that top-p and top-k left at each token. `routes` records the experts that
        process each token, if the policy is a mixture of experts. `alternatives` is the number of most likely
        tokens to record.
        """
        self.policy = policy
        self.rows_at_once = rows_at_once
        self.limit = limit or RowLimit()
        self.is_unwanted = is_unwanted
        self.keep_mask = keep_mask
        self.alternatives = alternatives
        self.version = version
        self.routes = routes and bool(routers(policy.model))

    @torch.inference_mode()
    def generate(
        self,
        prompt_ids: Sequence[list[int]],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        stops: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """Sample `group_size` completions of every sequence of token ids.

        A sequence must fit the context with its completions. Each completion ends with one of the policy's
        stop tokens, or is cut after one of `stops`.
        """
        uniforms = self._uniforms(sampling.max_new_tokens, len(prompt_ids) * group_size, generator)
        decoder = decoder_for(self.policy.model)
        max_length = max(map(len, prompt_ids), default=0) + sampling.max_new_tokens
        rows = self.rows_at_once or max_rows(self.policy.model, sampling, tokens=max_length)

        def sample_rows(first: int, last: int) -> list[Completion]:
            prompts = list(prompt_ids[first // group_size : (last - 1) // group_size + 1])
            with RouterWatch(self.policy.model if self.routes else nn.Module()) as watch:
                notes = self._notes(watch, sampling, rows=last - first)
                sampled_tokens = self._decode(
                    decoder, prompts, sampling, uniforms[:, first:last], notes, stops
                )
            group_rows = (last - first) // len(prompts)
            return [
                completion
                for group in self._completions(sampled_tokens, group_rows, notes, [*map(len, prompts)], stops)
                for completion in group
            ]

        row_chunks = self.limit.run(
            uniforms.shape[1], group_size, limit=max(rows, group_size), compute=sample_rows
        )
        completions = [completion for chunk in row_chunks for completion in chunk]
        return [completions[first : first + group_size] for first in range(0, len(completions), group_size)]

    def _uniforms(self, tokens: int, rows: int, generator: torch.Generator) -> Tensor:
        """Return the random numbers of a call, (T, B)."""
        return torch.rand(tokens, rows, generator=generator, dtype=torch.float64)

    def _notes(self, watch: RouterWatch, sampling: SamplingLike, *, rows: int) -> Notes:
        return Notes(
            masks=SamplingMaskLog() if self.keep_mask and is_cut(sampling) else None,
            routes=RoutesLog(self.policy.model, watch, rows=rows, tokens=sampling.max_new_tokens)
            if self.routes
            else None,
            alternatives=AlternativesLog.blank(
                self.alternatives,
                tokens=sampling.max_new_tokens,
                rows=rows,
                vocabulary=self.policy.model.config.get_text_config().vocab_size,
                device=self.policy.model.device,
            )
            if self.alternatives
            else None,
        )

    def _decode(
        self,
        decoder: Decoder,
        prompt_ids: list[list[int]],
        sampling: SamplingLike,
        uniforms: Tensor,
        notes: Notes,
        extra_stops: Sequence[int] = (),
    ) -> SampledTokens:
        device, count = self.policy.model.device, uniforms.shape[1]
        ids, mask = pad_left(prompt_ids, self.policy.pad_id, device)
        logits = decoder.prefill(ids, mask, max_rows=count, max_new_tokens=sampling.max_new_tokens)
        if notes.routes is not None:
            notes.routes.prompt(mask)
        sampled_tokens = SampledTokens.blank(sampling.max_new_tokens, count, device)
        uniforms, stops = (
            uniforms.to(device),
            torch.tensor([*self.policy.stop_ids, *extra_stops], device=device),
        )
        unfinished_rows = UnfinishedRows.from_prompts(count, count // len(prompt_ids), device)
        share, interval = choose_cadence(device)
        for step in range(sampling.max_new_tokens):
            logprobs = next_token_logprobs(logits, sampling)  # (U, V)
            if notes.masks is not None:
                notes.masks.add(logprobs, unfinished_rows, step=step)
            if notes.alternatives is not None:
                notes.alternatives.add(logprobs, unfinished_rows, step=step)
            tokens = draw(
                logprobs,
                unfinished_rows,
                uniforms[step],
                sampled_tokens,
                step=step,
                greedy=sampling.temperature == 0,
            )
            unfinished_rows.mark_ended(tokens, stops)
            if step + 1 == sampling.max_new_tokens:
                break
            if step % POLL_EVERY_TOKENS == 0 and self.is_unwanted():
                raise Interrupted
            if step % interval == 0:
                sources, tokens = unfinished_rows.regroup(tokens, share=share)
                if not len(tokens):
                    break
                if sources is not None:
                    decoder.select(sources)
            logits = decoder.step(tokens)
            if notes.routes is not None:
                notes.routes.token(unfinished_rows, step=step)
        return SampledTokens(*(tensor[: step + 1] for tensor in sampled_tokens))

    def _completions(
        self,
        sampled_tokens: SampledTokens,
        group_size: int,
        notes: Notes,
        prompt_tokens: Sequence[int],
        extra_stops: Sequence[int] = (),
    ) -> Iterator[list[Completion]]:
        # Clone the tensors, because a view would keep the memory of max_new_tokens steps alive while a record
        # is queued.
        ids, logprobs, entropies = (
            tensor.T.clone(memory_format=torch.contiguous_format).cpu().numpy() for tensor in sampled_tokens
        )
        is_end = np.isin(ids, [*self.policy.stop_ids, *extra_stops])
        lengths = np.where(is_end.any(axis=1), is_end.argmax(axis=1) + 1, ids.shape[1])
        stopped = np.isin(ids[np.arange(len(ids)), lengths - 1], self.policy.stop_ids)
        masks = [None] * len(ids) if notes.masks is None else notes.masks.split_rows(lengths)
        routes = [None] * len(ids) if notes.routes is None else notes.routes.split_rows(lengths)
        alternatives = (
            [None] * len(ids) if notes.alternatives is None else notes.alternatives.split_rows(lengths)
        )
        for first in range(0, len(ids), group_size):
            yield [
                replace(
                    self._completion(
                        ids[row, :length],
                        logprobs[row, :length],
                        entropies[row, :length],
                        stopped=bool(stopped[row]),
                    ),
                    sampling_mask=masks[row],
                    routes=routes[row],
                    alternatives=alternatives[row],
                    prompt_tokens=prompt_tokens[first // group_size],
                )
                for row, length in enumerate(lengths[first : first + group_size], start=first)
            ]

    def _completion(
        self,
        ids: NDArray[np.int64],
        logprobs: NDArray[np.float32],
        entropies: NDArray[np.float32],
        *,
        stopped: bool,
    ) -> Completion:
        return replace(
            make_completion(self.policy, ids, logprobs, stopped=stopped),
            entropies=entropies,
            version=self.version,
        )


def is_cut(sampling: SamplingLike) -> bool:
    """Return whether top-p or top-k excludes some tokens."""
    return sampling.top_p < 1 or sampling.top_k > 0


def max_rows(model: PreTrainedModel, sampling: SamplingLike, *, tokens: int) -> int:
    """Return the number of rows of this length that fit into a GPU's free memory with their cache and
    logits.
    """
    if model.device.type != "cuda":
        return sys.maxsize
    tokens = round_up(tokens, unit=MIN_PLACES)
    config: Any = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache_bytes = 2 * config.num_hidden_layers * heads * head_width * model.dtype.itemsize * tokens
    # float32 logits, log-probabilities, probabilities and float64 sums; a cut also sorts, with int64 indices
    logit_bytes = config.vocab_size * (64 if is_cut(sampling) else 32)
    free_bytes, _ = torch.cuda.mem_get_info(model.device)
    unused_bytes = torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
    return max(1, int(0.8 * (free_bytes + unused_bytes)) // (cache_bytes + logit_bytes))


def pad_left(prompt_ids: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids and mask, both (P, S), of prompts that end at the last column."""
    length = max(map(len, prompt_ids))
    ids = [[pad_id] * (length - len(row)) + list(row) for row in prompt_ids]
    mask = [[0] * (length - len(row)) + [1] * len(row) for row in prompt_ids]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def next_token_logprobs(logits: Tensor, sampling: SamplingLike) -> Tensor:
    """Return the sampling log-probabilities (B, V): apply temperature, then top-k, then top-p.

    For greedy decoding it returns the policy's distribution at temperature 1.
    """
    if sampling.temperature not in (0, 1):
        logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        min_logits = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < min_logits, -torch.inf)
    if sampling.top_p < 1:
        logits = nucleus_logits(logits, sampling.top_p)
    return logits.log_softmax(dim=-1)


def nucleus_logits(logits: Tensor, mass: float) -> Tensor:
    """Return logits (B, V) with -inf outside the smallest set of most likely tokens of probability `mass`."""
    descending, order = logits.sort(dim=-1, descending=True)
    probabilities = descending.softmax(dim=-1)
    mass_before = probabilities.cumsum(dim=-1) - probabilities
    return logits.masked_fill(
        torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, mass_before >= mass), -torch.inf
    )


def inverse_cdf(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Return the tokens (B,) at which cumulative probabilities (B, V) pass uniform numbers (B,) in [0, 1)."""
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    targets = uniforms[:, None] * cumulative[:, -1:]
    return (
        torch.searchsorted(cumulative, targets, right=True).squeeze(1).clamp_(max=probabilities.shape[-1] - 1)
    )


def draw(
    logprobs: Tensor,
    unfinished_rows: UnfinishedRows,
    uniforms: Tensor,
    sampled_tokens: SampledTokens,
    *,
    step: int,
    greedy: bool,
) -> Tensor:
    """Sample the next token (n,) of every unfinished completion from (U, V), and record it in
    `sampled_tokens`.
    """
    probabilities = logprobs.exp()
    entropies = torch.special.entr(probabilities).sum(dim=-1)
    if unfinished_rows.is_shared:
        logprobs, probabilities, entropies = (
            tensor.index_select(0, unfinished_rows.source_rows)
            for tensor in (logprobs, probabilities, entropies)
        )
    if greedy:
        tokens = logprobs.argmax(dim=-1)
    else:
        tokens = inverse_cdf(probabilities, uniforms.index_select(0, unfinished_rows.rows))
    sampled_tokens.ids[step].index_copy_(0, unfinished_rows.rows, tokens)
    sampled_tokens.logprobs[step].index_copy_(
        0, unfinished_rows.rows, logprobs.gather(1, tokens[:, None]).squeeze(1)
    )
    sampled_tokens.entropies[step].index_copy_(0, unfinished_rows.rows, entropies)
    return tokens
