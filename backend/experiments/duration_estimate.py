"""Estimates of a run's time: from runs like it, else others of its policy, else the policy's size."""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.config.policies import TINY, TINY_MOE
from backend.config.run import RunConfig
from backend.storage.models import Run, Worker

PAST_RUNS = 300
"""Number of newest runs whose step time is read."""

SPREAD = 1.25
"""The factor, either way, by which a step's time may differ from that of the same sizes seen before."""

SCALED_SPREAD = 2.0
"""The factor, either way, by which a step's time may differ if it is scaled from runs of other sizes."""

CPU_FLOPS, GPU_FLOPS = (1e10, 2e11), (1e12, 2e14)
"""Operations per second of a slow and a fast machine with small and large batches."""

TOKEN_SECONDS = 2e-4, 0.03
"""Shortest and longest seconds per token of a completion, even for a tiny model, as tokens are sequential."""

FASTEST_STEP_SECONDS = 0.02
"""A step takes this long however little there is to do: sampling, learning from it, recording it."""

BUILT_IN_SIZES = {TINY.name: 0.8e6, TINY_MOE.name: 1.8e6}
UNKNOWN_SIZE = (0.5e9, 8e9)
"""Parameters of a policy about which nothing is known: those that its profile is meant for."""


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of a run's steps, and the basis of the estimate."""

    low: float
    high: float
    step_seconds: float | None = None
    """Median of the runs of its size."""
    like_runs: int = 0
    """Runs of its size that were measured."""
    scaled_runs: int = 0
    """Runs of the policy at other sizes from which the estimate is scaled, if there are none of this size."""


def estimate_duration(session: Session, config: RunConfig, models_dir: Path) -> Duration:
    """Return the time that a run's steps take, as a range: the less is known, the wider."""
    return estimate_durations(session, [config], models_dir)[0]


def count_slots(session: Session, configs: Sequence[RunConfig]) -> list[int]:
    """Number of worker slots per run: one per GPU; on a CPU, the ranks of a node share one slot."""
    is_gpu = Worker.device.startswith("cuda")
    has_gpus = session.scalar(select(Worker.id).where(is_gpu).limit(1)) is not None
    return [config.resources.ranks if has_gpus else config.resources.nodes for config in configs]


def estimate_durations(session: Session, configs: Sequence[RunConfig], models_dir: Path) -> list[Duration]:
    """Estimate many runs with one query for past runs; runs of equal size are estimated once."""
    seen = _load_past_runs(session)
    by_size: dict[str, Duration] = {}
    estimates = []
    for config in configs:
        document = config.model_dump(mode="json")
        size = repr((_size_key(document), _work_range(document), config.steps))
        if size not in by_size:
            by_size[size] = _duration(session, config, document, seen, models_dir)
        estimates.append(by_size[size])
    return estimates


def _duration(
    session: Session,
    config: RunConfig,
    document: Mapping[str, Any],
    seen: Sequence[tuple[float, dict[str, Any]]],
    models_dir: Path,
) -> Duration:
    if alike := [seconds for seconds, past in seen if _size_key(past) == _size_key(document)]:
        step = statistics.median(alike)
        low, high = min(alike) / SPREAD * config.steps, max(alike) * SPREAD * config.steps
        return Duration(low, high, step, like_runs=len(alike))
    related = [
        (seconds / _work_range(past)[1], seconds / _work_range(past)[0])
        for seconds, past in seen
        if _policy_key(past) == _policy_key(document)
    ]
    min_work, max_work = (work * config.steps for work in _work_range(document))
    if related:
        low, high = min(rate for rate, _ in related), max(rate for _, rate in related)
        return Duration(
            low * min_work / SCALED_SPREAD, high * max_work * SCALED_SPREAD, scaled_runs=len(related)
        )
    return Duration(*_estimate_by_size(session, config, models_dir, min_work, max_work))


def _load_past_runs(session: Session) -> Sequence[tuple[float, dict[str, Any]]]:
    """Return step time and config of the newest runs that have trained."""
    query = (
        select(Run.config, Run.summary)
        .where(Run.last_step > 0, Run.origin == "")
        .order_by(Run.created_at.desc())
        .limit(PAST_RUNS)
    )
    return [
        (seconds, config)
        for config, summary in session.execute(query)
        if isinstance(seconds := summary.get("last", {}).get("time/step_seconds"), float) and seconds > 0
    ]


