"""Refuse contradictory sections of a config, with reasons, and warn about doubtful combinations.

Contradictions within the objective are refused by the class Objective.
"""

from collections.abc import Iterator, Mapping

from backend.config.base import MAX_COMPLETIONS, Problem
from backend.config.knobs import NoKl, Opsm, PpoClip
from backend.config.policies import TINY
from backend.config.problems import ReasoningGymProblem, SumsProblem
from backend.config.rules.engines import engine_errors
from backend.config.rules.environments import environment_errors
from backend.config.rules.memory import memory_errors, memory_warnings
from backend.config.rules.suites import suite_errors, suite_warnings
from backend.config.sections import RunSections

KL_METRICS = ("k1", "k2", "k3", "coef")
"""Names of kl/ metrics that a domain must not have."""


def combination_errors(config: RunSections) -> list[Problem]:
    """Return all contradictions between sections of a config."""
    return [
        *_budget_errors(config),
        *_size_errors(config),
        *_recording_errors(config),
        *suite_errors(config),
        *_group_errors(config),
        *_filter_errors(config),
        *_update_errors(config),
        *_critic_errors(config),
        *_natural_gradient_errors(config),
        *_reward_errors(config),
        *_kl_errors(config),
        *memory_errors(config),
        *engine_errors(config),
        *environment_errors(config),
    ]


def _budget_errors(config: RunSections) -> Iterator[Problem]:
    if config.steps == 0 and config.evaluation.is_off:
        yield "steps", "is 0, and nothing is evaluated: the run would do nothing"
    if config.optimizer.warmup_steps > config.steps:
        yield "optimizer.warmup_steps", f"must be at most steps = {config.steps}"


def _size_errors(config: RunSections) -> Iterator[Problem]:
    sampling, evaluation = config.sampling, config.evaluation
    limit = f"expected at most {MAX_COMPLETIONS:,} completions"
    if (rows := sampling.prompts_per_step * sampling.group_size) > MAX_COMPLETIONS:
        factors = f"is {sampling.group_size}, times prompts_per_step = {sampling.prompts_per_step}"
        yield "sampling.group_size", f"{factors} makes {rows:,} a step: {limit}"
    if (rows := evaluation.prompts * evaluation.k) > MAX_COMPLETIONS:
        factors = f"is {evaluation.prompts}, times k = {evaluation.k}"
        yield "evaluation.prompts", f"{factors} makes {rows:,} an evaluation: {limit}"


def _recording_errors(config: RunSections) -> Iterator[Problem]:
    recording = config.recording
    if recording.alternatives and not (recording.tokens and recording.rollouts != "none"):
        reason = f"is {recording.alternatives}, but the tokens they belong to are not stored"
        yield "recording.alternatives", f"{reason}: expected recording.tokens and rollouts"


def _group_errors(config: RunSections) -> Iterator[Problem]:
    advantage = config.objective.advantage
    if config.sampling.group_size < 2 and advantage.compares_group:
        reason = f"is 1, but the {advantage.type} baseline compares completions of one prompt"
        yield "sampling.group_size", f"{reason}: expected at least 2"
    elif config.sampling.group_size < 2:
        yield from _lone_completion_errors(config)


def _lone_completion_errors(config: RunSections) -> Iterator[Problem]:
    """Yield settings that need at least two completions per group."""
    single = "but sampling.group_size is 1"
    if config.objective.advantage.scale.type == "group_std":
        reason = f"is group_std, {single}: one reward has no deviation and every advantage would be 0"
        yield "objective.advantage.scale.type", f"{reason}; expected batch_std or none"
    if (rule := config.filters.groups.type) != "none":
        yield "filters.groups.type", f"is {rule}, {single}, and no group would ever be kept: expected none"


