"""Recipes that learn, and the causes that are planted in them.

A mid-run plant is a fork of a healthy run at step `PLANTED_STEP`, whose log begins with the healthy steps.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from backend.config.base import Frozen
from backend.config.presets import PRESETS

PLANTED_STEP = 40
"""Step after which a mid-run plant takes effect."""

STEP_COUNT = 80
HELD_OUT_PROBLEMS = 1024
"""Number of problems per evaluation, from which the labels are derived."""

Split = Literal["build", "unseen"]


class Recipe(Frozen):
    """Config of a healthy run."""

    split: Split
    config: Mapping[str, Any]
    is_planted: bool = True
    """Whether causes are planted in the recipe. Otherwise it only has healthy runs."""


class Plant(Frozen):
    """A cause with three severities."""

    cause: str
    when: Literal["start", "mid"]
    severities: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
    """Fields of RunConfig that override those of the recipe, for each severity."""


class Planted(NamedTuple):
    """One run of the suite."""

    recipe: str
    plant: str
    """Name of the plant, or "" for a healthy run."""
    severity: int
    seed: int


def _recipe(split: Split, preset: str, *, is_planted: bool = True, **fields: Any) -> Recipe:
    base: dict[str, Any] = {
        "preset": preset,
        "steps": STEP_COUNT,
        "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 64},
        "problems": [{"name": "file", "path": "sums.jsonl"}],
        "evaluation": {"every": 10, "prompts": HELD_OUT_PROBLEMS},
        "checkpointing": {"every": PLANTED_STEP, "keep": 2},
        "recording": {"rollouts": "none", "tokens": False},
        "stop_rules": [],
    }
    return Recipe(split=split, config=base | fields, is_planted=is_planted)


RECIPE_BY_NAME: dict[str, Recipe] = {
    "grpo": _recipe("build", "grpo"),
    "dapo": _recipe("build", "dapo", sampling={"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 64}),
    "dr_grpo": _recipe(
        "unseen", "dr_grpo", sampling={"prompts_per_step": 6, "group_size": 12, "max_new_tokens": 48}
    ),
    "gspo": _recipe(
        "unseen", "gspo", sampling={"prompts_per_step": 16, "group_size": 4, "max_new_tokens": 64}
    ),
}

RECIPE_BY_NAME |= {
    f"preset {name}": _recipe("unseen", name, is_planted=False)
    for name in PRESETS
    if name not in RECIPE_BY_NAME
}

HEALTHY_SEED_COUNT = 8
"""Number of seeds per healthy run. Five of them were added after the first look at the unseen part, which had
too few healthy runs for a narrow interval. No detector has changed since.
"""


def _lr(value: float) -> dict[str, Any]:
    return {"optimizer": {"lr": value}}


def _kl(coef: float) -> dict[str, Any]:
    return {"objective": {"kl": {"type": "k1", "coef": coef, "aggregation": "seq_sum"}}}


def _entropy(coef: float) -> dict[str, Any]:
    return {"objective": {"entropy": {"type": "bonus", "coef": coef}}}


def _cap(tokens: int) -> dict[str, Any]:
    return {"sampling": {"max_new_tokens": tokens}}


def _file(name: str) -> dict[str, Any]:
    return {"problems": [{"name": "file", "path": f"{name}.jsonl"}]}


def _reward(weight: float) -> dict[str, Any]:
    """Return a reward with a sign error, which penalises correct answers and rewards the format."""
    terms = [{"name": "correctness", "weight": weight}, {"name": "think_format", "weight": 1.0}]
    return {"rewards": terms}


def _sampled_in(precision: str) -> dict[str, Any]:
    return {"sampling": {"precision": precision}}


def _stale(versions: int, minibatches: int) -> dict[str, Any]:
    return {
        "sampling": {"staleness": versions},
        "updates": {"epochs": 2, "minibatches": minibatches},
        "optimizer": {"lr": 1e-3},
    }


PLANT_BY_NAME: dict[str, Plant] = {
    "lr": Plant(cause="update_size", when="mid", severities=(_lr(3e-3), _lr(1e-2), _lr(3e-2))),
    "k1_sum": Plant(cause="kl_pull", when="mid", severities=(_kl(0.6), _kl(1.0), _kl(3.0))),
    "entropy_bonus": Plant(
        cause="entropy_explosion", when="mid", severities=(_entropy(0.1), _entropy(0.3), _entropy(1.0))
    ),
    "entropy_penalty": Plant(
        cause="entropy_collapse", when="mid", severities=(_entropy(-0.3), _entropy(-1.0), _entropy(-3.0))
    ),
    "cap": Plant(cause="length_blowup", when="mid", severities=(_cap(24), _cap(16), _cap(8))),
    "wrong_answers": Plant(
        cause="verifier", when="mid", severities=(_file("wrong_60"), _file("wrong_80"), _file("wrong_100"))
    ),
    "reward": Plant(
        cause="reward_hacking", when="mid", severities=(_reward(-0.3), _reward(-1.0), _reward(-3.0))
    ),
    "stale": Plant(cause="staleness", when="mid", severities=(_stale(4, 2), _stale(8, 4), _stale(16, 4))),
    "no_rate": Plant(cause="dead_run", when="start", severities=(_lr(1e-12), _lr(1e-11), _lr(1e-10))),
    "lr_start": Plant(cause="update_size", when="start", severities=(_lr(5e-3), _lr(1e-2), _lr(3e-2))),
    "k1_sum_start": Plant(cause="kl_pull", when="start", severities=(_kl(0.6), _kl(1.0), _kl(3.0))),
    "wrong_start": Plant(
        cause="verifier", when="start", severities=(_file("wrong_80"), _file("wrong_100"), _file("wrong_100"))
    ),
}

LATER_PLANTS: dict[str, Plant] = {
    "precision": Plant(
        cause="mismatch",
        when="mid",
        severities=(_sampled_in("bfloat16"), _sampled_in("int8"), _sampled_in("int8")),
    ),
    "leak": Plant(
        cause="overfitting",
        when="mid",
        severities=(_file("leaked_60"), _file("leaked_80"), _file("leaked_100")),
    ),
}
"""Plants that were added after the unseen part had been examined, with a separate table."""

ALL_PLANTS = PLANT_BY_NAME | LATER_PLANTS


def later(seeds: int) -> Iterator[Planted]:
    """Yield all runs with later plants, in the recipes of the unseen part."""
    for seed in range(seeds):
        for severity in (2, 1, 0):
            for name, recipe in RECIPE_BY_NAME.items():
                for plant in LATER_PLANTS if recipe.is_planted and recipe.split == "unseen" else ():
                    yield Planted(name, plant, severity, seed)


def suite(split: Split, seeds: int = 5) -> Iterator[Planted]:
    """Yield all runs of a part, seed by seed, each healthy run before the plants that fork from it."""
    for seed in range(max(seeds, HEALTHY_SEED_COUNT)):
        for severity in (2, 1, 0):
            for name, recipe in RECIPE_BY_NAME.items():
                if recipe.split != split:
                    continue
                if severity == 2:
                    yield Planted(name, "", 0, seed)
                for plant in PLANT_BY_NAME if recipe.is_planted and seed < seeds else ():
                    yield Planted(name, plant, severity, seed)
