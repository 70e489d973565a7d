"""The detectors, one pure function per cause, which return a finding, missing data or None.

The docstring of a detector describes its evidence for the table of causes in the documentation.
"""

from backend.analysis.diagnosis.detectors import behaviour, goal, optimization
from backend.analysis.diagnosis.signs import Detector
from backend.config.causes import Cause

VERSION = 7
"""Version of the detectors. Ended runs are diagnosed again when it changes.

Increment it with every change of a detector, a threshold or a rule of the verdict.
"""

DETECTORS: dict[Cause, Detector] = {
    "non_finite": optimization.non_finite,
    "verifier": goal.verifier,
    "mismatch": behaviour.mismatch,
    "staleness": behaviour.staleness,
    "router_drift": behaviour.router_drift,
    "update_size": optimization.update_size,
    "kl_pull": optimization.kl_pull,
    "kl_runaway": optimization.kl_runaway,
    "entropy_explosion": behaviour.entropy_explosion,
    "entropy_collapse": behaviour.entropy_collapse,
    "displacement": optimization.displacement,
    "repetition": behaviour.repetition,
    "broken_format": behaviour.broken_format,
    "language_mix": behaviour.language_mix,
    "length_blowup": behaviour.length_blowup,
    "length_collapse": behaviour.length_collapse,
    "reward_hacking": goal.reward_hacking,
    "overfitting": goal.overfitting,
    "vanishing_signal": goal.vanishing_signal,
    "critic": optimization.critic,
    "dead_run": optimization.dead_run,
}
