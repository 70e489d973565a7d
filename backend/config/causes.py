"""The verdicts and causes that a diagnosis can report."""

from typing import Literal

Verdict = Literal["healthy", "recovered", "declining", "collapsed", "never_learned", "inconclusive"]

Cause = Literal[
    "non_finite",
    "verifier",
    "mismatch",
    "staleness",
    "router_drift",
    "update_size",
    "kl_pull",
    "kl_runaway",
    "entropy_explosion",
    "entropy_collapse",
    "displacement",
    "repetition",
    "broken_format",
    "language_mix",
    "length_blowup",
    "length_collapse",
    "reward_hacking",
    "overfitting",
    "vanishing_signal",
    "critic",
    "dead_run",
]
