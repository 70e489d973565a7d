"""Complete runs that are known to show something, on the built-in policy."""

from backend.config.base import Frozen
from backend.config.merge import resolve
from backend.config.run import RunConfig


class Recipe(Frozen):
    """A run that can be launched as it is."""

    title: str
    """Name as people say it."""

    note: str
    """What it shows."""

    config: RunConfig
    """The whole config; the seed is chosen at launch."""


RECIPES: dict[str, Recipe] = {
    "demo_healthy": Recipe(
        title="Demo: healthy",
        note="GRPO on sums with the correctness reward: held-out accuracy rises.",
        config=resolve({"preset": "grpo"}),
    ),
    "demo_collapse": Recipe(
        title="Demo: collapse",
        note="A format reward and a high learning rate: the reward is earned without a single right answer.",
        config=resolve(
            {
                "preset": "grpo",
                "optimizer": {"lr": 1e-3},
                "rewards": [
                    {"name": "correctness", "weight": 1.0},
                    {"name": "think_format", "weight": 0.2},
                ],
            }
        ),
    ),
}
