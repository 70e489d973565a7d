"""Refuse settings that the sampling engine does not support, or that exclude asynchronous sampling."""

from collections.abc import Iterator

from backend.config.base import Problem
from backend.config.sections import RunSections


def engine_errors(config: RunSections) -> Iterator[Problem]:
    """Yield settings that contradict the sampling engine or `sampling.ahead`."""
    if config.sampling.engine.type != "local":
        yield from _server_errors(config)
    if config.sampling.ahead:
        yield from _ahead_errors(config)


def _server_errors(config: RunSections) -> Iterator[Problem]:
    sampling, objective = config.sampling, config.objective
    engine = f"sampling.engine = {sampling.engine.type}"
    returns_no = f"but {engine} gives"
    if sampling.keep_mask:
        yield "sampling.keep_mask", f"is on, {returns_no} no ids that top_p or top_k kept: expected false"
    if config.recording.alternatives:
        yield "recording.alternatives", f"is on, {returns_no} no alternatives: expected 0"
    if sampling.routing_replay:
        yield "sampling.routing_replay", f"is on, {returns_no} no experts: expected false"
    if sampling.precision != "policy":
        reason = f"is {sampling.precision}, but the server computes in the precision it was started with"
        yield "sampling.precision", f"{reason}: expected policy"
    if sampling.staleness:
        reason = f"is {sampling.staleness}, but only sampling.engine = local can simulate old weights"
        yield "sampling.staleness", f"{reason}: set it to 0, or use sampling.ahead for real staleness"
    if config.updates.resample_each_epoch:
        reason = f"is on, but {engine} holds one version of the weights"
        yield "updates.resample_each_epoch", f"{reason}: expected false"
    if config.policy.quantization != "none":
        reason = f"is {config.policy.quantization}, but the server serves its own weights under an adapter"
        yield "policy.quantization", f"{reason}: expected none with {engine}"
    no_entropy = f"{returns_no} no entropy of the whole distribution"
    if objective.token_weight.type == "top_entropy":
        yield "objective.token_weight.type", f"is top_entropy, {no_entropy}: expected none"
    if objective.entropy.type == "adaptive":
        yield "objective.entropy.type", f"is adaptive, {no_entropy}: expected none or a fixed bonus"


def _ahead_errors(config: RunSections) -> Iterator[Problem]:
    sampling = config.sampling
    if sampling.engine.type == "colocated":
        reason = f"is {sampling.ahead}, but sampling.engine = colocated sleeps while the policy learns"
        yield "sampling.ahead", f"{reason}: expected 0, or an engine with a device of its own (server)"
    if sampling.staleness:
        reason = f"is {sampling.staleness}, but sampling.ahead = {sampling.ahead} already makes them older"
        yield "sampling.staleness", f"{reason}: expected 0"
    if config.updates.resample_each_epoch:
        reason = "is on, but with sampling.ahead a step's rollouts are there before it begins"
        yield "updates.resample_each_epoch", f"{reason}: expected false"
    if config.filters.refill.type == "active":
        reason = "is active, but with sampling.ahead groups already wait in a queue: expected dynamic"
        yield "filters.refill.type", reason
