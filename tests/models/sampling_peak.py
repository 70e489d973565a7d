"""Measure the peak memory of sampling in addition to the weights, in live tensors."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from backend.config.run import RunConfig
from tests.models.live_bytes import LiveBytes
from worker.rollout.sampler import Notes, Sampler


class PlainSampler(Sampler):
    """A sampler that does not decode its tokens to texts."""

    def _completions(
        self,
        drawn: Any,  # noqa: ARG002 - the signature of Sampler
        group_size: int,
        notes: Notes,  # noqa: ARG002
        prompt_tokens: Sequence[int],
        further: Sequence[int] = (),  # noqa: ARG002
    ) -> Iterator[list[Any]]:
        return iter([[None] * group_size for _ in prompt_tokens])


def sampling_peak(model: Any, config: RunConfig, *, prompt_tokens: int) -> int:
    """Return the peak bytes of sampling one step whose completions reach the length cap.

    Every second prompt is a quarter shorter, since prompts of a batch differ."""
    sampling = config.sampling
    ids = torch.randint(
        3, 120, (sampling.prompts_per_step, prompt_tokens), generator=torch.Generator().manual_seed(0)
    ).tolist()
    prompts = [row if index % 2 == 0 else row[: -(prompt_tokens // 4)] for index, row in enumerate(ids)]
    policy: Any = SimpleNamespace(model=model, pad_id=0, stop_ids=[-1])
    with LiveBytes() as live_bytes:
        live_bytes.ignore([*model.parameters(), *model.buffers()])
        PlainSampler(policy).generate(
            prompts, sampling.group_size, sampling, torch.Generator().manual_seed(1)
        )
    return int(live_bytes.peak)
