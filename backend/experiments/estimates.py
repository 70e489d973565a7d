"""Estimate the time, the amount of data and the disk space of a run."""

from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.config.sizes import max_bytes, max_tokens
from backend.experiments.checkpoint_sizes import checkpoint_bytes, max_checkpoints
from backend.experiments.duration_estimate import estimate_duration

Estimates = dict[str, float | None]


def estimates(session: Session, config: RunConfig, settings: Settings, *, after_step: int = 0) -> Estimates:
    """Return the estimates for a run, or for a fork after the step `after_step`.

    `seconds` and `step_seconds` are None if no run of this size is known; the range is always present.
    """
    checkpoints = max_checkpoints(config, after_step=after_step)
    size = checkpoint_bytes(session, config, settings)
    time = estimate_duration(session, config, settings.models_dir)
    steps = config.steps - after_step
    share = steps / config.steps if after_step else 1.0
    return {
        "seconds": None if time.step_seconds is None else time.step_seconds * steps,
        "seconds_low": time.low * share,
        "seconds_high": time.high * share,
        "step_seconds": time.step_seconds,
        "like_runs": float(time.like_runs),
        "scaled_runs": float(time.scaled_runs),
        "completions": float(config.sampling.prompts_per_step * config.sampling.group_size * steps),
        "tokens_at_most": float(max_tokens(config, after_step=after_step)),
        "disk_bytes": float(max_bytes(config, after_step=after_step)),
        "checkpoints": float(checkpoints),
        "checkpoint_bytes": None if size is None else checkpoints * size,
    }
