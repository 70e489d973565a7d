"""Engines, which sample completions from token ids with the weights of a given version.

There are three engines: the trainer's sampler (`local_engine`), a server that speaks vLLM's API
(`server_engine`), and such a server as a child process of the trainer (`colocated_engine`).
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
    """Sampling was cancelled because its result is no longer wanted."""


class SamplingLike(Protocol):
    """Fields of a sampling config that determine how tokens are sampled."""

    @property
    def max_new_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...


class Samples(Protocol):
    """Samples completions of prompts."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        beginnings: Sequence[Sequence[int]] = (),
    ) -> list[list[Completion]]:
        """Sample `group_size` completions of every prompt, in the order of the prompts.

        `beginnings` are token ids with which the completions of each prompt begin. The returned completions
        do not include them.
        """
        ...

    def generate(
        self,
        prompt_ids: Sequence[list[int]],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        stops: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """Sample `group_size` completions of every sequence of token ids.

        Tokens after one of the token ids `stops` are not needed, but an engine may return them.
        """
        ...


class PolicySampler(Samples):
    """A sampler of token ids, which encodes prompts with the tokenizer of its policy."""

    policy: Policy

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        beginnings: Sequence[Sequence[int]] = (),
    ) -> list[list[Completion]]:
        """See Samples. Raise InvalidConfig if a prompt is empty or does not fit the context with
        `max_new_tokens`.
        """
        prompt_ids = encoded_prompts(self.policy, prompts, sampling, beginnings)
        return self.generate(prompt_ids, group_size, sampling, generator)


class Engine(Samples, Protocol):
    """The sampler of a run's steps. Every completion names the version of the weights that wrote it."""

    is_unwanted: Callable[[], bool]
    """Function that is polled while sampling. If it returns true, sampling raises Interrupted."""

    def check(self) -> str:
        """Check before the first step whether the engine can sample this run, and return a line for its
        events.

        Raise EngineFailed if it cannot.
        """
        ...

    def sync(self, version: int, policy: Policy) -> None:
        """Sample with the weights of `policy` from now on. `version` counts the steps that made them."""
        ...

    def release_memory(self) -> None:
        """Release the memory of sampling after a batch, until the next `sync`."""
        ...

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics of the engine since the last call."""
        ...

    def close(self) -> None:
        """Release everything outside this process."""
        ...


def encoded_prompts(
    policy: Policy,
    prompts: Sequence[Prompt],
    sampling: SamplingLike,
    beginnings: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """Return the token ids of every prompt, followed by the beginning of its completions."""
    beginning_ids = beginnings or [()] * len(prompts)
    return [
        [*policy.encode(prompt, room=len(ids) + sampling.max_new_tokens), *ids]
        for prompt, ids in zip(prompts, beginning_ids, strict=True)
    ]


def make_completion(
    policy: Policy, ids: NDArray[np.int64], logprobs: NDArray[np.float32], *, stopped: bool
) -> Completion:
    """Return a completion of these tokens; the last of them is a stop token if it `stopped`."""
    token_strings = policy.token_texts.decode_each(ids.tolist())
    return Completion(
        ids=ids,
        text="".join(token_strings[:-1] if stopped else token_strings),
        token_strings=token_strings,
        finish_reason="stop" if stopped else "length",
        sampler_logprobs=logprobs,
    )
