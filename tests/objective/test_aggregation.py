"""Tests of the aggregation of token losses into one number."""

import pytest
import torch

from backend.config import knobs
from backend.config.objective import Objective
from worker.objective.policy_loss import denominators

TOKEN_LOSSES = torch.tensor([[1, 2, 0], [3, 0, 0], [4, 4, 4], [0, 0, 0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 0, 0]], dtype=torch.bool)
GROUPS = torch.tensor([7, 7, 3, 3])

EXPECTED_RESULTS = [
    (knobs.SeqMeanTokenMean(), 2.1250),
    (knobs.TokenMean(), 2.5714),
    (knobs.PromptMean(), 2.5000),
    (knobs.SeqMeanTokenSum(), 4.5000),
    (knobs.SeqMeanTokenSumNorm(l_max=4), 1.1250),
    (knobs.SeqMeanTokenSumNorm(), 0.4500),
]


def weights(aggregation, mask=MASK, **options):
    return denominators(
        mask, GROUPS[: len(mask)], Objective(aggregation=aggregation), max_new_tokens=10, **options
    )


@pytest.mark.parametrize(("aggregation", "result"), EXPECTED_RESULTS)
def test_two_prompts_with_known_token_losses(aggregation, result):
    per_completion = (TOKEN_LOSSES * MASK).sum(dim=1)
    assert (per_completion @ weights(aggregation).weights).item() == pytest.approx(result, abs=6e-5)


@pytest.mark.parametrize("aggregation", [aggregation for aggregation, _ in EXPECTED_RESULTS])
def test_two_micro_batches_add_up_to_the_whole(aggregation):
    full_weights = weights(aggregation)
    per_completion = (TOKEN_LOSSES * MASK).sum(dim=1)
    half_sums = [
        per_completion[rows] @ full_weights.rows(rows).weights for rows in (slice(0, 3), slice(3, 4))
    ]
    assert sum(half_sums).item() == pytest.approx((per_completion @ full_weights.weights).item(), abs=1e-15)


def test_an_empty_completion_adds_nothing_but_counts():
    mask = torch.tensor([[True, True], [False, False]])
    assert weights(knobs.SeqMeanTokenMean(), mask).weights.tolist() == [0.25, 0]


@pytest.mark.parametrize("aggregation", [aggregation for aggregation, _ in EXPECTED_RESULTS])
def test_nothing_is_divided_by_zero_if_every_token_is_masked(aggregation):
    assert weights(aggregation, torch.zeros(2, 3, dtype=torch.bool)).weights.isfinite().all()


@pytest.mark.parametrize("aggregation", [aggregation for aggregation, _ in EXPECTED_RESULTS])
def test_excluded_groups_count_in_means_over_completions_and_prompts(aggregation):
    plain_weights, thinner_weights = weights(aggregation), weights(aggregation, loss_share=0.75)
    factor = 1 if isinstance(aggregation, knobs.TokenMean) else 0.75
    assert thinner_weights.weights.tolist() == pytest.approx((plain_weights.weights * factor).tolist())
    assert thinner_weights.sequence_weight == pytest.approx(0.75 / 4)
