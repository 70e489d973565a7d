"""Config of the engines that sample: the trainer itself, an operator's
server, or a server on the same device.
"""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen


class LocalEngine(Frozen):
    """The sampler of the trainer, which runs in its process and on its device. It
    is exact and samples one batch at a time.
    """

    type: Literal["local"] = "local"


class ServerEngine(Frozen):
    """One or more vLLM servers that the operator runs at ENGINE_URL. They receive new weights before each
    step. Their probabilities differ slightly from the trainer's, so objective.correction defaults to
    token_tis. Evaluations are sampled by the trainer itself.
    """

    type: Literal["server"] = "server"

    timeout_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """Time limit of a request for the completions of one prompt, after which the next server is tried."""

    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """Number of retries of a failed request, with increasing pauses. If all
    fail, the run fails and can be resumed.
    """

    largest_mismatch: Annotated[float, Field(gt=0, le=1e6)] = 0.05
    """Maximum mean k3 between the log-probabilities of the server and of the trainer on a few completions of
    each step, in nats per token. A larger value means that the server has different weights or another model,
    and the run fails before it learns from them.
    """


class ColocatedEngine(Frozen):
    """A vLLM server that the trainer starts on its device, with the Python interpreter ENGINE_PYTHON. On a
    GPU it sleeps while the policy learns. Weights, correction and evaluations are handled like those of
    server.
    """

    type: Literal["colocated"] = "colocated"

    memory_share: Annotated[float, Field(ge=0.02, le=0.95)] = 0.4
    """Fraction of the GPU's memory that vLLM uses while it samples (its --gpu-memory-utilization), or on a
    CPU of the memory of the machine.
    """

    start_seconds: Annotated[float, Field(ge=1, le=86_400)] = 900.0
    """Time limit for the start of vLLM, after which the run fails."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """Time limit of a request for the completions of one prompt, after which it is retried."""

    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """Number of retries of a failed request, with increasing pauses. If all
    fail, the run fails and can be resumed.
    """

    largest_mismatch: Annotated[float, Field(gt=0, le=1e6)] = 0.05
    """Maximum mean k3 between the log-probabilities of vLLM and of the trainer on a few completions of each
    step, in nats per token. If it is exceeded, the run fails before it learns from them.
    """


Engine = Annotated[LocalEngine | ServerEngine | ColocatedEngine, Field(discriminator="type")]