def _filter_errors(config: RunSections) -> Iterator[Problem]:
    filters = config.filters
    if filters.refill.type != "none" and filters.groups.type == "none":
        refill = filters.refill.type
        yield "filters.refill.type", f"is {refill}, but filters.groups removes nothing that could be refilled"
    if filters.upweight and filters.groups.type == "none":
        yield (
            "filters.upweight",
            "is on, but filters.groups removes no groups, so there is nothing to make up for",
        )
    if filters.refill.type == "active" and config.updates.resample_each_epoch:
        reason = "is active, but with updates.resample_each_epoch each epoch samples all its groups afresh"
        yield "filters.refill.type", f"{reason}: none may wait for the next step; expected dynamic"
    if filters.upweight and filters.refill.type != "none":
        yield "filters.upweight", "is on, but refilling already fills the step"
    aggregation = config.objective.aggregation
    if filters.upweight and aggregation.type == "token_mean" and aggregation.over == "trained":
        reason = "token_mean over trained tokens already divides by the remaining ones"
        yield "filters.upweight", f"is on, but {reason}: expected aggregation.over = sampled"
    if filters.groups.type == "accuracy" and not any(term.name == "correctness" for term in config.rewards):
        yield "filters.groups.type", "is accuracy, but rewards holds no correctness term to measure it by"


def _update_errors(config: RunSections) -> Iterator[Problem]:
    updates, prompts = config.updates, config.sampling.prompts_per_step
    if updates.minibatches > prompts:
        expected = f"expected at most prompts_per_step = {prompts}"
        yield "updates.minibatches", f"is {updates.minibatches}, but whole groups are split: {expected}"
    if updates.resample_each_epoch and updates.epochs < 2:
        yield (
            "updates.resample_each_epoch",
            "is on, but there is only one epoch: expected updates.epochs >= 2",
        )
    if updates.resample_each_epoch and updates.minibatches > 1:
        yield (
            "updates.resample_each_epoch",
            "is on, and then each epoch is one update: updates.minibatches must be 1",
        )


def _critic_errors(config: RunSections) -> Iterator[Problem]:
    factor, lr = config.objective.value.lr_factor, config.optimizer.lr
    if config.objective.critic is not None and factor * lr > 1:
        reason = (
            f"makes the critic's learning rate {factor * lr:g} of optimizer.lr {lr:g}: expected at most 1"
        )
        yield "objective.value.lr_factor", reason


def _natural_gradient_errors(config: RunSections) -> Iterator[Problem]:
    objective, updates = config.objective, config.updates
    if updates.rule != "natural_gradient":
        return
    single_step = "but natural_gradient takes one step per batch, as far as its line search finds it good"
    for name, value in (("epochs", updates.epochs), ("minibatches", updates.minibatches)):
        if value > 1:
            yield f"updates.{name}", f"is {value}, {single_step}: expected 1"
    if objective.surrogate.type != "none":
        reason = f"is {objective.surrogate.type}, but natural_gradient bounds the step by its KL"
        yield "objective.surrogate.type", f"{reason}: expected none"
    if getattr(objective.ratio, "old", "") != "recompute":
        reason = "compares the policy before and after the step: expected a ratio with old = recompute"
        yield "objective.ratio", f"has no such old policy, but the line search {reason}"
    if objective.token_weight.type == "lopti":
        yield "objective.token_weight.type", f"is lopti, which takes two steps per batch, {single_step}"
    if config.policy.dtype != "float32":
        reason = "but conjugate gradients need more digits: expected float32 with natural_gradient"
        yield "policy.dtype", f"is {config.policy.dtype}, {reason}"


def _reward_errors(config: RunSections) -> Iterator[Problem]:
    yield from _domain_errors(config)
    seen_terms: set[tuple[str, str]] = set()
    for index, term in enumerate(config.rewards):
        if (term.label, term.domain) in seen_terms:
            yield f"rewards.{index}.name", f"{term.label!r} is listed twice for the same domain"
        seen_terms.add((term.label, term.domain))
    if all(term.weight == 0 for term in config.rewards):
        yield "rewards", "all weights are 0, so nothing would be rewarded"


def _domain_errors(config: RunSections) -> Iterator[Problem]:
    """Yield reward terms for domains without problems, or if there are
    none, problems without a reward term.
    """
    domains = {source.domain for source in config.problems}
    unknown_terms = [
        index for index, term in enumerate(config.rewards) if term.domain and term.domain not in domains
    ]
    for index in unknown_terms:
        domain_list = ", ".join(sorted(domains))
        domain = config.rewards[index].domain
        yield f"rewards.{index}.domain", f"is {domain!r}, but the problems have the domains {domain_list}"
    rewarded_domains = {term.domain for term in config.rewards}
    for index, source in enumerate(config.problems):
        if not unknown_terms and "" not in rewarded_domains and source.domain not in rewarded_domains:
            yield f"problems.{index}.domain", f"is {source.domain!r}, but no reward term is for that domain"


