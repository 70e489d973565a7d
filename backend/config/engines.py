"""Engines that sample: the trainer's own sampler, a server of the operator's, or one beside the trainer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

if TYPE_CHECKING:
    from backend.config.run import RunConfig

Problem = tuple[str, str]
"""Dotted path of a field and the reason it is refused."""


class LocalEngine(Frozen):
    """The trainer's own sampler, in its process and on its device: exact, and one batch at a time."""

    type: Literal["local"] = "local"


class ServerEngine(Frozen):
    """The vLLM server, or several, that the operator runs at ENGINE_URL. New weights reach it before each
    step. Its probabilities differ a little from the trainer's, so objective.correction is token_tis unless
    you choose one, or none. Evaluations are sampled by the trainer itself.
    """

    type: Literal["server"] = "server"

    timeout_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """A request for the completions of one prompt that takes longer is tried again, at the next server."""

    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """Further tries of a request that failed, with growing pauses; after them the run fails and can be
    resumed."""

    largest_mismatch: Annotated[float, Field(gt=0, le=1e6)] = 0.05
    """Largest mean k3 between the server's log-probabilities and the trainer's own on a few completions of
    each step; nats per token. Above it the server has other weights or another model, and the run fails
    before it learns from them."""


class ColocatedEngine(Frozen):
    """A vLLM server that the trainer starts beside itself, on its own device, with the Python of
    ENGINE_PYTHON. On a GPU it sleeps while the policy learns. Weights, correction and evaluations are as with
    server.
    """

    type: Literal["colocated"] = "colocated"

    memory_share: Annotated[float, Field(ge=0.02, le=0.95)] = 0.4
    """Share of the GPU's memory that vLLM takes while it samples (its --gpu-memory-utilization); on a CPU, of
    the machine's."""

    start_seconds: Annotated[float, Field(ge=1, le=86_400)] = 900.0
    """Time that vLLM has to start; after it the run fails."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """A request for the completions of one prompt that takes longer is tried again."""

    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """Further tries of a request that failed, with growing pauses; after them the run fails and can be
    resumed."""

    largest_mismatch: Annotated[float, Field(gt=0, le=1e6)] = 0.05
    """Largest mean k3 between vLLM's log-probabilities and the trainer's own on a few completions of each
    step; nats per token. Above it the run fails before it learns from them."""


Engine = Annotated[LocalEngine | ServerEngine | ColocatedEngine, Field(discriminator="type")]


def engine_errors(config: "RunConfig") -> Iterator[Problem]:
    """Everything that the engine cannot give, or that cannot run ahead of the updates."""
    if config.sampling.engine.type != "local":
        yield from _server_errors(config)
    if config.sampling.ahead:
        yield from _ahead_errors(config)


def _server_errors(config: "RunConfig") -> Iterator[Problem]:
    sampling, objective = config.sampling, config.objective
    engine = f"sampling.engine = {sampling.engine.type}"
    gives_none = f"but {engine} gives"
    if sampling.keep_mask:
        yield "sampling.keep_mask", f"is on, {gives_none} no ids that top_p or top_k kept: expected false"
    if config.recording.alternatives:
        yield "recording.alternatives", f"is on, {gives_none} no alternatives: expected 0"
    if sampling.routing_replay:
        yield "sampling.routing_replay", f"is on, {gives_none} no experts: expected false"
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
    of_whole = f"{gives_none} no entropy of the whole distribution"
    if objective.token_weight.type == "top_entropy":
        yield "objective.token_weight.type", f"is top_entropy, {of_whole}: expected none"
    if objective.entropy.type == "adaptive":
        yield "objective.entropy.type", f"is adaptive, {of_whole}: expected none or a fixed bonus"


def _ahead_errors(config: "RunConfig") -> Iterator[Problem]:
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
