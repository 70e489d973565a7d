"""Metrics that merge exactly over micro-batches and minibatches, because they store sums and counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Real
from torch import Tensor

Scalar = Real[Tensor, ""]


@runtime_checkable
class Metric(Protocol):
    """A metric that can be merged with others of its kind and converted to a number."""

    def __add__(self, other: Any, /) -> Any:
        """Return the metric merged with another one."""
        ...

    def tensors(self) -> tuple[Scalar, ...]:
        """Return the tensors that are copied to the host."""
        ...

    def result(self, numbers: Sequence[float]) -> float | None:
        """Return the final number from the host values of `parts`, or None if the metric is empty."""
        ...


@dataclass(frozen=True, slots=True)
class Mean:
    """A total divided by a count. Merging (total 1, count 4) and (9, 1) gives the mean 2, not 4.6."""

    total: Scalar
    count: Scalar

    def __add__(self, other: "Mean") -> "Mean":
        """Add the totals and the counts."""
        return Mean(self.total + other.total, self.count + other.count)

    def tensors(self) -> tuple[Scalar, ...]:
        """Return the total and the count."""
        return self.total, self.count

    def result(self, numbers: Sequence[float]) -> float | None:
        """Return total / count, or None if the count is 0."""
        total, count = numbers
        return total / count if count else None


@dataclass(frozen=True, slots=True)
class Highest:
    """The largest value, or -inf if there is none."""

    value: Scalar

    def __add__(self, other: "Highest") -> "Highest":
        """Return the larger of both values."""
        return Highest(torch.maximum(self.value, other.value))

    def tensors(self) -> tuple[Scalar, ...]:
        """Return the value."""
        return (self.value,)

    def result(self, numbers: Sequence[float]) -> float | None:
        """Return the value, or None if there is none."""
        return None if numbers[0] == -torch.inf else numbers[0]


@dataclass(frozen=True, slots=True)
class Lowest:
    """The smallest value, or +inf if there is none."""

    value: Scalar

    def __add__(self, other: "Lowest") -> "Lowest":
        """Return the smaller of both values."""
        return Lowest(torch.minimum(self.value, other.value))

    def tensors(self) -> tuple[Scalar, ...]:
        """Return the value."""
        return (self.value,)

    def result(self, numbers: Sequence[float]) -> float | None:
        """Return the value, or None if there is none."""
        return None if numbers[0] == torch.inf else numbers[0]


@dataclass(frozen=True, slots=True)
class EffectiveShare:
    """Effective sample size of weights as a share of their number: 1 / mean((w / mean w)^2), in (0, 1]."""

    total: Scalar
    squares: Scalar
    count: Scalar

    def __add__(self, other: "EffectiveShare") -> "EffectiveShare":
        """Add all three sums."""
        return EffectiveShare(
            self.total + other.total, self.squares + other.squares, self.count + other.count
        )

    def tensors(self) -> tuple[Scalar, ...]:
        """Return the sum of the weights, the sum of their squares, and their count."""
        return self.total, self.squares, self.count

    def result(self, numbers: Sequence[float]) -> float | None:
        """Return (sum w)^2 / (n sum w^2), or 0 if every weight is 0, or None if there are none."""
        total, squares, count = numbers
        if not count:
            return None
        return total * total / (count * squares) if squares else 0.0


@dataclass(frozen=True, slots=True)
class Covariance:
    """Covariance of two quantities over N units: E[xy] - E[x] E[y]."""

    products: Scalar
    first: Scalar
    second: Scalar
    count: Scalar

    def __add__(self, other: "Covariance") -> "Covariance":
        """Add all four sums."""
        return Covariance(
            self.products + other.products,
            self.first + other.first,
            self.second + other.second,
            self.count + other.count,
        )

    def tensors(self) -> tuple[Scalar, ...]:
        """Return the sum of the products, the sums of both quantities, and the number of units."""
        return self.products, self.first, self.second, self.count

    def result(self, numbers: Sequence[float]) -> float | None:
        """Return the mean of the products minus the product of the means, or None if there are no units."""
        products, first, second, count = numbers
        return products / count - first * second / count**2 if count else None


@dataclass(frozen=True, slots=True)
class MetricSums:
    """Metrics by canonical name that can be merged with others.

    Example: (first.metrics + second.metrics).values() -> {"loss/policy": -0.0728, "clip/high_frac": 0.2, ...}
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)

    def __add__(self, other: "MetricSums") -> "MetricSums":
        """Merge the metrics of both sides; a name that only one side has is kept."""
        metrics = dict(self.metrics)
        for name, metric in other.metrics.items():
            metrics[name] = metrics[name] + metric if name in metrics else metric
        return MetricSums(metrics)

    @classmethod
    def merged(cls, sums: Iterable["MetricSums"]) -> "MetricSums":
        """Merge any number of sums."""
        return sum(sums, start=cls())

    def to(self, device: torch.device | str) -> "MetricSums":
        """Return the sums on a device, without gradients.

        Use it before merging sums from several processes.
        """
        device_metrics = {
            name: type(metric)(*(tensor.detach().to(device) for tensor in metric.tensors()))
            for name, metric in self.metrics.items()
        }
        return MetricSums(device_metrics)

    def values(self) -> dict[str, float]:
        """Return the final numbers by name in one transfer from the device, without empty metrics."""
        tensors = [
            tensor.detach().double() for metric in self.metrics.values() for tensor in metric.tensors()
        ]
        numbers = torch.stack(tensors).tolist() if tensors else []
        result_by_name: dict[str, float] = {}
        for name, metric in self.metrics.items():
            metric_sums, numbers = numbers[: len(metric.tensors())], numbers[len(metric.tensors()) :]
            result = metric.result(metric_sums)
            if result is not None:
                result_by_name[name] = result
        return result_by_name
