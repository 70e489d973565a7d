"""Statistics of a step's updates, and the per-token values that are stored with them."""

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
"""Per-token values whose sum over all tokens of a step is a number of the step: its loss, a term of it."""


class TokenUse(NamedTuple):
    """Tokens of a completion that trained, by what an update made of them."""

    masked: int
    clipped: int
    useful: int


@dataclass(slots=True)
class UpdateStats:
    """The statistics of a step's updates."""

    step: int = 0
    """The training step; decides the learning rate."""
    lr: float | None = None
    """Learning rate of the policy's updates, where they have one."""
    sums: MetricSums = field(default_factory=MetricSums)
    """The objective's metrics over all updates."""
    advantages: list[list[float]] = field(default_factory=list)
    """[P][G] advantage of each completion."""
    arrays: list[list[Arrays]] = field(default_factory=list)
    """[P][G] per-token values of each completion at its last update: ratio, clipped, kl, ...

    CONTRIBUTIONS are sums over its updates, still to be divided by `loss_count`.
    """
    token_use: list[list[TokenUse]] = field(default_factory=list)
    """[P][G] how many tokens of each completion moved the policy."""
    norms: list[float] = field(default_factory=list)
    """Gradient norm of each update; one that is not finite was skipped."""
    critic_norms: list[float] = field(default_factory=list)
    """The same of the critic's updates."""
    failed_searches: int = 0
    """Updates whose search for a step inside the trust region found none: nothing was changed."""
    estimate: dict[str, float] = field(default_factory=dict)
    """What the critic's judgement looks like."""
    seconds: float = 0.0
    reference_seconds: float = 0.0
    critic_seconds: float = 0.0

    @property
    def loss_count(self) -> float:
        """Optimizer batches that the logged loss is the mean of; 0 without any."""
        total = self.sums.metrics.get("loss/total")
        return float(total.count) if isinstance(total, Mean) else 0.0

    @property
    def skipped(self) -> int:
        """Updates left out because loss or gradient was not finite, the critic's among them."""
        return sum(not math.isfinite(norm) for norm in (*self.norms, *self.critic_norms))

    @property
    def is_stuck(self) -> bool:
        """Whether there were updates of the policy and all of them were left out."""
        return bool(self.norms) and not any(math.isfinite(norm) for norm in self.norms)

    def metrics(self) -> dict[str, float]:
        """The step's numbers; only that there was no update when there was nothing to learn from."""
        counts = {
            "optim/updates": sum(math.isfinite(norm) for norm in self.norms) - self.failed_searches,
            "optim/skipped": self.skipped,
        }
        if not self.norms:
            return self.sums.values() | self.estimate | counts
        flat = [value for group in self.advantages for value in group]
        return {
            "advantage/mean": fmean(flat),
            "advantage/std": stdev(flat) if len(flat) > 1 else 0.0,
            "advantage/nonzero_frac": fmean(value != 0 for value in flat),
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
    """Lay the per-token values of some rows into (B, T) tensors of the whole step."""
    for name, value in values.items():
        if name not in per_token:
            per_token[name] = torch.zeros(shape)
        per_token[name][rows, : value.shape[1]] = value.float().cpu()


def add_tokens(per_token: dict[str, Tensor], values: Mapping[str, Tensor], shape: torch.Size) -> None:
    """Add per-token values (B, T) to those of earlier updates."""
    for name, value in values.items():
        per_token[name] = per_token.get(name, torch.zeros(shape)) + value


def constants_of(batch: PolicyBatch) -> dict[str, Tensor]:
    """Per-token values (B, T) of a step that no update changes, by which its loss can be computed again."""
    constants = {
        "old_logprob": batch.old_logprobs,
        "reference_logprob": batch.reference_logprobs,
        "uncertain": batch.uncertain,
        "kl_coef": _spread(batch.kl_coef, batch),
        "entropy_coef": _spread(batch.entropy_coef, batch),
        "advantage": batch.advantages if batch.advantages.ndim == 2 else None,
        "mask": None if _is_whole(batch.mask) else batch.mask,
    }
    return {name: value.detach().float().cpu() for name, value in constants.items() if value is not None}


def _is_whole(mask: Tensor) -> bool:
    """Whether every completion counts, and all of it: no row is masked, and no observation within one."""
    begins = mask.long().cummin(dim=1).values.bool()
    return bool(mask.any(dim=1).all()) and bool((begins == mask).all())


def choices_of(batch: PolicyBatch) -> dict[str, Tensor]:
    """Per-token values (B, T) of one update: the tokens that it singled out, the shift of its routers."""
    choices = {"covariant": batch.covariant, "router_shift": batch.router_shift}
    return {name: value.detach() for name, value in choices.items() if value is not None}


def _spread(values: Tensor | None, batch: PolicyBatch) -> Tensor | None:
    """A value per completion, once for each of its tokens."""
    return None if values is None else values.unsqueeze(1).expand(batch.mask.shape)


def of_completions(batch: PolicyBatch) -> Tensor:
    """The advantage (B,) of each completion: the mean over its tokens where they differ."""
    values = batch.advantages
    if values.ndim == 1:
        return values
    return (values * batch.mask).sum(dim=1) / batch.mask.sum(dim=1).clamp(min=1)


def lift_rows(groups: Sequence[Group]) -> tuple[list[int], list[int]]:
    """Rows of right and of wrong completions of the first group that has both; one of each in 64 rows."""
    size = len(groups[0].completions)
    most = math.ceil(len(groups) * size / 64)
    for index, group in enumerate(groups):
        graded_rows = [
            (index * size + at, value) for at, value in enumerate(group.correctness) if value is not None
        ]
        right = [row for row, value in graded_rows if value >= 1]
        wrong = [row for row, value in graded_rows if value < 1]
        if right and wrong:
            return right[:most], wrong[:most]
    return [], []


def token_use(
    per_token: Mapping[str, Tensor], mask: Tensor, lengths: Sequence[int], groups: int
) -> list[list[TokenUse]]:
    """[P][G] the use of each completion's tokens, from `policy_gradient` and `clipped` (B, T) if given.

    A token is clipped if it was at its last update, and useful if an update that was not skipped gave it a
    gradient of the policy term.
    """
    nothing = mask.new_zeros(mask.shape)
    clipped = mask & (per_token["clipped"] != 0 if "clipped" in per_token else nothing)
    reached = per_token["policy_gradient"] > 0 if "policy_gradient" in per_token else nothing
    useful = mask & reached & ~clipped
    counts = zip(lengths, clipped.sum(dim=1).tolist(), useful.sum(dim=1).tolist(), strict=True)
    rows = [TokenUse(length - cut - used, cut, used) for length, cut, used in counts]
    size = len(rows) // groups
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def by_completion(per_token: dict[str, Tensor], lengths: Sequence[int], groups: int) -> list[list[Arrays]]:
    """[P][G] the per-token values of each completion, cut to its length."""
    arrays = {name: value.numpy() for name, value in per_token.items()}
    rows = [
        {name: value[row, :length] for name, value in arrays.items()} for row, length in enumerate(lengths)
    ]
    size = len(rows) // groups
    return [rows[first : first + size] for first in range(0, len(rows), size)]
