"""Estimate the duration of a run from similar runs, other runs of its policy, or the size of the policy."""

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

MAX_PAST_RUNS = 300
"""Number of newest runs whose step time is read."""

SPREAD_FACTOR = 1.25
"""Factor by which a step may be faster or slower than steps of the same size."""

SCALED_SPREAD_FACTOR = 2.0
"""Factor by which a step may be faster or slower if its time is scaled from runs of other sizes."""

CPU_FLOPS, GPU_FLOPS = (1e10, 2e11), (1e12, 2e14)
"""Operations per second of a slow and a fast machine, which cover small and large batches."""

TOKEN_SECONDS_RANGE = 2e-4, 0.03
"""Minimum and maximum seconds per sequential token of a completion, even for a tiny model."""

FASTEST_STEP_SECONDS = 0.02
"""Minimum duration of a step in seconds: sampling, learning and recording."""

BUILT_IN_SIZES = {TINY.name: 0.8e6, TINY_MOE.name: 1.8e6}
UNKNOWN_SIZE_RANGE = (0.5e9, 8e9)
"""Number of parameters, at least and at most, of a policy of unknown size."""


@dataclass(frozen=True, slots=True)
class Duration:
    """Estimated duration of a run's steps, in seconds, and the basis of the estimate."""

    low: float
    high: float
    step_seconds: float | None = None
    """Median of the step times of runs of the same size; None if there are none."""
    like_runs: int = 0
    """Number of measured runs of the same size."""
    scaled_runs: int = 0
    """Number of runs of the policy at other sizes from which the estimate is scaled, if no run has the same
    size.
    """


def estimate_duration(session: Session, config: RunConfig, models_dir: Path) -> Duration:
    """Return the estimated duration of a run's steps as a range, which is wider if less is known."""
    return estimate_durations(session, [config], models_dir)[0]


def count_slots(session: Session, configs: Sequence[RunConfig]) -> list[int]:
    """Return the number of worker slots per run: one per GPU, or one per node without GPUs."""
    is_gpu = Worker.device.startswith("cuda")
    has_gpus = session.scalar(select(Worker.id).where(is_gpu).limit(1)) is not None
    return [config.resources.ranks if has_gpus else config.resources.nodes for config in configs]


def estimate_durations(session: Session, configs: Sequence[RunConfig], models_dir: Path) -> list[Duration]:
    """Return the estimated durations of many runs, with one query for past runs and one estimate per size."""
    past_runs = _load_past_runs(session)
    duration_by_size: dict[str, Duration] = {}
    estimates = []
    for config in configs:
        document = config.model_dump(mode="json")
        size = repr((_size_key(document), _work_range(document), config.steps))
        if size not in duration_by_size:
            duration_by_size[size] = _duration(session, config, document, past_runs, models_dir)
        estimates.append(duration_by_size[size])
    return estimates


def _duration(
    session: Session,
    config: RunConfig,
    document: Mapping[str, Any],
    measurements: Sequence[tuple[float, dict[str, Any]]],
    models_dir: Path,
) -> Duration:
    if step_times := [
        seconds for seconds, past_config in measurements if _size_key(past_config) == _size_key(document)
    ]:
        step = statistics.median(step_times)
        low, high = (
            min(step_times) / SPREAD_FACTOR * config.steps,
            max(step_times) * SPREAD_FACTOR * config.steps,
        )
        return Duration(low, high, step, like_runs=len(step_times))
    seconds_per_pass = [
        (seconds / _work_range(past_config)[1], seconds / _work_range(past_config)[0])
        for seconds, past_config in measurements
        if _policy_key(past_config) == _policy_key(document)
    ]
    min_work, max_work = (work_per_step * config.steps for work_per_step in _work_range(document))
    if seconds_per_pass:
        low, high = min(rate for rate, _ in seconds_per_pass), max(rate for _, rate in seconds_per_pass)
        return Duration(
            low * min_work / SCALED_SPREAD_FACTOR,
            high * max_work * SCALED_SPREAD_FACTOR,
            scaled_runs=len(seconds_per_pass),
        )
    return Duration(*_estimate_by_size(session, config, models_dir, min_work, max_work))


