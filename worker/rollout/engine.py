"""Engines: they sample completions from token ids, with the weights of a version that they were given.

The trainer's own sampler is one (`local_engine`), a server that speaks vLLM's contract another
(`server_engine`), and the same server as a child of the trainer the third (`colocated_engine`).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from worker.policy.model import Policy
from worker.prompt import Prompt
from worker.types import Completion


class Interrupted(Exception):
    """Sampling was given up because nobody wants its result any more."""


class SamplingLike(Protocol):
    """The fields of a sampling config that decide how tokens are drawn."""

    @property
    def max_new_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...


class Samples(Protocol):
    """Something that draws completions of prompts."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        beginnings: Sequence[Sequence[int]] = (),
    ) -> list[list[Completion]]:
        """`group_size` completions of every prompt, each behind the beginning of its prompt."""
        ...

    def generate(
        self,
        encoded: Sequence[list[int]],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        stops: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """`group_size` completions of every sequence of token ids.

        What stands behind one of the tokens `stops` is not needed; an engine may go on nevertheless.
        """
        ...


class Engine(Samples, Protocol):
    """The sampler of a run's steps. Every completion names the weight version that wrote it."""

    is_unwanted: Callable[[], bool]
    """Asked now and then; once it says yes, sampling raises Interrupted."""

    def check(self) -> str:
        """Find out, before the first step, whether the engine can sample this run; a sentence for its events.

        Raises EngineFailed where it cannot.
        """
        ...

    def sync(self, version: int, policy: Policy) -> None:
        """Sample with the weights of `policy` from now on: those that `version` steps have made."""
        ...

    def rest(self) -> None:
        """The batch is sampled: give back the memory that sampling takes, until the next `sync`."""
        ...

    def take_metrics(self) -> dict[str, float]:
        """The cost of using the engine since the last call."""
        ...

    def close(self) -> None:
        """Let go of everything outside this process."""
        ...


def encoded_prompts(
    policy: Policy,
    prompts: Sequence[Prompt],
    sampling: SamplingLike,
    beginnings: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """Token ids of every prompt with the beginning of its completions, in the policy's form."""
    begun = beginnings or [()] * len(prompts)
    return [
        [*policy.encode(prompt, room=len(ids) + sampling.max_new_tokens), *ids]
        for prompt, ids in zip(prompts, begun, strict=True)
    ]


def completion_of(
    policy: Policy, ids: NDArray[np.int64], logprobs: NDArray[np.float32], *, stopped: bool
) -> Completion:
    """A completion of these tokens; the last of them is a stop token where it `stopped`."""
    pieces = policy.token_texts.pieces(ids.tolist())
    return Completion(
        ids=ids,
        text="".join(pieces[:-1] if stopped else pieces),
        token_strings=pieces,
        finish_reason="stop" if stopped else "length",
        sampler_logprobs=logprobs,
    )
