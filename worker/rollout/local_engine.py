"""The local engine, which is the trainer's own sampler on its device."""

from collections.abc import Callable, Sequence

import torch

from backend.config.sections import SamplingConfig
from worker.policy.model import Policy
from worker.prompt import Prompt
from worker.rollout.behaviour import Behaviour
from worker.rollout.engine import SamplingLike
from worker.rollout.row_limit import RowLimit
from worker.rollout.sampler import Sampler
from worker.types import Completion


class LocalEngine:
    """Samples with the policy, or with the weights and precision that `behaviour` prescribes."""

    def __init__(
        self, sampling: SamplingConfig, behaviour: Behaviour, limit: RowLimit, *, alternatives: int = 0
    ) -> None:
        """Create the engine. `alternatives` is the number of most likely tokens recorded at each token."""
        self.sampling, self.behaviour, self.limit = sampling, behaviour, limit
        self.alternatives = alternatives
        self.is_unwanted: Callable[[], bool] = lambda: False
        self.sampler: Sampler | None = None
        self.make_sampler: Callable[..., Sampler] = Sampler
        """Function that creates the sampler. With several ranks, it creates one that samples on all ranks."""

    def check(self) -> str:
        """See Engine."""
        return ""

    def sync(self, version: int, policy: Policy) -> None:
        """See Engine. The weights are shared with the learner, so there is nothing to send."""
        self.sampler = self.make_sampler(
            self.behaviour.policy(policy),
            limit=self.limit,
            is_unwanted=self.is_unwanted,
            keep_mask=self.sampling.keep_mask,
            routes=self.sampling.routing_replay,
            alternatives=self.alternatives,
            version=version - self.behaviour.age,
        )

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        beginnings: Sequence[Sequence[int]] = (),
    ) -> list[list[Completion]]:
        """See Samples."""
        return self._current_sampler().sample(prompts, group_size, sampling, generator, beginnings=beginnings)

    def generate(
        self,
        prompt_ids: Sequence[list[int]],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        stops: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """See Samples."""
        return self._current_sampler().generate(prompt_ids, group_size, sampling, generator, stops=stops)

    def release_memory(self) -> None:
        """See Engine. No memory is held between batches."""

    def take_metrics(self) -> dict[str, float]:
        """See Engine."""
        return {}

    def close(self) -> None:
        """See Engine."""

    def _current_sampler(self) -> Sampler:
        if self.sampler is None:
            raise RuntimeError("an engine samples only once it has weights")
        return self.sampler
