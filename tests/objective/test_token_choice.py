"""Tests of the choice of tokens that an update trains, on fixture F."""

import pytest
import torch

from backend.config import knobs
from backend.config.objective import Objective
from tests.objective import fixture_f as f
from worker.objective.batch import require
from worker.objective.token_choice import (
    choose_entropic_tokens,
    covariances,
    most_covariant_tokens,
    most_uncertain_tokens,
    random_tokens_in_band,
    split_updates,
)

ENTROPY = f.pad_rows([[0.1, 0.9], [0.2, 0.8, 0.3], [0.4], [0.0, 0.5, 0.8, 0.6]])


def test_the_old_probabilities_decide_which_tokens_are_rare():
    probabilities = f.pad_rows(f.OLD_LOGPROBS).exp()[f.MASK].tolist()
    expected = [0.6065, 0.3012, 0.9048, 0.1353, 0.4966, 0.3679, 0.7408, 0.4066, 0.2019, 0.8187]
    assert probabilities == pytest.approx(expected, abs=6e-5)


def test_a_negative_eta_trains_the_rare_tokens_last():
    batch = f.batch(Objective())
    forward_updates, backward_updates = (
        [
            require(token_update.trained, "tokens")
            for token_update in split_updates(batch, knobs.Lopti(eta=eta))
        ]
        for eta in (0.5, -0.5)
    )
    assert torch.equal(forward_updates[0], backward_updates[1])
    assert torch.equal(forward_updates[1], backward_updates[0])
    assert torch.equal(forward_updates[0] | forward_updates[1], f.MASK)


def test_a_half_without_tokens_makes_no_update():
    batch = f.batch(Objective())
    assert len(split_updates(batch, knobs.Lopti(eta=1))) == 1  # every probability is below 1
    empty_batch = f.batch(Objective(), mask=torch.zeros_like(f.MASK))
    assert len(split_updates(empty_batch, knobs.Lopti())) == 1


def test_lopti_masks_kl_and_entropy_elsewhere_and_keeps_the_divisor():
    objective = Objective(
        kl=knobs.KlK1(coef=1), aggregation=knobs.TokenMean(), token_weight=knobs.Lopti(eta=0.5)
    )
    zero = {"advantages": torch.zeros(4)}
    half_updates = split_updates(f.batch(objective), objective.token_weight)
    pulls = [-f.run(objective, trained=half_update.trained, **zero)[1] for half_update in half_updates]
    assert pulls[0].tolist() == pytest.approx([0.1 * bit for bit in (0, 1, 0, 1, 1, 1, 0, 1, 1, 0)])
    assert (pulls[0] + pulls[1]).tolist() == pytest.approx([0.1] * 10)


def test_the_shift_of_other_tokens_is_measured_in_their_turn():
    objective = Objective(token_weight=knobs.Lopti(eta=0.5))
    first, second = (
        f.run(objective, trained=half_update.trained)[0].metrics.values()
        for half_update in split_updates(f.batch(objective), objective.token_weight)
    )
    assert "lopti/high_shift" not in first
    assert second["lopti/high_shift"] == pytest.approx((0.30 + 0.30 + 0.30 + 0.0) / 4)


def test_the_most_uncertain_fifth_of_ten_tokens_is_two_including_ties():
    chosen_mask = most_uncertain_tokens(ENTROPY, f.MASK, q=0.1)
    assert chosen_mask[f.MASK].tolist() == [False, True] + [False] * 8
    chosen_mask = most_uncertain_tokens(ENTROPY, f.MASK, q=0.2)
    assert chosen_mask[f.MASK].nonzero().flatten().tolist() == [1, 3, 8]
    assert not chosen_mask[~f.MASK].any()
    assert torch.equal(most_uncertain_tokens(ENTROPY, f.MASK, q=1.0), f.MASK)
    assert not most_uncertain_tokens(ENTROPY, torch.zeros_like(f.MASK), q=0.2).any()


def test_top_entropy_keeps_the_policy_loss_there_and_the_kl_everywhere():
    knob = knobs.TopEntropy(q=0.2)
    objective = Objective(
        kl=knobs.KlK1(coef=1), aggregation=knobs.TokenMean(), token_weight=knob, surrogate=knobs.NoSurrogate()
    )
    uncertain_mask = choose_entropic_tokens(f.batch(objective), ENTROPY, knob).uncertain
    _, minus_gradient = f.run(objective, uncertain=uncertain_mask)
    policy = (minus_gradient + 0.1).tolist()
    expected = [0.0] * 10
    for token, ratio, advantage in ((1, 1.1052, 0.8659), (3, 1.6487, 0.8659), (8, 0.7788, -0.8659)):
        expected[token] = ratio * advantage / 10
    assert policy == pytest.approx(expected, abs=6e-5)


LOGPROBS = torch.tensor([[-1.0, -3.0], [-2.0, float("nan")]], dtype=torch.float64)
COUNTED = torch.tensor([[True, True], [True, False]])
GOOD_AND_BAD = torch.tensor([[1.0], [-2.0]], dtype=torch.float64)


def test_the_covariance_of_a_token_is_its_contribution_to_the_total():
    """The mean log-probability is -2 and the mean advantage 0, over two tokens and one token."""
    contributions = covariances(LOGPROBS, GOOD_AND_BAD, COUNTED)
    assert contributions.tolist() == [[1.0, -1.0], [0.0, 0.0]]


def test_at_least_one_token_is_selected_but_none_of_no_tokens():
    covariance = torch.tensor([[0.5, 3.0], [2.0, 9.0]])
    assert most_covariant_tokens(covariance, COUNTED, share=1e-3).tolist() == [[False, True], [False, False]]
    assert most_covariant_tokens(covariance, COUNTED, share=0.7).tolist() == [[False, True], [True, False]]
    assert not most_covariant_tokens(covariance, torch.zeros_like(COUNTED), share=0.5).any()


def test_tokens_are_only_drawn_from_the_band():
    covariance, generator = torch.tensor([[0.5, 3.0], [2.0, 9.0]]), torch.Generator().manual_seed(1)
    drawn_masks = [
        random_tokens_in_band(covariance, COUNTED, generator, share=0.1, low=1.0, high=5.0) for _ in range(20)
    ]
    assert {int(mask.sum()) for mask in drawn_masks} == {1}
    assert torch.stack(drawn_masks).any(dim=0).tolist() == [[False, True], [True, False]]
    assert not random_tokens_in_band(covariance, COUNTED, generator, share=0.1, low=10.0, high=20.0).any()
