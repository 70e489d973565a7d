"""Statistics of a step's updates and the per-token values stored with them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from worker.objective.batch import PolicyBatch
from worker.objective.metric_sums import Mean, MetricSums
from worker.types import Group

Arrays = dict[str, np.ndarray]

CONTRIBUTIONS = ("loss", "loss_policy", "loss_kl", "loss_entropy", "loss_nll", "gradient")
"""Per-token values that sum over a step's tokens to a metric of the step: its loss, or one of its terms."""


class TokenUse(NamedTuple):
    """Token counts of a training completion, by the effect of the updates."""

    masked: int
    clipped: int
    useful: int


@dataclass(slots=True)
class UpdateStats:
    """The statistics of a step's updates."""

    step: int = 0
    """Training step, which determines the learning rate."""
    lr: float | None = None
    """Learning rate of the policy's updates, or None if there were none."""
    sums: MetricSums = field(default_factory=MetricSums)
    """Sums of the objective's metrics over all updates."""
    advantages: list[list[float]] = field(default_factory=list)
    """Advantage of each completion, [P][G]."""
    arrays: list[list[Arrays]] = field(default_factory=list)
    """Per-token values of each completion at its last update, [P][G]: ratio, clipped, kl, ...

    The values of CONTRIBUTIONS are sums over the updates and must be divided by `loss_count`.
    """
    token_use: list[list[TokenUse]] = field(default_factory=list)
    """Number of tokens of each completion that changed the policy, [P][G]."""
    norms: list[float] = field(default_factory=list)
    """Gradient norm of each update. Updates with a non-finite norm were skipped."""
    critic_norms: list[float] = field(default_factory=list)
    """Gradient norm of each update of the critic."""
    failed_searches: int = 0
    """Number of updates that found no step inside the trust region and changed nothing."""
    estimate: dict[str, float] = field(default_factory=dict)
    """Metrics of the critic's estimates."""
    seconds: float = 0.0
    reference_seconds: float = 0.0
    critic_seconds: float = 0.0

    @property
    def loss_count(self) -> float:
        """Number of optimizer batches over which the logged loss is averaged, or 0 without any."""
        total = self.sums.metrics.get("loss/total")
        return float(total.count) if isinstance(total, Mean) else 0.0

    @property
    def skipped(self) -> int:
        """Number of updates skipped because loss or gradient was not finite, including the critic's."""
        return sum(not math.isfinite(norm) for norm in (*self.norms, *self.critic_norms))

    @property
    def is_stuck(self) -> bool:
        """True if there were updates of the policy and all of them were skipped."""
        return bool(self.norms) and not any(math.isfinite(norm) for norm in self.norms)

    def metrics(self) -> dict[str, float]:
        """Return the step's metrics, or only the counts of updates if the policy was not updated."""
        counts = {
            "optim/updates": sum(math.isfinite(norm) for norm in self.norms) - self.failed_searches,
            "optim/skipped": self.skipped,
        }
        if not self.norms:
            return self.sums.values() | self.estimate | counts
        flat_advantages = [value for group in self.advantages for value in group]
        return {
            "advantage/mean": fmean(flat_advantages),
            "advantage/std": stdev(flat_advantages) if len(flat_advantages) > 1 else 0.0,
            "advantage/nonzero_frac": fmean(value != 0 for value in flat_advantages),
            "advantage/distinct_per_group": fmean(
                len({f"{value:.4g}" for value in group}) for group in self.advantages
            ),
            "optim/grad_norm": fmean(self.norms),
            **({} if self.lr is None else {"optim/lr": self.lr}),
            **self.sums.values(),
            **self.estimate,
            **counts,
        }


def keep_tokens(
    per_token: dict[str, Tensor], values: dict[str, Tensor], rows: Tensor, shape: torch.Size
) -> None:
    """Copy the per-token values of some rows into tensors (B, T) of the whole step."""
    for name, value in values.items():
        if name not in per_token:
            per_token[name] = torch.zeros(shape)
        per_token[name][rows, : value.shape[1]] = value.float().cpu()


def add_tokens(per_token: dict[str, Tensor], values: Mapping[str, Tensor], shape: torch.Size) -> None:
    """Add per-token values (B, T) to the values of earlier updates."""
    for name, value in values.items():
        per_token[name] = per_token.get(name, torch.zeros(shape)) + value


