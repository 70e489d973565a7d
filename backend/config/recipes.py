"""Complete configs of example runs with known outcomes."""

from functools import partial

from backend.config.base import Frozen
from backend.config.merge import resolve
from backend.config.policies import make_profile
from backend.config.run import RunConfig


class Recipe(Frozen):
    """An example run that can be launched without changes."""

    title: str
    """Name of the recipe in the form."""

    note: str
    """Description of the run and of its expected outcome."""

    config: RunConfig
    """Complete config. The seed is chosen at launch."""

    collapses: bool = False
    """Whether the run is expected to collapse."""


SMOLLM2_SUMS = {
    "preset": "grpo",
    "steps": 60,
    # The model is far better at completing "74 + 30 =" than at answering it in a chat.
    "policy": {"name": "SmolLM2-135M-Instruct", "chat_template": False},
    "problems": [
        {
            "name": "reasoning_gym",
            "task": "chain_sum",
            "task_config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
            "instruction": "",
        }
    ],
    "rewards": [{"name": "correctness", "extraction": "lenient"}],
    "sampling": {"max_new_tokens": 8},
    "evaluation": {"every": 20, "prompts": 128},
}

RECIPES: dict[str, Recipe] = {
    "demo_healthy": Recipe(
        title="Demo: healthy",
        note="GRPO on sums with the correctness reward: held-out accuracy rises.",
        config=resolve({"preset": "grpo", "steps": 80}),
    ),
    "demo_collapse": Recipe(
        title="Demo: collapse",
        note="A learning rate that warms up to ten times the usual one, and a format reward with the same "
        "weight as correctness: the run learns, then the reward settles at that of the format alone while "
        "held-out accuracy falls to 0.",
        config=resolve(
            {
                "preset": "dr_grpo",
                "steps": 40,
                "optimizer": {"lr": 3e-3, "warmup_steps": 20},
                "evaluation": {"every": 5},
                # A checkpoint before the onset is needed to try a remedy.
                "checkpointing": {"every": 10},
                "rewards": [
                    {"name": "correctness", "weight": 1.0},
                    {"name": "think_format", "weight": 1.0},
                ],
            }
        ),
        collapses=True,
    ),
    "smollm2_sums": Recipe(
        title="SmolLM2: sums and differences",
        note="A pretrained model learns to add and subtract two numbers of one or two digits. `make model` "
        "installs it; a step takes half a minute to a minute on one busy core.",
        config=resolve(SMOLLM2_SUMS, profile=partial(make_profile, is_small=True)),
    ),
}
