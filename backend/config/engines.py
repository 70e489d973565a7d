"""Engines that sample: the trainer's own sampler, a server of the operator's, or one beside the trainer."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen


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
    """Time limit of a request for one prompt's completions; then it is tried again at the next server."""

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
    """Time limit for vLLM to start; afterwards the run fails."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """Time limit of a request for one prompt's completions; then it is tried again."""

    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """Further tries of a request that failed, with growing pauses; after them the run fails and can be
    resumed."""

    largest_mismatch: Annotated[float, Field(gt=0, le=1e6)] = 0.05
    """Largest mean k3 between vLLM's log-probabilities and the trainer's own on a few completions of each
    step; nats per token. Above it the run fails before it learns from them."""


Engine = Annotated[LocalEngine | ServerEngine | ColocatedEngine, Field(discriminator="type")]
