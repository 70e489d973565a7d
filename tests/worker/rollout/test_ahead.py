"""Tests of rollouts that run ahead: order, maximum age, interruption and checkpoints."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from backend.config.merge import resolve
from tests.waiting import wait_for
from worker.problems.mixture import Ingredient, Mixture
from worker.problems.sums import Sums
from worker.rewards.score import Scorer
from worker.rollout.ahead import RolloutsAhead, age_metrics
from worker.rollout.behaviour import Behaviour
from worker.rollout.collector import Collector
from worker.rollout.engine import Interrupted
from worker.rollout.local_engine import LocalEngine
from worker.rollout.row_limit import RowLimit

SAMPLING = {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 6, "ahead": 2}
CONFIG = resolve({"sampling": SAMPLING})


def never() -> bool:
    return False


@pytest.fixture(scope="module")
def scorer():
    scorer = Scorer(CONFIG.rewards)
    yield scorer
    scorer.close()


@pytest.fixture
def begin_rollouts(tiny, scorer):
    """A function that begins rollouts, of which `ahead` may be sampled early."""
    queues = []

    def start_rollouts(*, ahead, step=0, cursor=0, state=None, prepare=None):
        mixture = Mixture([Ingredient(Sums(seed=0), "sums", 1.0, "math")])
        collector = Collector(CONFIG, mixture, scorer)
        engine = LocalEngine(CONFIG.sampling, Behaviour(CONFIG.sampling), RowLimit())
        queues.append(RolloutsAhead(engine, collector, ahead=ahead, seed=7))
        if state is not None:
            queues[-1].restore(*state)
        if prepare is not None:
            prepare(engine)
        queues[-1].start(step, cursor, never)
        queues[-1].publish(step, tiny)
        return queues[-1]

    yield start_rollouts
    for samplers_ahead in queues:
        samplers_ahead.close()


def summarise_batch(batch):
    """Return the prompts, tokens and versions of a batch."""
    return [
        (group.prompt.id, completion.ids.tolist(), completion.version)
        for group in batch.groups
        for completion in group.completions
    ]


def settled_count(rollouts):
    """Return the number of queued batches once no other can begin before new weights arrive."""
    wait_for(lambda: rollouts._changed._waiters)  # here, only the sampling thread waits
    return len(rollouts.waiting_batches)


@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_no_batch_is_begun_that_would_be_too_old(begin_rollouts, tiny, ahead):
    rollouts = begin_rollouts(ahead=ahead)
    assert settled_count(rollouts) == ahead + 1
    first = rollouts.take(never)
    assert settled_count(rollouts) == ahead  # the next one would be ahead + 1 versions old
    rollouts.publish(1, tiny)
    assert settled_count(rollouts) == ahead + 1
    batches = [first, *(rollouts.take(never) for _ in range(ahead + 1))]
    ages = [age_metrics(batch, version=number) for number, batch in enumerate(batches)]
    assert [metrics["sampling/staleness_max"] for metrics in ages] == [*range(ahead + 1), ahead]
    prompts = [group.prompt.id for batch in batches for group in batch.groups]
    assert len(set(prompts)) == len(prompts) == 2 * (ahead + 2)
    assert [batch.cursor for batch in batches] == [2 * (number + 1) for number in range(ahead + 2)]


def test_a_restored_queue_trains_on_the_same_batches_in_the_same_order(begin_rollouts):
    first_queue = begin_rollouts(ahead=3)
    settled_count(first_queue)
    first_queue.take(never)
    with first_queue.freeze_state():
        state = first_queue.values(), {name: tensor.clone() for name, tensor in first_queue.tensors().items()}
    restored_queue = begin_rollouts(ahead=3, step=1, cursor=2, state=state)
    expected = [summarise_batch(first_queue.take(never)) for _ in range(3)]
    assert [summarise_batch(restored_queue.take(never)) for _ in range(3)] == expected
    next_batch = restored_queue.take(
        never
    )  # not in the checkpoint, so sampled again from the prompts that follow
    assert next_batch.cursor == 10
    assert np.isfinite(next_batch.groups[0].completions[0].sampler_logprobs).all()


def test_a_checkpoint_holds_the_batches_queued_when_it_began(begin_rollouts, tiny):
    rollouts = begin_rollouts(ahead=1)
    settled_count(rollouts)
    with rollouts.freeze_state():
        values_before = rollouts.values()
        rollouts.take(never)
        assert rollouts.values() == values_before
    assert len(rollouts.values()["batches"]) == 1


def test_waiting_ends_if_the_run_is_asked_to_end(begin_rollouts):
    asleep = threading.Event()
    wait = SimpleNamespace(sync=lambda *_: asleep.wait(30))
    rollouts = begin_rollouts(ahead=1, prepare=lambda engine: setattr(engine, "sync", wait.sync))
    with pytest.raises(Interrupted):
        rollouts.take(lambda: True)
    asleep.set()