def _policy_key(config: Mapping[str, Any]) -> tuple[object, ...]:
    return config["policy"]["name"], config["policy"]["dtype"]


def _size_key(config: Mapping[str, Any]) -> tuple[object, ...]:
    sampling, updates = config["sampling"], config["updates"]
    sizes = [sampling[key] for key in ("prompts_per_step", "group_size", "max_new_tokens")]
    return (
        *_policy_key(config),
        sampling.get("precision", "policy"),
        *sizes,
        updates["epochs"],
        updates["minibatches"],
        updates.get("rule", "adam"),
        updates.get("resample_each_epoch", False),
        config.get("filters", {}).get("refill", {"type": "none"}),
        _critic_epochs(config["objective"]),
    )


def _work_range(config: Mapping[str, Any]) -> tuple[float, float]:
    """Token passes through the policy in a step, at least and at most: refills, references, old policies.

    Generating a token is one pass, learning from it three, a natural gradient two for each of its iterations.
    """
    sampling, updates = config["sampling"], config["updates"]
    tokens = sampling["prompts_per_step"] * sampling["group_size"] * sampling["max_new_tokens"]
    refill = config.get("filters", {}).get("refill", {"type": "none"})
    fresh = updates["epochs"] if updates.get("resample_each_epoch") else 1
    batches = fresh * (refill.get("max_batches") or refill.get("n") or 1)
    learned = 3 * updates["epochs"]
    if updates.get("rule") == "natural_gradient":
        learned += 6 * updates["trust"]["cg_iters"] + updates["trust"]["backtracks"]
    epochs = _critic_epochs(config["objective"])
    critic = 4 * (epochs if isinstance(epochs, int) else 0 if epochs is None else updates["epochs"])
    return tokens * (fresh + learned + critic), tokens * (batches + learned + critic + 2)


def _critic_epochs(objective: Mapping[str, Any]) -> int | str | None:
    """Return how often a critic sees each step's completions (a word: as the policy does); None without a
    critic.
    """
    return objective["value"]["epochs"] if objective["advantage"]["type"] == "critic" else None


def _estimate_by_size(
    session: Session, config: RunConfig, models_dir: Path, min_work: float, max_work: float
) -> tuple[float, float]:
    small, large = _parameters(config.policy.name, models_dir)
    slow, fast = _device_speeds(session)
    in_turn = config.sampling.max_new_tokens * config.steps
    refills = config.filters.refill.batch_limit * config.updates.epochs
    # Completions may be much shorter than their cap.
    low = max(
        2 * small * min_work / fast / 10, TOKEN_SECONDS[0] * in_turn / 10, FASTEST_STEP_SECONDS * config.steps
    )
    return low, 2 * large * max_work / slow + TOKEN_SECONDS[1] * in_turn * refills


def _parameters(policy: str, models_dir: Path) -> tuple[float, float]:
    if policy in BUILT_IN_SIZES:
        return BUILT_IN_SIZES[policy], BUILT_IN_SIZES[policy]
    stored = sum(path.stat().st_size for path in (models_dir / policy).glob("*.safetensors"))
    if stored:
        return stored / 4, stored / 2  # of 32 or 16 bits
    if named := re.search(r"(\d+(?:\.\d+)?)[bB](?![a-zA-Z])", policy):
        return float(named[1]) * 1e9, float(named[1]) * 1e9
    return UNKNOWN_SIZE


def _device_speeds(session: Session) -> tuple[float, float]:
    """Return the speeds of the devices of this installation's workers, or of any device if none is known."""
    devices = {device for (device,) in session.execute(select(Worker.device).distinct())}
    has_gpu, has_cpu = (
        any("cuda" in device for device in devices),
        any("cuda" not in device for device in devices),
    )
    return (
        GPU_FLOPS[0] if has_gpu and not has_cpu else CPU_FLOPS[0],
        CPU_FLOPS[1] if has_cpu and not has_gpu else GPU_FLOPS[1],
    )
