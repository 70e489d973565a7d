"""Config changes that may remedy each cause, in the order of preference.

A change is only offered if the resulting config is valid and differs from that of the run.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from backend.config import knobs
from backend.config.merge import merge, nest_paths, usual_config
from backend.config.rewards import LengthReward
from backend.config.run import RunConfig

Changes = dict[str, Any]
"""New values of config fields by dotted path."""
Remedies = Iterator[Changes]

MAX_KL_COEFFICIENT = 0.04
"""Maximum coefficient of k3, from DeepSeekMath (arXiv:2402.03300), section
4.1. It is not comparable for KL sums.
"""

CLIP_HIGHER_RATIO = 1.4
"""Ratio of DAPO's upper clip 0.28 to PPO's 0.2."""

PRETRAIN_STEPS = 50
"""Number of steps for which VAPO (arXiv:2504.05118) pretrains the critic."""

FORMAT_TERMS = frozenset({"think_format", "boxed_format"})

MIN_LEARNING_RATE = 1e-8
"""Learning rate below which the value is assumed to be a mistake."""


def first_change(cause: str, fields: Mapping[str, Any]) -> Changes:
    """Return the first applicable change of a config for a cause, or {} if there is none."""
    try:
        config = RunConfig.model_validate(fields)
    except ValidationError:
        return {}  # a config of another version, which cannot be forked either
    for changes in CHANGES_BY_CAUSE[cause](config) if cause in CHANGES_BY_CAUSE else ():
        if is_valid_change(fields, changes):
            return changes
    return {}


def is_valid_change(fields: Mapping[str, Any], changes: Changes) -> bool:
    """Return whether the changes result in a valid and different config."""
    try:
        config = RunConfig.model_validate(fields)
        return RunConfig.model_validate(merge(config.model_dump(mode="json"), nest_paths(changes))) != config
    except ValidationError:
        return False


def _smaller_updates(config: RunConfig) -> Remedies:
    if config.updates.rule == "natural_gradient":  # the learning rate is only used for the critic
        yield {"updates.trust.delta": _round_setting(config.updates.trust.delta / 3)}
        return
    norm_change = {"optimizer.max_grad_norm": 1.0} if config.optimizer.max_grad_norm > 1 else {}
    yield {"optimizer.lr": _round_setting(config.optimizer.lr / 3)} | norm_change


def _less_entropy(config: RunConfig) -> Remedies:
    if getattr(config.objective.entropy, "coef", 0) > 0 or config.objective.entropy.type == "adaptive":
        yield {"objective.entropy": {"type": "none"}}
    yield from _smaller_updates(config)


def _more_entropy(config: RunConfig) -> Remedies:
    if getattr(config.objective.entropy, "coef", 0) < 0:
        yield {"objective.entropy": {"type": "none"}}
    surrogate = config.objective.surrogate
    updates = config.updates.epochs * config.updates.minibatches
    is_clipped = updates > 1 or config.sampling.staleness > 0 or config.sampling.ahead > 0
    if is_clipped and isinstance(surrogate, knobs.PpoClip) and surrogate.eps_high <= surrogate.eps_low:
        yield {"objective.surrogate.eps_high": _round_setting(CLIP_HIGHER_RATIO * surrogate.eps_high)}
    yield {"objective.entropy": {"type": "adaptive"}}


def _fresh_samples(config: RunConfig) -> Remedies:
    changes: Changes = {"updates.resample_each_epoch": False} if config.updates.resample_each_epoch else {}
    if config.sampling.ahead:
        changes["sampling.ahead"] = 0
    yield {"updates.epochs": 1, "updates.minibatches": 1, "sampling.staleness": 0} | changes


def _same_probabilities(config: RunConfig) -> Remedies:
    sampling = config.sampling
    changes: Changes = {"sampling.precision": "policy"}
    if (sampling.top_p < 1 or sampling.top_k > 0) and not sampling.keep_mask:
        changes["sampling.keep_mask"] = True
    yield changes | {"objective.correction": {"type": "token_tis", "cap": 2.0}}
    yield changes
    if config.policy.dtype != "float32":
        yield {"policy.dtype": "float32"}


def _same_experts(_: RunConfig) -> Remedies:
    yield {"sampling.routing_replay": True}
    yield {"objective.router": {"type": "router_shift"}}


def _other_pull(config: RunConfig) -> Remedies:
    kl = config.objective.kl
    if isinstance(kl, knobs.NoKl):
        return
    yield {
        "objective.kl": {
            "type": "k3",
            "coef": _changed_coef(kl.coef, lambda coef: min(coef or 0.01, MAX_KL_COEFFICIENT)),
        }
    }
    yield {"objective.kl.coef": _changed_coef(kl.coef, lambda coef: _round_setting(coef / 4))}


def _stronger_pull(config: RunConfig) -> Remedies:
    kl = config.objective.kl
    if not isinstance(kl, knobs.NoKl):
        yield {"objective.kl": {"type": "k3", "coef": _changed_coef(kl.coef, lambda coef: 2 * coef or 0.01)}}
    yield {"objective.kl": {"type": "k3", "coef": 0.01}}


def _imitation(config: RunConfig) -> Remedies:
    yield {"objective.nll": {"type": "positive", "coef": 0.1}}
    yield {"objective.nll.coef": 2 * getattr(config.objective.nll, "coef", 0)}


def _no_cut_ones(_: RunConfig) -> Remedies:
    yield {"length.truncated": {"type": "mask"}}
    yield {"length.penalty": {"type": "soft_overlong"}}


def _no_loops(config: RunConfig) -> Remedies:
    yield {"length.truncated": {"type": "mask"}}
    yield from _stronger_pull(config)


def _required_format(config: RunConfig) -> Remedies:
    """Require the formats of all format terms, or a box if lenient extraction does not require one."""
    if any(term.name in FORMAT_TERMS for term in config.rewards):
        yield _rewards(config, _as_condition)
    elif any(getattr(term, "extraction", "") == "lenient" for term in config.rewards):
        yield _rewards(config, _as_condition, [{"name": "boxed_format", "weight": 0.0, "required": True}])


def _as_condition(term: Changes) -> Changes:
    """Return the changes that make a format term a condition.

    Completions without the format get 0, so wrong answers must not get less.
    """
    if term["name"] in FORMAT_TERMS:
        return {"weight": 0.0, "required": True}
    return {"map": "0/1"} if term["name"] == "correctness" else {}


def _one_script(config: RunConfig) -> Remedies:
    if all(term.name != "language" for term in config.rewards):
        yield _rewards(config, further_terms=[{"name": "language", "weight": 0.1}])
    required = {"form": "consistent", "required": True}
    yield _rewards(config, lambda term: required if term["name"] == "language" else {})


def _longer(config: RunConfig) -> Remedies:
    if any(isinstance(term, LengthReward) and term.weight > 0 for term in config.rewards):
        yield _rewards(config, lambda term: {"weight": 0.0} if term["name"] == "length" else {})
    yield {"length.penalty": {"type": "none"}}
    yield from _required_format(config)
    if config.objective.aggregation.type == "seq_mean_token_mean":
        yield {"objective.aggregation": {"type": "seq_mean_token_sum_norm"}}


def _earned_rewards(config: RunConfig) -> Remedies:
    """Reward only right answers, and reduce the weight of terms that cannot depend on correctness."""
    if all(term.name != "correctness" for term in config.rewards):
        yield _rewards(config, _quarter)
        return
    yield _rewards(config, _only_when_correct)
    yield _rewards(config, _quarter)


def _only_when_correct(term: Changes) -> Changes:
    weight = term["weight"]
    if term["name"] == "correctness":
        return {} if weight > 0 else {"weight": -weight or 1.0}
    if weight <= 0:
        return {}
    return {"only_when_correct": True} if "only_when_correct" in term else {"weight": weight / 4}


def _quarter(term: Changes) -> Changes:
    is_reduced = term["name"] != "correctness" and term["weight"] > 0
    return {"weight": term["weight"] / 4} if is_reduced else {}


def _rewards(
    config: RunConfig,
    change: Callable[[Changes], Changes] = lambda _: {},
    further_terms: list[Changes] | None = None,
) -> Changes:
    """Return the complete list of reward terms with changes and additional terms."""
    terms = [term.model_dump(mode="json") for term in config.rewards]
    return {"rewards": [*(term | change(term) for term in terms), *(further_terms or [])]}


def _nearer_to_the_start(config: RunConfig) -> Remedies:
    if isinstance(config.objective.kl, knobs.NoKl):
        yield {"objective.kl": {"type": "k3", "coef": 0.01}}
    yield from _smaller_updates(config)


def _other_groups(config: RunConfig) -> Remedies:
    if config.filters.groups.type == "none":
        yield {"filters.groups": {"type": "zero_variance"}, "filters.refill": {"type": "dynamic"}}
    yield {"filters.refill": {"type": "dynamic"}}
    yield {"sampling.group_size": 2 * config.sampling.group_size}


def _better_critic(config: RunConfig) -> Remedies:
    """Use VAPO's pretraining and learning rate, or else more passes of the critic."""
    if config.objective.critic is None:
        return
    value = config.objective.value
    vapo_changes = {"objective.value.lr_factor": 2.0}
    if value.pretrain_steps < PRETRAIN_STEPS < config.steps:
        vapo_changes["objective.value.pretrain_steps"] = PRETRAIN_STEPS
    yield vapo_changes
    passes = config.updates.epochs if value.epochs == "updates.epochs" else value.epochs
    yield {"objective.value.epochs": 2 * passes}


