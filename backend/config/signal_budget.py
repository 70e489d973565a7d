"""The signal budget, which divides the completions, tokens and seconds of a step into parts."""

from typing import Literal

Part = Literal["truncated", "equal_right", "equal_wrong", "left_out", "masked", "clipped", "useful"]
Unit = Literal["completions", "tokens", "seconds"]

PARTS: tuple[Part, ...] = (
    "truncated",
    "equal_right",
    "equal_wrong",
    "left_out",
    "masked",
    "clipped",
    "useful",
)
"""Parts of a step's signal budget, in the order of the step: sample, compare, filter, mask, clip, update.

A completion belongs to the first part that fits.

truncated: cut at the length cap.
equal_right, equal_wrong: the completion has a reward and advantage 0, or it did not train and its group has
    only one reward. A completion is right if it is graded right, or ungraded with a reward above 0.
left_out: the completion's group did not train.
masked: no token contributes to the gradient of the policy term.
clipped: each contributing token was clipped at its last update.
useful: all other completions.

Tokens of completions in the last three parts are divided among these parts by the same rule.
"""

UNITS: tuple[Unit, ...] = ("completions", "tokens", "seconds")


def budget_metric(category: Part, unit: Unit) -> str:
    """Return the name of the metric for a part of the signal budget."""
    return f"time/signal/{category}" if unit == "seconds" else f"signal/{category}/{unit}"
