"""Mismatch of sampler and trainer at one step: the weights of its stored tokens under each cap.

    rho = p_trainer / p_sampler of a token, or of a completion: the product or geometric mean over its tokens
    truncated: w = min(rho, cap)        masked: w = rho if low <= rho <= cap, else 0

The worker computes the same values while training (worker/objective/sampler_correction.py).
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, NotFound
from backend.config.knobs import SequenceMask, SequenceTis, TokenMask, TokenTis
from backend.config.run import RunConfig
from backend.metrics.reading import read_points
from backend.rollouts.breakdown.cells import count_carried_groups
from backend.rollouts.packing import try_unpack_arrays
from backend.rollouts.reading import valid_group_conditions
from backend.runs.origin import has_run_config
from backend.storage.models import RolloutGroup, RolloutTokens, Run

LOG_RATIO_LIMIT = 20.0
"""Maximum absolute log-ratio, in nats; the same as in worker/objective/ratios.py."""

MAX_TOKENS = 4_000_000
MAX_POINTS = 4_000
CAP_VALUES = tuple(float(2 ** (eighth / 8)) for eighth in range(-8, 57))
"""Caps of the correction weight, from 0.5 to 128."""
USUAL_LOW = 0.5

Kind = Literal["token_tis", "token_mask", "seq_tis", "seq_mask"]
Level = Literal["product", "geo"]
Values = NDArray[np.float64]


class Rule(NamedTuple):
    """A correction without its cap."""

    kind: Kind
    level: Level = "product"
    low: float = USUAL_LOW
    """Smallest rho that counts; only for masks."""

    @property
    def is_shared(self) -> bool:
        """Whether all tokens of a completion share one weight."""
        return self.kind.startswith("seq")

    @property
    def is_mask(self) -> bool:
        """Whether tokens beyond the cap are dropped."""
        return self.kind.endswith("mask")


class Tokens(NamedTuple):
    """Tokens that the loss may use, concatenated over the completions."""

    sampler: Values
    """(N,) log-probabilities of the sampler."""
    trainer: Values
    """(N,) log-probabilities of the policy with which the step began."""
    position: NDArray[np.int64]
    """(N,) position within the completion, from 0."""
    row: NDArray[np.int64]
    """(N,) index of the completion."""
    age: NDArray[np.int64]
    """(N,) age of the weights that sampled the token, in steps."""

    @property
    def log_rho(self) -> Values:
        """(N,) log of the ratio of trainer to sampler."""
        return np.clip(self.trainer - self.sampler, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def load_mismatch(session: Session, run: Run, step: int, kind: Kind | None, level: Level) -> dict[str, Any]:
    """Return a step's stored tokens and the effect of each cap on them, as `breakdown.schemas.Mismatch`.

    Without a kind, the correction of the run is used. Raise NotFound if no stored token has both
    log-probabilities, and Conflict if there are too many tokens.
    """
    own_rule, cap = _run_rule(run)
    rule = own_rule if kind is None and own_rule is not None else Rule(kind or "token_tis", level)
    is_own = own_rule is not None and (rule.kind, rule.level if rule.is_shared else "") == (
        own_rule.kind,
        own_rule.level if own_rule.is_shared else "",
    )
    if own_rule is not None and is_own:
        rule = own_rule
    tokens, groups, total = _load_tokens(session, run, step)
    caps = sorted({*CAP_VALUES, *((cap,) if is_own else ())})
    shown_indices = np.arange(len(tokens.row))
    if len(shown_indices) > MAX_POINTS:
        shown_indices = np.sort(
            np.random.default_rng(step).choice(len(shown_indices), MAX_POINTS, replace=False)
        )
    return {
        "run": run.id,
        "step": step,
        "kind": rule.kind,
        "level": rule.level,
        "low": rule.low if rule.is_mask else None,
        "run_cap": cap if is_own else None,
        "tokens": len(tokens.row),
        "completions": len(np.unique(tokens.row)),
        "groups": groups,
        "of_groups": total,
        "caps": _cap_items(tokens, rule, caps),
        "sampler": tokens.sampler[shown_indices].tolist(),
        "trainer": tokens.trainer[shown_indices].tolist(),
        "position": tokens.position[shown_indices].tolist(),
        "age": tokens.age[shown_indices].tolist(),
    }


def _run_rule(run: Run) -> tuple[Rule | None, float]:
    """Return the correction of the run and its cap; None if the correction has no cap."""
    if not has_run_config(run):
        return None, 0.0
    match RunConfig.model_validate(run.config).objective.correction:
        case TokenTis(cap=cap):
            return Rule("token_tis"), cap
        case TokenMask(low=low, high=high):
            return Rule("token_mask", low=low), high
        case SequenceTis(level=level, cap=cap):
            return Rule("seq_tis", level), cap
        case SequenceMask(level=level, low=low, high=high):
            return Rule("seq_mask", level, low), high
        case _:
            return None, 0.0


def _load_tokens(session: Session, run: Run, step: int) -> tuple[Tokens, int, int]:
    """Return the tokens of the stored groups that trained, their number of groups, and that of all stored
    groups.
    """
    query = (
        select(RolloutGroup.prompt_index, RolloutTokens.data)
        .outerjoin(RolloutTokens, RolloutTokens.group_id == RolloutGroup.id)
        .where(
            *valid_group_conditions(session, run.id), RolloutGroup.step == step, RolloutGroup.kind == "train"
        )
        .order_by(RolloutGroup.prompt_index)
    )
    carried_groups = count_carried_groups(session, run.id, "train", [step]).get(step, 0)
    age = _staleness(session, run.id, step)
    completions: list[tuple[Values, Values, NDArray[np.int64], int]] = []
    groups = total = size = 0
    for index, data in session.execute(query.execution_options(yield_per=16)):
        total += 1
        arrays, _ = try_unpack_arrays(data)
        if not arrays or not all("policy_logprob" in values and "logprob" in values for values in arrays):
            continue
        groups += 1
        for values in arrays:
            policy_logprobs = values.get("old_logprob", values["policy_logprob"])
            used_positions = (
                np.flatnonzero(values["mask"] > 0) if "mask" in values else np.arange(len(policy_logprobs))
            )
            size += len(used_positions)
            logprobs = (
                values["logprob"][used_positions].astype(float),
                policy_logprobs[used_positions].astype(float),
            )
            completions.append((*logprobs, used_positions, age + (index < carried_groups)))
        if size > MAX_TOKENS:
            raise Conflict(f"step {step} has more than {MAX_TOKENS:,} stored tokens")
    if not size:
        raise NotFound(f"step {step} has no stored tokens with the log-probabilities of sampler and trainer")
    lengths = [len(completion[0]) for completion in completions]
    return (
        Tokens(
            np.concatenate([completion[0] for completion in completions]),
            np.concatenate([completion[1] for completion in completions]),
            np.concatenate([completion[2] for completion in completions]),
            np.repeat(np.arange(len(completions)), lengths),
            np.repeat([completion[3] for completion in completions], lengths),
        ),
        groups,
        total,
    )


MAX_STEPS = 2**31
"""Maximum number of steps that a run can have."""


def _staleness(session: Session, run_id: str, step: int) -> int:
    """Return the age of the weights that sampled a step, in steps."""
    points = read_points(session, [run_id], ["sampling/staleness"]).get((run_id, "sampling/staleness"))
    indices = np.flatnonzero(points.steps == step) if points is not None else np.empty(0, np.int64)
    age = points.values[indices[-1]] if points is not None and len(indices) else 0.0
    return int(age) if 0 <= age < MAX_STEPS else 0  # the log of another trainer may contain any value


def _cap_items(tokens: Tokens, rule: Rule, caps: Sequence[float]) -> list[dict[str, Any]]:
    """Return the weights under each cap, as `breakdown.schemas.CapItem`."""
    rho = np.sort(np.exp(_token_log_rho(tokens, rule)))
    count = len(rho)
    sums = np.concatenate([[0.0], np.cumsum(rho)])
    squares = np.concatenate([[0.0], np.cumsum(rho**2)])
    first = int(np.searchsorted(rho, rule.low, side="left")) if rule.is_mask else 0
    cap_items = []
    for cap in caps:
        count_below = max(first, int(np.searchsorted(rho, cap, side="right")))
        count_over = 0 if rule.is_mask else count - count_below
        total = float(sums[count_below] - sums[first] + count_over * cap)
        square = float(squares[count_below] - squares[first] + count_over * cap**2)
        cap_items.append(
            {
                "cap": cap,
                "limited": (count - count_below + first) / count,
                "mean": total / count,
                "ess": total * total / (count * square) if square else 0.0,
                "lost": 1 - total / float(sums[-1]),
            }
        )
    return cap_items


def _token_log_rho(tokens: Tokens, rule: Rule) -> Values:
    """Return (N,) the log rho of each token, or of its completion."""
    log_rho = tokens.log_rho
    if not rule.is_shared:
        return log_rho
    total = np.bincount(tokens.row, weights=log_rho).astype(np.float64)
    if rule.level == "geo":
        total = total / np.maximum(1, np.bincount(tokens.row))
    return np.clip(total, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)[tokens.row]