def _kl_errors(config: RunSections) -> Iterator[Problem]:
    kl = config.objective.kl
    if isinstance(kl, NoKl):
        return
    domains = sorted({source.domain for source in config.problems})
    coefficients = kl.coef if isinstance(kl.coef, Mapping) else dict.fromkeys(domains, kl.coef)
    domain_list = ", ".join(domains)
    # rows of files and datasets may have other domains
    is_all = all(isinstance(source, SumsProblem | ReasoningGymProblem) for source in config.problems)
    for unknown_domain in sorted(coefficients.keys() - set(domains)) if is_all else ():
        yield (
            f"objective.kl.coef.{unknown_domain}",
            f"is not a domain of the problems; they have {domain_list}",
        )
    for missing_domain in (domain for domain in domains if domain not in coefficients):
        yield (
            "objective.kl.coef",
            f"has nothing for the domain {missing_domain!r}: expected one for each of {domain_list}",
        )
    if config.objective.reference.type == "on_stagnation" and config.evaluation.every == 0:
        reason = "is on_stagnation, but evaluation.every is 0: without evaluations no stagnation can be seen"
        yield "objective.reference.type", reason
    for index, source in enumerate(config.problems):
        if source.domain in KL_METRICS and len(domains) > 1:
            reason = f"is {source.domain!r}, but kl/{source.domain} is another metric's name"
            yield f"problems.{index}.domain", reason + ": choose another domain"
    if kl.to == "old" and kl.controller.type != "fixed" and _is_one_update(config):
        reason = (
            f"is {kl.controller.type}, but with one update per step the KL to the old policy is always 0: "
        )
        yield (
            "objective.kl.controller.type",
            reason + "expected updates.epochs or updates.minibatches above 1",
        )


def _is_one_update(config: RunSections) -> bool:
    """Return whether each step has a single update, so that the policy equals the old policy."""
    has_two_updates = config.objective.token_weight.type == "lopti"
    return config.updates.epochs * config.updates.minibatches == 1 and not has_two_updates


def warnings(config: RunSections) -> list[str]:
    """Return warnings about valid but doubtful settings."""
    return list(_warnings(config))


def _warnings(config: RunSections) -> Iterator[str]:
    objective = config.objective
    yield from _sampling_warnings(config)
    yield from memory_warnings(config)
    surrogate = objective.surrogate
    yield from objective.warnings()
    if getattr(objective.advantage, "multi_reward", "sum") == "gdpo" and len(config.rewards) < 2:
        yield "gdpo normalises each reward separately, but there is only one reward term"
    if objective.advantage.scale.type == "sas" and config.filters.groups.type != "none":
        yield "sas gives groups with equal rewards a signal, but filters.groups removes them"
    if objective.router.type != "none" and config.policy.name == TINY.name:
        yield "router_shift has no effect on the dense policy tiny: it needs a mixture of experts"
    if objective.reference.type != "fixed" and not objective.needs_reference:
        yield f"reference {objective.reference.type} has no effect: the objective has no KL to a reference"
    if _is_one_update(config):
        yield from _one_update_warnings(config)
    elif objective.ratio.type == "none":
        yield (
            "several updates per step without a ratio: from the second update on, the completions come from "
            "an older policy and nothing corrects for that; use a ratio, or one epoch and one minibatch"
        )
    if not any(rule.type == "non_finite" for rule in config.stop_rules):
        yield "no non_finite stop rule: a run whose loss becomes NaN continues without learning anything"
    if config.updates.rule == "natural_gradient" and config.policy.name != "tiny":
        yield (
            "natural_gradient stores the full next-token distribution of every token and runs a double "
            "backward pass for each of updates.trust.cg_iters: use it for small policies only"
        )
    if objective.critic is not None and 0 < config.steps <= objective.value.pretrain_steps:
        yield (
            f"all {config.steps} steps train only the critic (objective.value.pretrain_steps "
            f"{objective.value.pretrain_steps}): the policy is never updated"
        )
    is_higher = isinstance(surrogate, PpoClip) and surrogate.eps_high > surrogate.eps_low
    if objective.entropy.type == "adaptive" and is_higher and config.sampling.temperature > 1:
        yield "adaptive entropy, clip-higher and a temperature above 1 are combined: entropy may explode"
    if config.evaluation.is_off:
        yield "no held-out evaluation: reward alone cannot distinguish learning from reward hacking"
    yield from suite_warnings(config)


