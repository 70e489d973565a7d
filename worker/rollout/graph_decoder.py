"""Decode on a GPU with CUDA graphs: record the kernels of a token once and replay them for each token.

A GPU runs the kernels of a token faster than Python launches them, unless the policy has many billions of
parameters. A graph has fixed shapes and addresses. Therefore the position of a token is a number in GPU
memory, rows and positions are rounded up, and unused positions are masked.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor
from torch.nn import Parameter, functional
from transformers import PreTrainedModel

from worker.out_of_memory import is_memory_error
from worker.policy.lean import LeanLayer
from worker.policy.quantized import NF4Linear
from worker.rollout.lean_decoder import LeanDecoder

logger = logging.getLogger(__name__)

MIN_PLACES = 64
"""Minimum number of cache positions that a graph attends to, and the increment by which they grow at
first.
"""

RECORDING = threading.Lock()
"""Lock held while a graph is recorded, so that only one thread records at a time."""


class Recorder:
    """The CUDA stream and memory pool with which a thread records graphs on a device.

    Both outlive the graphs of one sampler call, so the next call needs no new memory.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.can_record = True
        """True if recording works. It becomes False once a policy could not be recorded."""
        self._first_graph = (
            torch.cuda.CUDAGraph()
        )  # the pool is freed with the last of its graphs, so this one is kept
        try:
            with torch.cuda.stream(self.stream), self.recording(self._first_graph):
                torch.zeros(1, device=device)
        except RuntimeError as error:
            self.give_up(error)

    @contextmanager
    def recording(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Record the kernels launched in the block. Raise RuntimeError if one cannot be recorded."""
        with RECORDING:
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                self._end(graph)

    def give_up(self, error: RuntimeError) -> None:
        """Stop recording in this thread, and log the reason."""
        self.can_record = False
        logger.warning("decoding without CUDA graphs: %s", error.__context__ or error)

    def _end(self, graph: torch.cuda.CUDAGraph) -> None:
        try:
            graph.capture_end()
        except RuntimeError:  # The allocator is left waiting for the end.
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(self.device.index, self.pool)  # noqa: SLF001
            raise


_threads = threading.local()


def get_recorder(device: torch.device) -> Recorder:
    """Return this thread's recorder for a device."""
    if not hasattr(_threads, "recorders"):
        _threads.recorders = {}
    recorders: dict[torch.device, Recorder] = _threads.recorders
    if device not in recorders:
        recorders[device] = Recorder(device)
    return recorders[device]


class GraphDecoder(LeanDecoder):
    """A LeanDecoder whose steps are graphs, one for each rounded number of rows and of positions.

    The first token of each size runs kernel by kernel, which also prepares what may not be recorded (handles
    and workspaces of libraries). The second token records the graph. Without CUDA every token runs kernel by
    kernel.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self.recorder = get_recorder(model.device) if model.device.type == "cuda" else None
        self.is_recorded = self.recorder is not None and self.recorder.can_record

    def prefill(self, ids: Tensor, mask: Tensor, *, max_rows: int, max_new_tokens: int) -> Tensor:
        """See Decoder."""
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}
        self.logits: Tensor = torch.empty(0)  # free the memory of the previous batch first
        self.bias: Tensor = torch.empty(0)
        return super().prefill(ids, mask, max_rows=max_rows, max_new_tokens=max_new_tokens)

    def _room(self, tokens: int) -> int:
        return round_up(
            tokens, unit=MIN_PLACES
        )  # Few sizes are used, because kernels are planned for each size.

    def _grow_cache(self, keys: Tensor, values: Tensor, max_rows: int) -> Tensor:
        cache = super()._grow_cache(keys, values, max_rows)
        cache[:, self.rows :] = 0  # masked positions must be finite, because 0 times NaN is NaN
        cache[:, :, :, self.length :] = 0
        return cache

    def _begin(self, mask: Tensor, **_: bool) -> None:
        self.pool = torch.cuda.graph_pool_handle() if self.is_recorded else None
        self.max_rows = self.cache[0].shape[1]
        self.place = mask.new_full((1,), self.length)  # position at which the next token is written
        self.tokens, self.positions = mask.new_zeros(2, self.max_rows)
        self.positions[: self.rows] = mask.sum(dim=1)
        vocabulary_size = self.lean.head.weight.shape[0]
        self.logits = torch.empty(self.max_rows, vocabulary_size, dtype=torch.float32, device=mask.device)
        shape = self.max_rows, 1, self.capacity
        dtype = self.model.dtype
        # Added to attention scores: 0 on tokens, the lowest number on padding and unused positions.
        self.bias = torch.full(shape, torch.finfo(dtype).min, dtype=dtype, device=mask.device)
        self.bias[: self.rows, 0, : self.length].masked_fill_(mask.bool(), 0)

    def select(self, sources: Tensor) -> None:
        """See Decoder."""
        self._move(sources)
        self.bias[: self.rows] = self.bias[sources]
        self.positions[: self.rows] = self.positions[sources]

    def step(self, tokens: Tensor) -> Tensor:
        """See Decoder. The logits are overwritten by the next step."""
        self.tokens[: len(tokens)] = tokens
        rows = min(self.max_rows, round_up(len(tokens)))
        span = min(self.capacity, round_up(self.length + 1, unit=MIN_PLACES))
        if self.recorder is None:
            self._token(rows, span)
        else:
            self._on_gpu(self.recorder, rows, span)
        self.length += 1
        return self.logits[: len(tokens)]

    def _on_gpu(self, recorder: Recorder, rows: int, span: int) -> None:
        """Run one token: replay its graph, record the graph first, or launch the kernels directly."""
        graph = self.graphs.get((rows, span))
        if graph is None:
            current_stream = torch.cuda.current_stream(recorder.device)
            recorder.stream.wait_stream(current_stream)
            try:
                with torch.cuda.stream(recorder.stream):
                    if self.is_recorded and (rows, span) in self.graphs:
                        graph = self._record_graph(recorder, rows, span)
                    if graph is None:
                        self._token(rows, span)
            finally:
                current_stream.wait_stream(recorder.stream)
            self.graphs[rows, span] = graph
        if graph is not None:
            graph.replay()

    def _record_graph(self, recorder: Recorder, rows: int, span: int) -> torch.cuda.CUDAGraph | None:
        """Return the graph of a token. Return None, now and later, if it cannot be recorded or memory runs
        out.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with recorder.recording(graph):
                self._token(rows, span)
        except RuntimeError as error:
            self.is_recorded = False
            if not is_memory_error(error.__context__ or error):
                recorder.give_up(error)
            return None
        return graph

    def _token(self, rows: int, span: int) -> None:
        """Process `self.tokens` at `self.place` into `self.logits` and advance, without waiting for the
        GPU.
        """
        self.bias[:rows].index_fill_(2, self.place, 0)
        rotations = self.lean.rotations(self.positions[:rows])
        self.logits[:rows] = self._read(self.tokens[:rows], rotations, span)
        self.place += 1
        self.positions[:rows] += 1

    def _mix(self, layer: LeanLayer, cache: Tensor, queries: Tensor, span: int) -> Tensor:
        # This is one kernel instead of six. Query heads that share a key head become queries of one text.
        rows = len(queries)
        queries = queries.reshape(rows, layer.kv_heads, -1, layer.width)
        bias = self.bias[:rows, None, :, :span].expand(-1, layer.kv_heads, queries.shape[2], -1)
        keys, values = cache[:, :, :, :span]
        return functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=bias, scale=layer.scaling
        )

    def _store(self, cache: Tensor, keys: Tensor, values: Tensor) -> None:
        cache[0].index_copy_(2, self.place, keys[:, :, None])
        cache[1].index_copy_(2, self.place, values[:, :, None])


def round_up(count: int, *, unit: int = 1) -> int:
    """Round a count up to a multiple of `unit` whose factor has at most three significant binary digits.

    >>> [round_up(count) for count in (3, 8, 9, 13, 127)]
    [3, 8, 10, 14, 128]
    """
    unit_count = -(-count // unit)
    step = 1 << max(0, (unit_count - 1).bit_length() - 3)
    return unit * step * -(-unit_count // step)


def has_graphs(model: PreTrainedModel) -> bool:
    """Return whether graphs are used for a model that LeanDecoder can decode.

    Quantized weights are expanded by separate kernels, some of which wait for the GPU.
    """
    return (
        model.device.type == "cuda"
        and all(type(weight) is Parameter for weight in model.parameters())
        and not any(isinstance(module, NF4Linear) for module in model.modules())
    )
