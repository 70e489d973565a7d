"""Filling a step with groups that carry signal."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from backend.config.merge import resolve
from worker.problems.mixture import Ingredient, Mixture
from worker.problems.sums import Sums
from worker.rewards.score import Scorer
from worker.rollout.collector import Collector, greedy_rewards, reward_terms
from worker.rollout.engine import Interrupted
from worker.rollout.pool import Pool
from worker.training.step_metrics import group_metrics
from worker.types import Alternatives, Completion, SamplingMask

P = 3


class Scripted:
    """Writes one right and one wrong answer where the script says True, two wrong ones where False."""

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
def collector():
    scorers = []

    def build(refill, **changes):
        filters = {"groups": {"type": "zero_variance"}, "refill": refill}
        sampling = {"prompts_per_step": P, "group_size": 2, "max_new_tokens": 10}
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


DYNAMIC = {"type": "dynamic", "max_batches": 10}
ACTIVE = {"type": "active", "max_batches": 10}
NEIGHBOURS = {"type": "neighbours", "n": 8}
ONE_ONE_TWO = (False, True, False, True, False, False, True, True, False)


def test_dynamic_sampling_draws_until_the_step_is_full_and_drops_the_surplus(collector):
    collected = collect(collector(DYNAMIC), Scripted(*ONE_ONE_TWO))
    assert (collected.batches, collected.informative, collected.cursor) == (3, 4, 9)
    assert trained(collected) == ids([1, 3, 6])
    assert group_metrics(collected)["groups/kept_frac"] == pytest.approx(0.4444, abs=6e-5)
    assert not collected.is_short


def test_dynamic_sampling_that_finds_too_little_trains_on_what_there_is(collector):
    collected = collect(collector({"type": "dynamic", "max_batches": 2}), Scripted(*ONE_ONE_TWO))
    assert trained(collected) == ids([1, 3])
    assert collected.is_short


def test_active_refill_carries_the_surplus_into_the_next_step(collector):
    active = collector(ACTIVE)
    first = collect(active, Scripted(*ONE_ONE_TWO))
    assert trained(first) == ids([1, 3, 6])
    assert group_metrics(first)["sampling/carried_frac"] == 0
    second = collect(active, Scripted(True, True, False), cursor=9)
    assert trained(second) == ids([7, 9, 10])
    assert second.batches == 1
    metrics = group_metrics(second)
    assert metrics["sampling/carried_frac"] == pytest.approx(1 / 3)
    assert metrics["tokens/generated"] == 3 * 2 * 3  # what waited was counted when it was sampled
    assert metrics["groups/kept_frac"] == pytest.approx(2 / 3)
    assert active.pool.groups == []


def test_a_group_never_waits_longer_than_one_step(collector):
    active = collector(ACTIVE)
    last: list[str] = []
    for step in range(4):
        script = ONE_ONE_TWO if step == 0 else (True, True, True)
        collected = collect(active, Scripted(*script), cursor=9 * step)
        assert [collected.groups[index].prompt.id for index in collected.carried] == last
        assert last == [] or trained(collected)[0] == last[0]
        last = [group.prompt.id for group in active.pool.groups]
        assert len(last) == 1


def test_an_interrupted_collection_leaves_the_pool_as_it_was(collector):
    active = collector(ACTIVE)
    collect(active, Scripted(*ONE_ONE_TWO))
    before = list(active.pool.groups)
    with pytest.raises(Interrupted):
        collect(active, Scripted(False, False, False), cursor=9)
    assert active.pool.groups == before


def test_neighbours_try_the_next_prompts_for_empty_places_only(collector):
    sampler = Scripted(False, True, False, False, True, True)
    collected = collect(collector(NEIGHBOURS), sampler, cursor=6)
    assert sampler.asked == [ids([6, 7, 8]), ids([9, 10]), ids([11])]
    assert trained(collected) == ids([7, 10, 11])
    assert collected.cursor == 6 + P


def test_neighbours_give_up_after_n_tries_and_move_on_by_one_step(collector):
    collected = collect(collector({"type": "neighbours", "n": 2}), Scripted(*[False] * 6))
    assert (collected.batches, collected.trained, collected.cursor) == (2, [], P)
    assert collected.is_short


class Greedy(Scripted):
    """Answers right where a greedy completion is asked for, and scripted otherwise."""

    def sample(self, prompts, group_size, sampling, *_):
        if sampling.temperature > 0:
            return super().sample(prompts)
        assert (group_size, sampling.top_p) == (1, 1.0)
        return [[completion(rf"<think></think>\boxed{{{prompt.answer}}}", length=5)] for prompt in prompts]


def test_each_group_brings_the_reward_of_its_greedy_completion_and_the_pool_keeps_it(collector):
    remax = {"objective": {"advantage": {"type": "greedy"}}}
    active = collector({"type": "active"}, **remax)
    collected = active.collect(Greedy(True, False, True, True, True, True), torch.Generator(), cursor=0)
    assert greedy_rewards(collected.groups).tolist() == [1.0] * 6
    assert [len(group.completions) for group in collected.groups] == [2] * 6
    assert collected.tokens == 6 * (2 * 3 + 5)
    restored = Pool()
    restored.restore(json.loads(json.dumps(active.pool.values())), active.pool.tensors())
    assert [group.greedy_reward for group in restored.groups] == [1.0, 1.0]


def test_without_that_baseline_nothing_greedy_is_sampled(collector):
    collected = collector({"type": "none"}).collect(Greedy(True, True, True), torch.Generator(), cursor=0)
    assert greedy_rewards(collected.groups).isnan().all()


def test_a_pool_that_an_older_version_wrote_comes_back(collector):
    active = collector(ACTIVE)
    collect(active, Scripted(*ONE_ONE_TWO))
    written = json.loads(json.dumps(active.pool.values()))
    for group in written["groups"]:
        del group["prompt"]["messages"], group["prompt"]["tools"]
        group["prompt"]["data"] = group["prompt"].pop("columns")
    restored = Pool()
    restored.restore(written, active.pool.tensors())
    assert [group.prompt for group in restored.groups] == [group.prompt for group in active.pool.groups]


def test_the_pool_comes_back_from_what_a_checkpoint_holds(collector):
    shaped = {
        "length": {"penalty": {"type": "magistral"}},
        "rewards": [{"name": "correctness"}, {"name": "length"}],
    }
    active = collector(ACTIVE, **shaped)
    collect(active, Scripted(*ONE_ONE_TWO))
    mask = SamplingMask(np.array([2, 0, 1]), np.array([5, 6, 7]))
    [waiting] = active.pool.groups
    first, second = waiting.completions
    active.pool.groups = [replace(waiting, completions=(replace(first, sampling_mask=mask), second))]
    restored = Pool()
    restored.restore(json.loads(json.dumps(active.pool.values())), active.pool.tensors())
    [group], [again] = active.pool.groups, restored.groups
    assert (again.prompt, again.rewards, again.terms) == (group.prompt, group.rewards, group.terms)
    assert (again.counted, again.weights, again.missed) == (group.counted, group.weights, group.missed)
    assert again.correctness == group.correctness
    assert again.completions[0].sampling_mask.counts.tolist() == [2, 0, 1]
    assert again.completions[0].sampling_mask.ids.tolist() == [5, 6, 7]
    assert again.completions[1].sampling_mask is None
    for before, after in zip(group.completions, again.completions, strict=True):
        assert (after.text, after.token_strings, after.finish_reason) == (
            before.text,
            before.token_strings,
            before.finish_reason,
        )
        for name in ("ids", "sampler_logprobs", "entropies"):
            assert getattr(after, name).tolist() == getattr(before, name).tolist()
            assert getattr(after, name).dtype == getattr(before, name).dtype


class Written:
    """Writes the same two completions for every prompt: one cut at the cap, one too long without its form."""

    def sample(self, prompts, *_):
        box = rf"\boxed{{{prompts[0].answer}}}"
        cut = completion(f"<think></think>{box}", length=8, finish_reason="length")
        return [[cut, completion(box, length=8)] for _ in prompts]


def test_the_likeliest_tokens_of_a_group_that_waits_come_back_too(collector):
    """A run that records them writes the checkpoint, and the step that trains on the group stores them."""
    active = collector({"type": "active", "max_batches": 5})
    active.collect(Scripted(True, False, True, True, True, False), None, cursor=0)
    [waiting] = active.pool.groups
    likeliest = Alternatives(
        np.arange(6, dtype=np.int32).reshape(3, 2),
        np.array([[-0.1, -np.inf], [-0.2, -3.0], [-0.3, -4.0]], np.float32),
    )
    first, second = waiting.completions
    active.pool.groups = [replace(waiting, completions=(replace(first, alternatives=likeliest), second))]
    restored = Pool()
    restored.restore(json.loads(json.dumps(active.pool.values())), active.pool.tensors())
    again, without_alternatives = restored.groups[0].completions
    assert again.alternatives.ids.tolist() == likeliest.ids.tolist()
    assert again.alternatives.logprobs.tobytes() == likeliest.logprobs.tobytes()
    assert again.alternatives.ids.dtype == np.int32
    assert without_alternatives.alternatives is None


def test_length_and_required_forms_shape_the_reward_and_the_raw_sum_is_kept(collector):
    build = collector(
        {"type": "none"},
        length={
            "truncated": {"type": "scale_reward", "factor": 0.5},
            "penalty": {"type": "magistral", "cache_fraction": 0.4},
        },
        rewards=[
            {"name": "correctness", "weight": 0.9},
            {"name": "think_format", "weight": 0.1, "required": True},
        ],
        sampling={"prompts_per_step": 1, "group_size": 2, "max_new_tokens": 10},
    )
    collected = collect(build, Written())
    [group] = collected.groups
    assert group.rewards == pytest.approx((0.5 - 0.05, 0.0))  # the ramp of 4 tokens begins at 6: half of 0.1
    assert group.terms["correctness"] == (1, 1)
    terms = reward_terms([group])
    by_name = dict(zip(sorted(group.counted), terms.values.squeeze(1).tolist(), strict=True))
    assert by_name["correctness"] == [0.5, 0]
    assert by_name["length_penalty"] == pytest.approx([-0.05, 0])
    total = (terms.values * terms.weights.unsqueeze(2)).sum(dim=0)
    assert total[0].tolist() == pytest.approx(group.rewards)
    metrics = group_metrics(collected)
    assert metrics["reward/raw_mean"] == pytest.approx((1.0 + 0.9) / 2)
    assert metrics["reward/mean"] == pytest.approx(0.225)


def test_a_length_reward_does_not_make_equal_answers_informative(collector):
    rewards = [{"name": "correctness"}, {"name": "length"}]
    build = collector({"type": "none"}, rewards=rewards)

    class Wrong:
        def sample(self, prompts, *_):
            return [[completion("0", length=3), completion("0", length=5)] for _ in prompts]

    collected = collect(build, Wrong())
    assert collected.groups[0].rewards == (0, -0.05)
    assert collected.trained == []
    assert group_metrics(collected)["groups/zero_variance_frac"] == 1


def test_a_length_penalty_does_not_hide_that_rewards_are_equal(collector):
    build = collector({"type": "none"}, length={"penalty": {"type": "soft_overlong"}})

    class Wrong:
        def sample(self, prompts, *_):
            return [
                [completion("0", length=3), completion("0", length=8 + row)] for row, _ in enumerate(prompts)
            ]

    collected = collect(build, Wrong())
    collected.add(collect(build, Scripted(True, False, True)))
    assert collected.groups[2].rewards[0] != collected.groups[2].rewards[1]
    metrics = group_metrics(collected)
    assert metrics["groups/zero_variance_frac"] == pytest.approx(4 / 6)
    assert metrics["groups/kept_frac"] == pytest.approx(2 / 6)
    assert "policy/entropy" not in metrics


def test_a_term_of_another_domain_counts_nothing_in_a_group():
    scorer_terms = resolve(
        {"rewards": [{"name": "correctness"}, {"name": "boxed_format", "weight": 0.5}]}
    ).rewards
    scorer = Scorer(scorer_terms)
    [prompt] = mixture().prompts(0, 1)
    [group] = scorer.score([prompt], [[completion(r"\boxed{1}"), completion("one")]])
    scorer.close()
    other_domain = type(group)(
        prompt,
        group.completions,
        rewards=(1.0, 0.0),
        counted={"correctness": (1.0, None)},
        weights={"correctness": 2.0},
    )
    terms = reward_terms([group, other_domain])
    assert terms.weights.tolist() == [[0.5, 0.0], [1.0, 2.0]]
    assert terms.scored.tolist() == [[[True, True], [False, False]], [[True, True], [True, False]]]