def constant_values(batch: PolicyBatch) -> dict[str, Tensor]:
    """Return per-token values (B, T) that no update changes, from which the loss can be recomputed."""
    constants = {
        "old_logprob": batch.old_logprobs,
        "reference_logprob": batch.reference_logprobs,
        "uncertain": batch.uncertain,
        "kl_coef": _repeat_per_token(batch.kl_coef, batch),
        "entropy_coef": _repeat_per_token(batch.entropy_coef, batch),
        "advantage": batch.advantages if batch.advantages.ndim == 2 else None,
        "mask": None if _is_unmasked(batch.mask) else batch.mask,
    }
    return {name: value.detach().float().cpu() for name, value in constants.items() if value is not None}


def _is_unmasked(mask: Tensor) -> bool:
    """Return whether no token is masked: no complete row, and no observation within a row."""
    prefix_mask = mask.long().cummin(dim=1).values.bool()
    return bool(mask.any(dim=1).all()) and bool((prefix_mask == mask).all())


def choice_values(batch: PolicyBatch) -> dict[str, Tensor]:
    """Return per-token values (B, T) of one update: selected tokens, and the shift of the routers."""
    choices = {"covariant": batch.covariant, "router_shift": batch.router_shift}
    return {name: value.detach() for name, value in choices.items() if value is not None}


def _repeat_per_token(values: Tensor | None, batch: PolicyBatch) -> Tensor | None:
    """Repeat a value per completion for each of its tokens."""
    return None if values is None else values.unsqueeze(1).expand(batch.mask.shape)


def completion_advantages(batch: PolicyBatch) -> Tensor:
    """Return the advantage (B,) of each completion: the mean over its tokens if they differ."""
    values = batch.advantages
    if values.ndim == 1:
        return values
    return (values * batch.mask).sum(dim=1) / batch.mask.sum(dim=1).clamp(min=1)


def lift_rows(groups: Sequence[Group]) -> tuple[list[int], list[int]]:
    """Return the rows of correct and of incorrect completions of the first group that has both.

    At most one row of each kind is returned per 64 rows.
    """
    size = len(groups[0].completions)
    max_groups = math.ceil(len(groups) * size / 64)
    for index, group in enumerate(groups):
        graded_rows = [
            (index * size + position, value)
            for position, value in enumerate(group.correctness)
            if value is not None
        ]
        correct_rows = [row for row, value in graded_rows if value >= 1]
        incorrect_rows = [row for row, value in graded_rows if value < 1]
        if correct_rows and incorrect_rows:
            return correct_rows[:max_groups], incorrect_rows[:max_groups]
    return [], []


def token_use(
    per_token: Mapping[str, Tensor], mask: Tensor, lengths: Sequence[int], groups: int
) -> list[list[TokenUse]]:
    """Return the token use of each completion, [P][G], from `policy_gradient` and `clipped` (B, T) if given.

    A token is clipped if it was clipped at its last update. A token is useful if an update that was not
    skipped gave it a gradient of the policy term.
    """
    no_tokens = mask.new_zeros(mask.shape)
    clipped = mask & (per_token["clipped"] != 0 if "clipped" in per_token else no_tokens)
    has_gradient = per_token["policy_gradient"] > 0 if "policy_gradient" in per_token else no_tokens
    is_useful = mask & has_gradient & ~clipped
    counts = zip(lengths, clipped.sum(dim=1).tolist(), is_useful.sum(dim=1).tolist(), strict=True)
    rows = [
        TokenUse(length - clipped_count - useful_count, clipped_count, useful_count)
        for length, clipped_count, useful_count in counts
    ]
    size = len(rows) // groups
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def split_by_completion(
    per_token: dict[str, Tensor], lengths: Sequence[int], groups: int
) -> list[list[Arrays]]:
    """Return the per-token values of each completion, cut to its length, [P][G]."""
    arrays = {name: value.numpy() for name, value in per_token.items()}
    rows = [
        {name: value[row, :length] for name, value in arrays.items()} for row, length in enumerate(lengths)
    ]
    size = len(rows) // groups
    return [rows[first : first + size] for first in range(0, len(rows), size)]
