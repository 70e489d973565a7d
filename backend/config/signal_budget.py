"""The signal budget: the parts into which the completions, tokens and seconds of a step are divided."""

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
"""In the order of a step: sample, compare, filter, mask, clip, update. The first part that fits counts.

truncated: cut at the length cap.
equal_right, equal_wrong: it has a reward, and advantage 0; or it did not train, and its group has one reward
    only. Right is what is graded right, or ungraded with a reward above 0.
left_out: its group did not train.
masked: no token has a part in the gradient of the policy term.
clipped: each token that has one was clipped at its last update.
useful: all others.

Tokens of completions that come to one of the last three are divided among these by the same rule.
"""

UNITS: tuple[Unit, ...] = ("completions", "tokens", "seconds")


def budget_metric(category: Part, unit: Unit) -> str:
    """The metric that holds a part of a step's budget."""
    return f"time/signal/{category}" if unit == "seconds" else f"signal/{category}/{unit}"
