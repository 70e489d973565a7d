"""Tests of the area under the pass rate of answers that are forced after truncated thinking."""

import pytest
import torch

from backend.config.rewards import CorrectnessReward
from backend.rollouts.tags import CLOSE_TAG
from worker.problems.sums import Sums
from worker.rewards.score import Scorer
from worker.rollout.sampler import Decoding, Sampler
from worker.training.check_numbers import finite_mean
from worker.training.effort import area_under_curve, effort_auc, split_thinking
from worker.types import Group

GREEDY_DECODING = Decoding(64, temperature=0.0)


@pytest.fixture(scope="module")
def solved_completions(tiny):
    """Greedy completions of held-out sums."""
    prompts = [Sums(seed=0).sample(index, "eval") for index in range(24)]
    return list(
        zip(prompts, Sampler(tiny).sample(prompts, 1, GREEDY_DECODING, torch.Generator()), strict=True)
    )


def make_groups(pairs):
    return [Group(prompt, tuple(completions), (0.0,) * len(completions)) for prompt, completions in pairs]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>abc</think>d", ("<think>", "abc")),
        ("abc</think>d", ("", "abc")),
        ("x<think>a<think>b</think>c</think>", ("x<think>", "a<think>b")),
        ("</think>", ("", "")),
        ("<think>abc", None),
        ("", None),
    ],
)
def test_the_thinking_of_a_text_is_extracted(text, parts):
    assert split_thinking(text) == parts


def test_the_area_matches_a_calculation_by_hand():
    assert area_under_curve([0, 0, 1, 1, 1]) == 0.625
    assert area_under_curve([1, 1, 1, 1, 1]) == 1


def test_a_completion_continues_after_its_prefix(tiny, solved_completions):
    prompts = [prompt for prompt, _ in solved_completions]
    beginnings = [completion.ids[:7].tolist() for _, [completion] in solved_completions]
    continued_groups = Sampler(tiny).sample(
        prompts, 1, GREEDY_DECODING, torch.Generator(), beginnings=beginnings
    )
    assert [continued_completion.ids.tolist() for [continued_completion] in continued_groups] == [
        completion.ids[7:].tolist() for _, [completion] in solved_completions
    ]


def test_the_full_thinking_leads_to_the_original_answer(tiny, solved_completions):
    """The tiny policy needs its thinking: at full length, the pass rate is that of the greedy answers."""
    thinking = [
        (prompt, completions)
        for prompt, completions in solved_completions
        if CLOSE_TAG in completions[0].text
    ]
    assert thinking
    mean_scores = []

    class Watched(Scorer):
        def correctness(self, prompts, texts):
            scores = super().correctness(prompts, texts)
            mean_scores.append(finite_mean(scores) or 0.0)
            return scores

    scorer = Watched([CorrectnessReward()])
    auc = effort_auc(tiny, make_groups(solved_completions), scorer, max_new_tokens=64)
    scores = Scorer([CorrectnessReward()]).correctness(
        [prompt for prompt, _ in thinking], [completions[0].text for _, completions in thinking]
    )
    assert len(mean_scores) == 5
    assert mean_scores[-1] == pytest.approx(finite_mean(scores))
    assert mean_scores[0] < mean_scores[-1]
    assert auc is not None
    assert auc == pytest.approx(area_under_curve(mean_scores))
    assert 0 <= auc < mean_scores[-1]