def _one_update_warnings(config: RunSections) -> Iterator[str]:
    """Yield settings without effect because the policy still equals the old policy."""
    objective = config.objective
    mask = objective.off_policy_mask
    if isinstance(mask, Opsm) and mask.source == "old":
        yield "opsm with source = old has no effect with one update per step: the policy is still the old one"
    if not isinstance(objective.kl, NoKl) and objective.kl.to == "old":
        yield "kl.to = old has no effect with one update per step: the policy is still the old one"
    if objective.router.type != "none" and config.policy.name != TINY.name:
        yield "router_shift has no effect with one update per step: the router has not changed (gamma is 1)"
    is_chosen = objective.surrogate != PpoClip()  # the default's clipping was nobody's choice
    if is_chosen and objective.surrogate.needs_drift and not _starts_away_from_one(config):
        yield (
            "with one update per step the ratio is always 1 and clipping has no effect: "
            "raise updates.epochs or updates.minibatches"
        )


def _starts_away_from_one(config: RunSections) -> bool:
    """Return whether the ratio can differ from 1 before any update, because the sampler differs."""
    return getattr(config.objective.ratio, "old", "") == "sampler" and _sampler_differs(config)


def _sampler_differs(config: RunSections) -> bool:
    sampling = config.sampling
    differs_by_setting = sampling.staleness > 0 or sampling.precision != "policy" or _has_other_mass(config)
    is_late = config.filters.refill.type == "active"
    differs_by_setting = differs_by_setting or sampling.is_off_policy
    return differs_by_setting or is_late or _has_other_temperature(config)


def _is_corrected(config: RunSections) -> bool:
    """Return whether the loss uses the probabilities of the sampler."""
    objective = config.objective
    return objective.correction.type != "none" or getattr(objective.ratio, "old", "") == "sampler"


def _has_other_mass(config: RunSections) -> bool:
    """Return whether only the sampler's probabilities are renormalised, and not the learner's."""
    sampling = config.sampling
    return (sampling.top_p < 1 or sampling.top_k > 0) and not sampling.keep_mask


def _has_other_temperature(config: RunSections) -> bool:
    is_plain = config.objective.ratio.logprob_temperature == "one"
    return is_plain and config.sampling.temperature != 1


def _sampling_warnings(config: RunSections) -> Iterator[str]:
    """Yield warnings about differences between the probabilities of the sampler and of the learner."""
    objective, sampling = config.objective, config.sampling
    truncated_sampling = sampling.top_p < 1 or sampling.top_k > 0
    if _has_other_mass(config) and objective.ratio.type != "none":
        yield (
            "top_p or top_k renormalises the sampler's probabilities: they differ from the trainer's on "
            "every token, as the mismatch metrics will show; sampling.keep_mask makes the trainer do the same"
        )
    mask = objective.off_policy_mask
    sees_sampler = isinstance(mask, Opsm) and mask.source == "sampler"
    if _has_other_temperature(config) and (_is_corrected(config) or sees_sampler):
        yield (
            f"logprob_temperature = one, but the sampler divides by {sampling.temperature:g}: what compares "
            "it with the trainer also corrects for that temperature, on every token"
        )
    if sampling.routing_replay and config.policy.name == TINY.name:
        yield "sampling.routing_replay has no effect on the dense policy tiny: it needs a mixture of experts"
    if sampling.keep_mask and not truncated_sampling:
        yield "sampling.keep_mask has no effect: neither top_p nor top_k removes any tokens"
    if sampling.is_off_policy and not _is_corrected(config):
        sampler = {"local": "older weights", "server": "the server", "colocated": "vLLM"}[
            sampling.engine.type
        ]
        yield f"{sampler} samples and nothing corrects for that: use token_tis, or ratio.old = sampler"
    if sampling.staleness and not _is_corrected(config):
        yield ("stale rollouts are not corrected: use a correction such as token_tis, or ratio.old = sampler")
    if config.filters.refill.type == "active" and not _is_corrected(config):
        yield "active refill trains on some groups one step late and nothing corrects for that: use token_tis"