def _some_rate(config: RunConfig) -> Remedies:
    """Use a normal learning rate, a shorter warm-up or a normal gradient norm if they prevent learning."""
    if config.optimizer.lr < MIN_LEARNING_RATE:
        yield {"optimizer.lr": usual_config(config).optimizer.lr}
    if 2 * config.optimizer.warmup_steps > config.steps:
        yield {"optimizer.warmup_steps": config.steps // 10}
    if config.optimizer.max_grad_norm < MIN_LEARNING_RATE:
        yield {"optimizer.max_grad_norm": 1.0}


def _changed_coef(coef: Any, change: Callable[[float], float]) -> Any:
    """Apply a change to a coefficient, or to the coefficient of each domain."""
    if isinstance(coef, Mapping):
        return {domain: change(value) for domain, value in coef.items()}
    return change(coef)


def _round_setting(value: float) -> float:
    return float(f"{value:.3g}")


CHANGES_BY_CAUSE: dict[str, Callable[[RunConfig], Remedies]] = {
    "non_finite": _smaller_updates,
    "mismatch": _same_probabilities,
    "staleness": _fresh_samples,
    "router_drift": _same_experts,
    "update_size": _smaller_updates,
    "kl_pull": _other_pull,
    "kl_runaway": _stronger_pull,
    "entropy_explosion": _less_entropy,
    "entropy_collapse": _more_entropy,
    "displacement": _imitation,
    "repetition": _no_loops,
    "broken_format": _required_format,
    "language_mix": _one_script,
    "length_blowup": _no_cut_ones,
    "length_collapse": _longer,
    "reward_hacking": _earned_rewards,
    "overfitting": _nearer_to_the_start,
    "vanishing_signal": _other_groups,
    "critic": _better_critic,
    "dead_run": _some_rate,
}
"""Functions that yield the changes for each cause. A wrong verifier cannot be fixed by the config."""
