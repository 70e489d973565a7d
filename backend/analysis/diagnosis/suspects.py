"""Find suspect settings of a run that are far from the values of its preset and policy.

A suspect is only reported as a cause if the run failed. The larger its deviation, the higher it ranks. Its
remedy is to restore the value of the preset and the policy.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from backend.config import knobs
from backend.config.causes import Cause
from backend.config.merge import usual_config
from backend.config.recipes import RECIPES
from backend.config.rewards import LengthReward
from backend.config.run import RunConfig

LARGE_DEVIATION = 0.5
"""Deviation in orders of magnitude from which a setting explains more than subtle changes of metrics."""


class Suspect(NamedTuple):
    """A setting that may have caused a failure."""

    cause: Cause
    description: str
    """Description of the deviation."""
    changes: dict[str, Any]
    """Usual values of config fields by dotted path, which undo the deviation."""
    size: float
    """Deviation in orders of magnitude."""


def find_suspects(fields: Mapping[str, Any], parent: Mapping[str, Any] | None = None) -> dict[str, Suspect]:
    """Return the suspect with the largest deviation for each cause, from a config as JSON.

    A fork is compared with the config of its parent first, whose values are known to work; if it changed a
    setting by much, settings that it shares with its parent are no suspects. Settings of a recipe for the
    policy are none either.
    """
    try:
        config = RunConfig.model_validate(fields)
        usual = Standard(usual_config(config), "the preset and the policy start with")
        changes = list(_deviations(config, _standard_of_parent(parent))) if parent else []
    except ValidationError:
        return {}
    working_configs = [usual.config, *working_recipes(config)]
    if parent and any(suspect.size >= LARGE_DEVIATION for suspect in changes):
        working_configs.append(RunConfig.model_validate(parent))
    suspects: dict[str, Suspect] = {}
    for deviations in (changes, list(_deviations(config, usual))):
        for suspect in sorted(deviations, key=lambda suspect: -suspect.size):
            if not any(is_same(working, suspect.changes, config) for working in working_configs):
                suspects.setdefault(suspect.cause, suspect)
    return suspects


def unusual_values(config: RunConfig) -> list[str]:
    """Return warnings before a launch about values that are far from those of working runs.

    Working values are those of the preset and the policy, and those of the recipes for the policy.
    """
    suspects = find_suspects(_dump_config(config)).values()
    return [
        f"Unusual: {suspect.description}. If the run breaks, this is the first suspect."
        for suspect in sorted(suspects, key=lambda suspect: -suspect.size)
        if suspect.size >= LARGE_DEVIATION
    ]


def working_recipes(config: RunConfig) -> list[RunConfig]:
    """Return the configs of the recipes for a config's policy that learn."""
    return [
        recipe.config
        for recipe in RECIPES.values()
        if recipe.config.policy.name == config.policy.name and not recipe.collapses
    ]


class Standard(NamedTuple):
    """A config with which a run is compared."""

    config: RunConfig
    description: str
    """Description of the config, as the end of a sentence."""
    is_parent: bool = False


def _standard_of_parent(parent: Mapping[str, Any]) -> Standard:
    return Standard(RunConfig.model_validate(parent), "the run before the fork had", is_parent=True)


def _deviations(config: RunConfig, standard: Standard) -> Iterator[Suspect]:
    for rule in SUSPECT_RULES:
        yield from rule(config, standard)


def is_same(standard_config: RunConfig, paths: Iterable[str], config: RunConfig) -> bool:
    """Return whether the run has the usual values at these paths."""
    return all(_read_setting(standard_config, path) == _read_setting(config, path) for path in paths)


Suspects = Iterator[Suspect]


def _learning_rate(config: RunConfig, standard: Standard) -> Suspects:
    standard_config = standard.config
    rate, usual_rate = config.optimizer.lr, standard_config.optimizer.lr
    if rate <= 0 or usual_rate <= 0:
        return
    size = math.log10(rate / usual_rate)
    changes = {"optimizer.lr": usual_rate}
    if size > math.log10(2):
        yield Suspect("update_size", _times("optimizer.lr", rate, usual_rate, standard), changes, size)
    elif size < -1:
        yield Suspect("dead_run", _times("optimizer.lr", rate, usual_rate, standard), changes, -size)


def _entropy(config: RunConfig, standard: Standard) -> Suspects:
    standard_config = standard.config
    coef, usual_coef = _entropy_coef(config), _entropy_coef(standard_config)
    if coef == usual_coef or abs(coef) < MAX_USUAL_ENTROPY_COEF:
        return
    size = math.log10(abs(coef) / max(abs(usual_coef), MAX_USUAL_ENTROPY_COEF))
    cause: Cause = "entropy_explosion" if coef > 0 else "entropy_collapse"
    description = f"objective.entropy has coef {coef:g}, not the {usual_coef:g} that {standard.description}"
    yield Suspect(
        cause, description, {"objective.entropy": _dump_config(standard_config)["objective"]["entropy"]}, size
    )


MAX_USUAL_ENTROPY_COEF = 0.01
"""Entropy coefficient up to which a bonus is usual."""


def _entropy_coef(config: RunConfig) -> float:
    entropy = config.objective.entropy
    return entropy.coef if isinstance(entropy, knobs.EntropyBonus) else 0.0