def _load_past_runs(session: Session) -> Sequence[tuple[float, dict[str, Any]]]:
    """Return the step times and the configs of the newest runs that have trained."""
    query = (
        select(Run.config, Run.summary)
        .where(Run.last_step > 0, Run.origin == "")
        .order_by(Run.created_at.desc())
        .limit(MAX_PAST_RUNS)
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
    """Return the minimum and maximum number of token passes through the policy in a step.

    The maximum includes refills, references and old policies. Generating a token is one pass, learning from
    it three, and a natural gradient two for each of its iterations.
    """
    sampling, updates = config["sampling"], config["updates"]
    tokens = sampling["prompts_per_step"] * sampling["group_size"] * sampling["max_new_tokens"]
    refill = config.get("filters", {}).get("refill", {"type": "none"})
    sampled_epochs = updates["epochs"] if updates.get("resample_each_epoch") else 1
    batches = sampled_epochs * (refill.get("max_batches") or refill.get("n") or 1)
    learning_passes = 3 * updates["epochs"]
    if updates.get("rule") == "natural_gradient":
        learning_passes += 6 * updates["trust"]["cg_iters"] + updates["trust"]["backtracks"]
    epochs = _critic_epochs(config["objective"])
    critic = 4 * (epochs if isinstance(epochs, int) else 0 if epochs is None else updates["epochs"])
    return tokens * (sampled_epochs + learning_passes + critic), tokens * (
        batches + learning_passes + critic + 2
    )


def _critic_epochs(objective: Mapping[str, Any]) -> int | str | None:
    """Return how often a critic learns from each step's completions: a number, a word for "as often as the
    policy", or None without a critic.
    """
    return objective["value"]["epochs"] if objective["advantage"]["type"] == "critic" else None


def _estimate_by_size(
    session: Session, config: RunConfig, models_dir: Path, min_work: float, max_work: float
) -> tuple[float, float]:
    min_parameters, max_parameters = _parameters(config.policy.name, models_dir)
    slow, fast = _device_speeds(session)
    sequential_tokens = config.sampling.max_new_tokens * config.steps
    refills = config.filters.refill.batch_limit * config.updates.epochs
    # Completions may be much shorter than their limit.
    low = max(
        2 * min_parameters * min_work / fast / 10,
        TOKEN_SECONDS_RANGE[0] * sequential_tokens / 10,
        FASTEST_STEP_SECONDS * config.steps,
    )
    return low, 2 * max_parameters * max_work / slow + TOKEN_SECONDS_RANGE[1] * sequential_tokens * refills


def _parameters(policy: str, models_dir: Path) -> tuple[float, float]:
    if policy in BUILT_IN_SIZES:
        return BUILT_IN_SIZES[policy], BUILT_IN_SIZES[policy]
    stored_bytes = sum(path.stat().st_size for path in (models_dir / policy).glob("*.safetensors"))
    if stored_bytes:
        return stored_bytes / 4, stored_bytes / 2  # 32 or 16 bits per parameter
    if size_match := re.search(r"(\d+(?:\.\d+)?)[bB](?![a-zA-Z])", policy):
        return float(size_match[1]) * 1e9, float(size_match[1]) * 1e9
    return UNKNOWN_SIZE_RANGE


def _device_speeds(session: Session) -> tuple[float, float]:
    """Return the lowest and highest speed of the installed devices, or of any if none are known."""
    devices = {device for (device,) in session.execute(select(Worker.device).distinct())}
    has_gpu, has_cpu = (
        any("cuda" in device for device in devices),
        any("cuda" not in device for device in devices),
    )
    return (
        GPU_FLOPS[0] if has_gpu and not has_cpu else CPU_FLOPS[0],
        CPU_FLOPS[1] if has_cpu and not has_gpu else GPU_FLOPS[1],
    )
