"""The legend of a formula, with the meaning and unit of each symbol."""

from collections.abc import Callable, Mapping
from typing import TypedDict

from backend.config.formula.meanings import MEANINGS
from backend.config.formula.notation import math_element
from backend.config.formula.shaped_reward import term_name
from backend.config.objective import Objective
from backend.config.rewards import RewardTerm
from backend.config.run import RunConfig

ELEMENTARY_FUNCTIONS = frozenset({"min", "max", "exp"})
"""Functions that need no explanation."""


class Entry(TypedDict):
    """A symbol and its meaning."""

    symbol: str
    mathml: str
    meaning: str


def legend(config: RunConfig, symbols: Mapping[str, str]) -> list[Entry]:
    """Return a legend entry for each symbol, in order, except for elementary functions."""
    terms = _terms(config.rewards)
    return [
        {"symbol": text, "mathml": math_element(mathml), "meaning": _symbol_meaning(text, config, terms)}
        for text, mathml in symbols.items()
        if text not in ELEMENTARY_FUNCTIONS
    ]


def _symbol_meaning(symbol: str, config: RunConfig, terms: Mapping[str, str]) -> str:
    if symbol in terms:
        return terms[symbol]
    if symbol in CONFIG_MEANINGS:
        return CONFIG_MEANINGS[symbol](config)
    return MEANINGS[symbol]


def _terms(rewards: tuple[RewardTerm, ...]) -> dict[str, str]:
    """Return the meaning of each reward term, with separate meanings for domains if they differ."""
    meanings_by_term: dict[str, dict[str, str]] = {}
    for term in rewards:
        meanings_by_term.setdefault(term_name(term), {})[term.domain] = term.meaning
    return {name: _join_meanings(meanings) for name, meanings in meanings_by_term.items()}


def _join_meanings(meanings: Mapping[str, str]) -> str:
    if len(set(meanings.values())) == 1:
        return next(iter(meanings.values()))
    return "; ".join(f"for {domain or 'all other domains'}: {text}" for domain, text in meanings.items())


def _batch(config: RunConfig) -> str:
    sampling = config.sampling
    count = f"{sampling.prompts_per_step} prompts × {sampling.group_size}"
    return f"completions of one optimizer step: {count}{_share(config)}"


def _prompts(config: RunConfig) -> str:
    return f"prompts of one optimizer step: {config.sampling.prompts_per_step}{_share(config)}"


def _share(config: RunConfig) -> str:
    minibatches = config.updates.minibatches
    return f" / {minibatches} minibatches" if minibatches > 1 else ""


def _old(config: RunConfig) -> str:
    description = (
        "probability of a token under the old policy (the weights at the start of the step), a constant"
    )
    is_same = _is_one_update(config.objective, config)
    return f"{description}; with one update per step it equals π" if is_same else description


def _is_one_update(objective: Objective, config: RunConfig) -> bool:
    updates = config.updates
    is_adam = updates.rule == "adam" and objective.token_weight.type != "lopti"
    return is_adam and updates.epochs * updates.minibatches == 1


def _sampler(config: RunConfig) -> str:
    sampling = config.sampling
    conditions = [
        *([f"in {sampling.precision}"] if sampling.precision != "policy" else []),
        *(["by the server of the operator"] if sampling.engine.type == "server" else []),
        *(["by vLLM beside the trainer"] if sampling.engine.type == "colocated" else []),
        *([f"with weights {sampling.staleness} steps old"] if sampling.staleness else []),
        *([f"with weights up to {sampling.ahead} steps old"] if sampling.ahead else []),
        *(["after top-p or top-k"] if sampling.top_p < 1 or sampling.top_k > 0 else []),
    ]
    condition_text = f", {' and '.join(conditions)}" if conditions else ""
    return f"probability of a token as the sampler drew it{condition_text}"


def _kl(config: RunConfig) -> str:
    unit = "completion" if config.objective.kl_is_sum else "token"
    return f"mean k3 in the last pass over a step's rollouts; nats per {unit}"


def _rate(config: RunConfig) -> str:
    optimizer = config.optimizer
    phases = [
        *([f"after {optimizer.warmup_steps} steps of warm-up"] if optimizer.warmup_steps else []),
        *([f"then falling to 0 ({optimizer.schedule})"] if optimizer.schedule != "constant" else []),
    ]
    schedule = f", {', '.join(phases)}" if phases else ""
    factor = config.objective.value.lr_factor
    critics = f"; {factor:g} times that for θ_V" if config.objective.critic is not None else ""
    return f"learning rate: {optimizer.lr:g}{schedule}{critics}"


CONFIG_MEANINGS: dict[str, Callable[[RunConfig], str]] = {
    "B": _batch,
    "P": _prompts,
    "G": lambda config: f"completions per prompt: {config.sampling.group_size}",
    "π_old": _old,
    "π_sampler": _sampler,
    "KL": _kl,
    "lr": _rate,
}
"""Functions that return meanings that depend on the config, by symbol."""
