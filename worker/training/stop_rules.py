"""Rules that end a run before its last step."""

from collections.abc import Sequence

from backend.config.run import StopAfterTime, StopAtAccuracy, StopOnNonFinite, StopRule
from worker.outcome import Outcome
from worker.training.run_counters import RunCounters
from worker.training.step_metrics import Metrics

EMPTY_STEPS = 20
"""A run stops after this many steps in a row without a single group that carries signal."""


def reason_to_end(rules: Sequence[StopRule], counters: RunCounters, metrics: Metrics) -> Outcome | None:
    """The outcome of the first stop rule that holds after a step; None while the run goes on."""
    if counters.empty_steps >= EMPTY_STEPS:
        return Outcome("stopped", "no_signal")
    for rule in rules:
        match rule:
            case StopAtAccuracy(value=value) if metrics.get("eval/accuracy", 0.0) >= value:
                return Outcome("finished", f"held-out accuracy reached {value:g}")
            case StopAfterTime(seconds=seconds) if counters.wall_seconds >= seconds:
                return Outcome("stopped", f"trained for {seconds:g} seconds")
            case StopOnNonFinite(patience=patience) if counters.skipped_steps >= patience:
                return Outcome("failed", f"{patience} steps in a row had no finite loss or gradient")
    return None
