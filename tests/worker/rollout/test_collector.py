"""Tests of filling a step with groups that carry signal."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from backend.config.merge import resolve
from worker.problems.mixture import Ingredient, Mixture
from worker.problems.sums import Sums
from worker.rewards.score import Scorer
from worker.rollout.collector import Collector, greedy_rewards
from worker.rollout.engine import Interrupted
from worker.rollout.pool import Pool
from worker.training.step_metrics import group_metrics
from worker.types import Completion, SamplingMask

PROMPTS_PER_STEP = 3


class Scripted:
    """A sampler that gives one right and one wrong answer if the script says True, else two wrong answers."""

    def __init__(self, *informative):
        self.script = list(informative)
        self.asked = []

    def sample(self, prompts, *_):
        if not self.script:
            raise Interrupted
        self.asked.append([prompt.id for prompt in prompts])
        rows = []
        for prompt in prompts:
            answers = [prompt.answer if self.script.pop(0) else "0", "0"]
            rows.append([completion(rf"<think></think>\boxed{{{answer}}}") for answer in answers])
        return rows


def completion(text, *, length=3, finish_reason="stop"):
    numbers = np.linspace(-1.5, -0.5, length, dtype=np.float32)
    return Completion(
        np.arange(length), text, tuple("abcdefgh"[:length]), finish_reason, numbers, numbers + 2
    )


def mixture():
    return Mixture([Ingredient(Sums(seed=0), "sums", 1.0, "math")])


@pytest.fixture
def make_collector():
    scorers = []

    def build(refill, **changes):
        filters = {"groups": {"type": "zero_variance"}, "refill": refill}
        sampling = {"prompts_per_step": PROMPTS_PER_STEP, "group_size": 2, "max_new_tokens": 10}
        config = resolve({"sampling": sampling, "filters": filters, **changes})
        scorers.append(Scorer(config.rewards))
        return Collector(config, mixture(), scorers[-1])

    yield build
    for scorer in scorers:
        scorer.close()


def collect(collector, sampler, cursor=0):
    return collector.collect(sampler, torch.Generator(), cursor=cursor)


def ids(numbers):
    return [mixture().prompts(number, 1)[0].id for number in numbers]


def trained(collected):
    return [group.prompt.id for group in collected.training]


DYNAMIC_REFILL = {"type": "dynamic", "max_batches": 10}
ACTIVE_REFILL = {"type": "active", "max_batches": 10}
NEIGHBOURS_REFILL = {"type": "neighbours", "n": 8}
SIGNAL_SCRIPT = (False, True, False, True, False, False, True, True, False)


def test_dynamic_sampling_draws_until_the_step_is_full_and_drops_the_surplus(make_collector):
    collected = collect(make_collector(DYNAMIC_REFILL), Scripted(*SIGNAL_SCRIPT))
    assert (collected.batches, collected.informative, collected.cursor) == (3, 4, 9)
    assert trained(collected) == ids([1, 3, 6])
    assert group_metrics(collected)["groups/kept_frac"] == pytest.approx(0.4444, abs=6e-5)
    assert not collected.is_short


def test_dynamic_sampling_that_finds_too_little_trains_on_the_available_groups(make_collector):
    collected = collect(make_collector({"type": "dynamic", "max_batches": 2}), Scripted(*SIGNAL_SCRIPT))
    assert trained(collected) == ids([1, 3])
    assert collected.is_short


def test_active_refill_carries_the_surplus_into_the_next_step(make_collector):
    collector = make_collector(ACTIVE_REFILL)
    first = collect(collector, Scripted(*SIGNAL_SCRIPT))
    assert trained(first) == ids([1, 3, 6])
    assert group_metrics(first)["sampling/carried_frac"] == 0
    second = collect(collector, Scripted(True, True, False), cursor=9)
    assert trained(second) == ids([7, 9, 10])
    assert second.batches == 1
    metrics = group_metrics(second)
    assert metrics["sampling/carried_frac"] == pytest.approx(1 / 3)
    assert metrics["tokens/generated"] == 3 * 2 * 3  # pooled groups were counted when they were sampled
    assert metrics["groups/kept_frac"] == pytest.approx(2 / 3)
    assert collector.pool.groups == []


def test_a_group_never_waits_longer_than_one_step(make_collector):
    collector = make_collector(ACTIVE_REFILL)
    last: list[str] = []
    for step in range(4):
        script = SIGNAL_SCRIPT if step == 0 else (True, True, True)
        collected = collect(collector, Scripted(*script), cursor=9 * step)
        assert [collected.groups[index].prompt.id for index in collected.carried] == last
        assert last == [] or trained(collected)[0] == last[0]
        last = [group.prompt.id for group in collector.pool.groups]
        assert len(last) == 1


def test_an_interrupted_collection_leaves_the_pool_unchanged(make_collector):
    collector = make_collector(ACTIVE_REFILL)
    collect(collector, Scripted(*SIGNAL_SCRIPT))
    groups_before = list(collector.pool.groups)
    with pytest.raises(Interrupted):
        collect(collector, Scripted(False, False, False), cursor=9)
    assert collector.pool.groups == groups_before


def test_neighbours_try_the_next_prompts_only_for_empty_positions(make_collector):
    sampler = Scripted(False, True, False, False, True, True)
    collected = collect(make_collector(NEIGHBOURS_REFILL), sampler, cursor=6)
    assert sampler.asked == [ids([6, 7, 8]), ids([9, 10]), ids([11])]
    assert trained(collected) == ids([7, 10, 11])
    assert collected.cursor == 6 + PROMPTS_PER_STEP


class GreedyRight(Scripted):
    """A sampler whose greedy completions are right and whose others are scripted."""

    def sample(self, prompts, group_size, sampling, *_):
        if sampling.temperature > 0:
            return super().sample(prompts)
        assert (group_size, sampling.top_p) == (1, 1.0)
        return [[completion(rf"<think></think>\boxed{{{prompt.answer}}}", length=5)] for prompt in prompts]


def test_each_group_carries_the_reward_of_its_greedy_completion_also_in_the_pool(make_collector):
    remax = {"objective": {"advantage": {"type": "greedy"}}}
    collector = make_collector({"type": "active"}, **remax)
    collected = collector.collect(
        GreedyRight(True, False, True, True, True, True), torch.Generator(), cursor=0
    )
    assert greedy_rewards(collected.groups).tolist() == [1.0] * 6
    assert [len(group.completions) for group in collected.groups] == [2] * 6
    assert collected.tokens == 6 * (2 * 3 + 5)
    restored_pool = Pool()
    restored_pool.restore(json.loads(json.dumps(collector.pool.values())), collector.pool.tensors())
    assert [group.greedy_reward for group in restored_pool.groups] == [1.0, 1.0]


def test_the_pool_is_restored_from_a_checkpoint(make_collector):
    shaped = {
        "length": {"penalty": {"type": "magistral"}},
        "rewards": [{"name": "correctness"}, {"name": "length"}],
    }
    collector = make_collector(ACTIVE_REFILL, **shaped)
    collect(collector, Scripted(*SIGNAL_SCRIPT))
    mask = SamplingMask(np.array([2, 0, 1]), np.array([5, 6, 7]))
    [waiting_group] = collector.pool.groups
    first, second = waiting_group.completions
    collector.pool.groups = [replace(waiting_group, completions=(replace(first, sampling_mask=mask), second))]
    restored_pool = Pool()
    restored_pool.restore(json.loads(json.dumps(collector.pool.values())), collector.pool.tensors())
    [group], [restored_group] = collector.pool.groups, restored_pool.groups
    assert (restored_group.prompt, restored_group.rewards, restored_group.terms) == (
        group.prompt,
        group.rewards,
        group.terms,
    )
    assert (restored_group.counted, restored_group.weights, restored_group.missed) == (
        group.counted,
        group.weights,
        group.missed,
    )
    assert restored_group.correctness == group.correctness
    assert restored_group.completions[0].sampling_mask.counts.tolist() == [2, 0, 1]
    assert restored_group.completions[0].sampling_mask.ids.tolist() == [5, 6, 7]
    assert restored_group.completions[1].sampling_mask is None
    for original_completion, restored_completion in zip(
        group.completions, restored_group.completions, strict=True
    ):
        assert (
            restored_completion.text,
            restored_completion.token_strings,
            restored_completion.finish_reason,
        ) == (
            original_completion.text,
            original_completion.token_strings,
            original_completion.finish_reason,
        )
        for name in ("ids", "sampler_logprobs", "entropies"):
            assert getattr(restored_completion, name).tolist() == getattr(original_completion, name).tolist()
            assert getattr(restored_completion, name).dtype == getattr(original_completion, name).dtype
