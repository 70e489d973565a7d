"""Asynchronous training, in which rollouts run ahead of the updates with a bounded age of the weights.

    learner     ... step k ............. publish(k) ... step k + 1 ............. publish(k + 1)
    producer    batch k + 1 ..... batch k + 2 ..... waits until batch k + 3 would not be too old

Batch k trains in step k, which begins with the weights of version k - 1. The batch is sampled with the newest
weights available, and its sampling starts only when they are at most `ahead` versions older than version k -
1.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from hashlib import sha256
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from worker.policy.model import Policy, frozen_copy
from worker.rollout.collector import CollectedGroups, Collector
from worker.rollout.engine import Engine, Interrupted
from worker.rollout.pool import decode_groups, group_documents, group_tensors

POLL_SECONDS = 0.1
"""Seconds between two checks of whether the next batch is still needed."""

CLOSING_SECONDS = 60.0
"""Seconds that cancelling the current batch may take when the run ends."""


class RolloutsAhead:
    """Samples and scores batches in a thread and queues them for training.

    Each batch has a separate random generator. A checkpoint holds the waiting batches, so a resumed run
    trains on each prompt once and in order. A batch that was being sampled is sampled again.
    """

    def __init__(self, engine: Engine, collector: Collector, *, ahead: int, seed: int) -> None:
        self.engine, self.collector, self.ahead, self.seed = engine, collector, ahead, seed
        self.waiting_batches: deque[CollectedGroups] = deque()
        self._frozen_batches: list[CollectedGroups] | None = None
        self._published: tuple[int, Policy] | None = None
        self._failure: Exception | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self, step: int, cursor: int, is_unwanted: Callable[[], bool]) -> None:
        """Sample the batches of all steps after `step`, except queued ones. `cursor` counts prompts."""
        cursor = self.waiting_batches[-1].cursor if self.waiting_batches else cursor
        self.engine.is_unwanted = lambda: self._closing or is_unwanted()
        first = step + len(self.waiting_batches) + 1
        self._thread = threading.Thread(
            target=self._produce, args=(first, cursor), name="rollouts ahead", daemon=True
        )
        self._thread.start()

    def publish(self, version: int, policy: Policy) -> None:
        """Sample the next batches with a copy of these weights."""
        copy = frozen_copy(policy)
        with self._changed:
            self._published = version, copy
            self._changed.notify_all()

    def take(self, is_unwanted: Callable[[], bool]) -> CollectedGroups:
        """Wait for the next batch in order and return it.

        Raise the error of its sampling if there was one, or Interrupted if the batch is not wanted.
        """
        with self._changed:
            while not self.waiting_batches:
                if self._failure is not None:
                    raise self._failure
                if is_unwanted():
                    raise Interrupted
                self._changed.wait(POLL_SECONDS)
            return self.waiting_batches.popleft()

    @contextmanager
    def freeze_state(self) -> Iterator[None]:
        """Keep the state that a checkpoint stores at the batches that are queued now."""
        with self._changed:
            self._frozen_batches = list(self.waiting_batches)
        try:
            yield
        finally:
            self._frozen_batches = None

    def close(self) -> None:
        """Cancel the batch that is being sampled."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _produce(self, number: int, cursor: int) -> None:
        try:
            while (weights := self._await_weights(number)) is not None:
                self.engine.sync(*weights)
                generator = torch.Generator().manual_seed(batch_seed(self.seed, number))
                collected = self.collector.collect(self.engine, generator, cursor=cursor)
                cursor, number = collected.cursor, number + 1
                with self._changed:
                    self.waiting_batches.append(collected)
                    self._changed.notify_all()
        except Interrupted:
            return
        except Exception as failure:  # noqa: BLE001 - the learner raises it when it needs the batch
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _await_weights(self, number: int) -> tuple[int, Policy] | None:
        """Return the newest weights once they are new enough for a batch, or None if the run ends."""
        with self._changed:
            while not self._closing:
                if self._published is not None and self._published[0] >= number - 1 - self.ahead:
                    return self._published
                self._changed.wait()
            return None

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"batches": [_encode_batch(batch) for batch in self._state()]}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {
            f"{index}/{name}": tensor
            for index, batch in enumerate(self._state())
            for name, tensor in group_tensors(batch.groups).items()
        }

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See Stateful."""
        self.waiting_batches = deque(
            _decode_batch(document, _strip_prefix(f"{index}/", tensors))
            for index, document in enumerate(values["batches"])
        )

    def _state(self) -> list[CollectedGroups]:
        return list(self.waiting_batches) if self._frozen_batches is None else self._frozen_batches


def batch_seed(seed: int, number: int) -> int:
    """Return the seed of a batch, a number of 56 bits."""
    return int.from_bytes(sha256(f"{seed}/batch/{number}".encode()).digest()[:7])


def age_metrics(collected: CollectedGroups, *, version: int) -> dict[str, float]:
    """Return sampling/staleness*, the age of the sampling weights in versions older than `version`."""
    ages = [version - completion.version for group in collected.groups for completion in group.completions]
    return {"sampling/staleness": fmean(ages), "sampling/staleness_max": max(ages)} if ages else {}


def _encode_batch(batch: CollectedGroups) -> dict[str, Any]:
    by_field = {field.name: getattr(batch, field.name) for field in fields(CollectedGroups)}
    left_out = [[index, reason] for index, reason in batch.left_out.items()]
    return by_field | {"groups": group_documents(batch.groups), "left_out": left_out}


def _decode_batch(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> CollectedGroups:
    left_out = {int(index): str(reason) for index, reason in document["left_out"]}
    groups = decode_groups(document["groups"], tensors)
    return CollectedGroups(**{**document, "groups": groups, "left_out": left_out})


def _strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