def _kl(config: RunConfig, standard: Standard) -> Suspects:
    standard_config = standard.config
    kl_weight, usual_weight = _compute_kl_pull(config), _compute_kl_pull(standard_config)
    changes = {"objective.kl": _dump_config(standard_config)["objective"]["kl"]}
    if kl_weight > max(usual_weight, USUAL_KL_COEFFICIENT) * 2:
        size = math.log10(kl_weight / max(usual_weight, USUAL_KL_COEFFICIENT))
        usual_maximum = max(usual_weight, USUAL_KL_COEFFICIENT)
        description = (
            f"objective.kl pulls with {kl_weight:.3g} a completion; usual is at most {usual_maximum:.3g}"
        )
        yield Suspect("kl_pull", description, changes, size)
    elif usual_weight > 0 and kl_weight < usual_weight / 4:
        description = (
            f"objective.kl pulls with {kl_weight:.3g}, not the {usual_weight:.3g} that {standard.description}"
        )
        yield Suspect("kl_runaway", description, changes, LARGE_DEVIATION)


USUAL_KL_COEFFICIENT = 0.04
"""Coefficient of the KL in DeepSeekMath (arXiv:2402.03300), section 4.1."""


def _compute_kl_pull(config: RunConfig) -> float:
    """Return the effective weight of the mean KL per token."""
    kl = config.objective.kl
    if isinstance(kl, knobs.NoKl):
        return 0.0
    coef = max(kl.coef.values(), default=0.0) if isinstance(kl.coef, Mapping) else kl.coef
    is_sum = str(getattr(kl, "aggregation", "")) == "seq_sum"
    return float(coef or 0.0) * (config.sampling.max_new_tokens / 2 if is_sum else 1)


def _age_of_samples(config: RunConfig, standard: Standard) -> Suspects:
    standard_config = standard.config
    age, usual_age = _compute_sample_age(config), _compute_sample_age(standard_config)
    if age < 2 * usual_age:
        return
    description = (
        f"a batch serves {config.updates.epochs} x {config.updates.minibatches} updates and is "
        f"{config.sampling.staleness} steps old; usual are "
        f"{standard_config.updates.epochs} x {standard_config.updates.minibatches} "
        f"and {standard_config.sampling.staleness}"
    )
    paths = ("updates.epochs", "updates.minibatches", "sampling.staleness", "sampling.ahead")
    changes = {
        path: _read_setting(standard_config, path)
        for path in paths
        if _read_setting(config, path) != _read_setting(standard_config, path)
    }
    yield Suspect("staleness", description, changes, math.log10(age / usual_age))


def _compute_sample_age(config: RunConfig) -> float:
    updates = config.updates.epochs * config.updates.minibatches
    return updates * (1 + config.sampling.staleness + config.sampling.ahead)


def _rewards(config: RunConfig, standard: Standard) -> Suspects:
    standard_config = standard.config
    if config.rewards == standard_config.rewards:
        return
    changes = {"rewards": _dump_config(standard_config)["rewards"]}
    correct_weight = sum(term.weight for term in config.rewards if term.name == "correctness")
    has_usual = any(term.name == "correctness" for term in standard_config.rewards)
    other_weight = sum(
        term.weight for term in config.rewards if term.name != "correctness" and term.weight > 0
    )
    if has_usual and correct_weight < 0:
        yield Suspect("reward_hacking", f"right answers cost {-correct_weight:g}", changes, 1.5)
    elif has_usual and other_weight > correct_weight / 2:
        description = f"terms beside correctness pay {other_weight:g}, a right answer {correct_weight:g}"
        yield Suspect(
            "reward_hacking",
            description,
            changes,
            min(1.5, math.log10(1 + other_weight / max(correct_weight, 0.05))),
        )
    brevity_weight = sum(term.weight for term in config.rewards if isinstance(term, LengthReward))
    if brevity_weight > 0:
        description = f"the length term pays brevity with a weight of {brevity_weight:g}"
        yield Suspect("length_collapse", description, changes, math.log10(1 + 3 * brevity_weight))


def _verifier(config: RunConfig, standard: Standard) -> Suspects:
    standard_config = standard.config
    checks, usual_checks = (
        [term.model_dump() for term in compared_config.rewards if term.name == "correctness"]
        for compared_config in (config, standard_config)
    )
    names = [
        name
        for check, usual_check in zip(checks, usual_checks, strict=False)
        for name in ("extraction", "grader", "timeout_seconds")
        if check[name] != usual_check[name]
    ]
    if names:
        description = f"correctness has another {', '.join(names)} than that {standard.description}"
        yield Suspect(
            "verifier", description, {"rewards": _dump_config(standard_config)["rewards"]}, LARGE_DEVIATION
        )
    if config.problems != standard_config.problems and standard.is_parent:
        description = "the fork trains other problems than the run before it"
        yield Suspect(
            "verifier", description, {"problems": _dump_config(standard_config)["problems"]}, LARGE_DEVIATION
        )


def _cap(config: RunConfig, standard: Standard) -> Suspects:
    standard_config = standard.config
    cap, usual_cap = config.sampling.max_new_tokens, standard_config.sampling.max_new_tokens
    if cap * 1.5 > usual_cap:
        return
    changes = {"sampling.max_new_tokens": usual_cap}
    description = _times("sampling.max_new_tokens", cap, usual_cap, standard)
    yield Suspect("length_blowup", description, changes, 2 * math.log10(usual_cap / cap))


SUSPECT_RULES: tuple[Callable[[RunConfig, Standard], Suspects], ...] = (
    _learning_rate,
    _entropy,
    _kl,
    _age_of_samples,
    _rewards,
    _verifier,
    _cap,
)


def _times(path: str, value: float, standard_config: float, standard: Standard) -> str:
    ratio = value / standard_config
    share = f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"
    return f"{path} is {value:g}, {share} the {standard_config:g} that {standard.description}"


def _dump_config(config: RunConfig) -> dict[str, Any]:
    return config.model_dump(mode="json")


def _read_setting(config: RunConfig, path: str) -> Any:
    value: Any = _dump_config(config)
    for key in path.split("."):
        value = value[key]
    return value
