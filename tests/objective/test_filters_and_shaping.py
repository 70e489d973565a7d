"""Tests of group filters and length shaping."""

import pytest
import torch

from worker.objective import filters, shaping

SCORES = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).double()
SCORED = torch.ones(4, 4, dtype=torch.bool)


def test_groups_with_equal_scores_are_dropped():
    assert filters.group_variation_mask(SCORES, SCORED).tolist() == [True, False, False, True]


def test_dynamic_sampling_keeps_groups_that_are_neither_solved_nor_hopeless():
    assert filters.accuracy_band_mask(SCORES, SCORED, low=0.0, high=1.0).tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert filters.accuracy_band_mask(SCORES, SCORED, low=0.3, high=1.0).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_completions_without_a_score_do_not_count():
    is_scored = SCORED.clone()
    is_scored[0, 2:] = False  # the scored completions of the first group are all right
    is_scored[3] = False
    assert filters.group_variation_mask(SCORES, is_scored).tolist() == [False, False, False, False]
    assert filters.accuracy_band_mask(SCORES, is_scored, low=0.0, high=1.0).tolist() == [False] * 4


def test_kept_groups_are_weighted_up_to_compensate_for_dropped_ones():
    assert filters.upweight(trained_count=3, total=4) == pytest.approx(1.3333, abs=6e-5)
    assert filters.upweight(trained_count=8, total=12) == 1.5
    assert filters.upweight(trained_count=0, total=4) == 1


def test_excluded_groups_count_in_the_divisor():
    assert filters.loss_share(trained_count=3, total=4) == 0.75
    assert filters.loss_share(trained_count=0, total=0) == 1


def test_the_soft_penalty_ramps_over_the_last_tokens():
    lengths = torch.tensor([[16384, 17408, 18432, 20480, 21000]])
    penalties = shaping.soft_overlong(lengths, l_max=20480, l_cache=4096)
    assert penalties.tolist() == [[0, -0.25, -0.5, -1, -1]]


def test_magistrals_penalty_is_a_tenth_of_the_soft_one():
    penalties = shaping.magistral_penalty(torch.tensor([[80, 90, 100, 120]]), l_max=100, l_cache=20)
    assert penalties.tolist()[0] == pytest.approx([0, -0.05, -0.1, -0.1])


def test_truncated_rewards_are_scaled():
    truncated = torch.tensor([[True, False]])
    assert shaping.scaled_truncated_rewards(torch.tensor([[1.0, 1.0]]), truncated, factor=0.5).tolist() == [
        [0.5, 1]
    ]


def test_truncation_never_pays_if_rewards_are_negative():
    rewards, truncated_mask = (
        torch.tensor([[-1.0, -1.0, 1.0, 1.0]]),
        torch.tensor([[True, False, True, False]]),
    )
    assert shaping.scaled_truncated_rewards(rewards, truncated_mask, factor=0.0).tolist() == [[-1, -1, 0, 1]]
    assert shaping.scaled_truncated_rewards(rewards, truncated_mask, factor=0.5).tolist() == [
        [-1, -1, 0.5, 1]
    ]
