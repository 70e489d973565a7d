"""What bounds a step: its matrix products alone, and its weights read from memory once for each token drawn.

Trains as our_side.py does. The last steps run under torch's profiler, which records the shape of each matrix
product. Afterwards each shape is multiplied alone, on as many threads. Runs on the code of another checkout,
too.
"""

import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from our_side import Listener, trainer_of
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function
from workload import PARTS, PROFILED, Workload

from worker.training.trainer import Trainer

PACKED = "mkldnn::_linear_pointwise"
"""A product with a weight (outputs, inputs) that was packed before."""


def packed_product(rows: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """Rows (N, inputs) times a packed weight."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")  # noqa: SLF001
    return product


PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "aten::mm": (torch.mm, 2),
    "aten::addmm": (torch.addmm, 3),
    "aten::bmm": (torch.bmm, 2),
    "aten::baddbmm": (torch.baddbmm, 3),
    PACKED: (packed_product, 2),
}
"""Operations that multiply matrices, each with its number of operands."""

Product = tuple[str, tuple[tuple[int, ...], ...]]
"""An operation and the shapes of its operands."""

LEAST_SECONDS = 2e-3
"""For which a product is repeated, so that the clock can tell it."""

READ = 2**26
"""Numbers of float32 that are read to measure the memory, more than any cache holds."""


class Profiled(Trainer):
    """A trainer whose last steps are profiled."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.profiles: list[list[FunctionEvent]] = []

    def _step(self) -> Any:
        if self.counters.step < self.config.steps - PROFILED:
            return super()._step()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
            metrics = super()._step()
        self.profiles.append(list(found.events()))
        return metrics

    def _collect(self, *arguments: Any) -> Any:
        with record_function("sampling"):
            return super()._collect(*arguments)

    def _learn(self, *arguments: Any) -> Any:
        with record_function("learning"):
            return super()._learn(*arguments)


def main() -> None:
    job = json.load(sys.stdin)
    work = Workload(**job["workload"])
    torch.set_num_threads(job["threads"])
    listener = Listener()
    trainer = trainer_of(work, listener, job["seed"], Profiled)
    assert isinstance(trainer, Profiled)  # noqa: S101
    trainer.train()
    model = trainer.policy.model
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    counted = slice(work.warm_up_steps, -PROFILED)
    found: dict[str, Any] = {"bytes_a_second": bytes_a_second(), "weights": weights}
    for part, metric in PARTS.items():
        events = [list(_inside(part, step)) for step in trainer.profiles]
        products = Counter(product for step in events for product in map(_product, step) if product)
        found[part] = {
            "seconds": median(listener.parts[metric][counted]),
            "products": sum(times * seconds_of(each) for each, times in products.items()) / PROFILED,
            "passes": _passes(products, model.config.vocab_size) / PROFILED,
            "operations": _operations(part, trainer.profiles, events),
        }
    print(json.dumps(found))


def _inside(part: str, events: list[FunctionEvent]) -> Iterator[FunctionEvent]:
    """The operations that began while this part of the step ran."""
    spans = [event.time_range for event in events if event.name == part]
    for event in events:
        if event.name not in PARTS and any(span.start <= event.time_range.start < span.end for span in spans):
            yield event


def _product(event: FunctionEvent) -> Product | None:
    if event.name not in PRODUCTS:
        return None
    operands: Any = event.input_shapes[: PRODUCTS[event.name][1]]
    return event.name, tuple(tuple(shape) for shape in operands)


def _passes(products: Counter[Product], vocabulary: int) -> int:
    """How often the whole vocabulary was scored: once for each token of the longest row."""
    return sum(
        times
        for (name, shapes), times in products.items()
        if shapes[-1][0 if name == PACKED else -1] == vocabulary
    )


def _operations(part: str, profiles: list[list[FunctionEvent]], events: list[list[FunctionEvent]]) -> Any:
    """Seconds of a step by operation, without those that it calls; the rest is spent outside of torch."""
    whole = sum(event.time_range.elapsed_us() for step in profiles for event in step if event.name == part)
    own: dict[str, float] = defaultdict(float)
    for event in (event for step in events for event in step):
        own[event.name.rpartition("::")[2]] += event.self_cpu_time_total
    rest = whole - sum(own.values())
    return {name: spent / 1e6 / PROFILED for name, spent in [*own.items(), ("outside of torch", rest)]}


def seconds_of(product: Product) -> float:
    """Seconds of a product of random numbers, alone and with operands in the cache; the best of two means."""
    name, shapes = product
    multiply = PRODUCTS[name][0]
    operands = [torch.randn(shape) for shape in shapes]
    if not all(map(math.prod, shapes)):
        return 0.0
    if name == PACKED:
        operands[1] = torch.ops.mkldnn._reorder_linear_weight(operands[1])  # noqa: SLF001
    multiply(*operands)
    return min(_mean_seconds(lambda: multiply(*operands)) for _ in range(2))


def _mean_seconds(call: Callable[[], object]) -> float:
    started, calls = time.perf_counter(), 0
    while (seconds := time.perf_counter() - started) < LEAST_SECONDS or calls < 3:
        call()
        calls += 1
    return seconds / calls


def bytes_a_second() -> float:
    """How quickly the threads read memory; the best of five."""
    numbers = torch.ones(READ)
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        numbers.sum()
        best = min(best, time.perf_counter() - started)
    return READ * numbers.element_size() / best


if __name__ == "__main__":
    main()
