"""Properties of every advantage for arbitrary rewards."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.config import knobs
from worker.objective.estimation import estimate_advantages
from worker.objective.multi_reward import RewardTerms

BASELINES = [
    knobs.GroupMean,
    knobs.LeaveOneOut,
    knobs.OptimalBaseline,
    knobs.BestOfGroup,
    knobs.GreedyBaseline,
    knobs.BatchMean,
    knobs.MovingAverage,
    knobs.NoBaseline,
]
SCALES = [
    knobs.NoScale(),
    knobs.GroupStd(),
    knobs.GroupStd(ddof=0),
    knobs.BatchStd(),
    knobs.MeanReward(),
    knobs.BatchStd(of="centred_rewards"),
    knobs.SeqWhiten(),
    knobs.TokenWhiten(),
]
COMBINATIONS: list[Any] = [baseline(scale=scale) for baseline in BASELINES for scale in SCALES]
COMBINATIONS += [knobs.GroupMean(scale=knobs.Sas()), knobs.GroupMean(multi_reward="gdpo")]
SHIFT_FREE_KNOBS = [
    knob
    for knob in COMBINATIONS
    if knob.type in {"group_mean", "loo", "optimal", "best_of_group", "batch_mean"}
    and knob.scale.type != "mean_reward"
]
GROUP_CENTRED_KNOBS = [knob for knob in COMBINATIONS if knob.type in {"group_mean", "loo"}]

reward = st.sampled_from([0.0, 1.0, 0.2, -1.0]) | st.floats(-100, 100)


@st.composite
def scores(draw):
    prompts, group = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    values = draw(st.lists(reward, min_size=prompts * group, max_size=prompts * group))
    is_scored = draw(st.lists(st.booleans(), min_size=prompts * group, max_size=prompts * group))
    shape = (prompts, group)
    return torch.tensor(values, dtype=torch.float64).view(shape), torch.tensor(is_scored).view(shape)


def advantages(values, scored, knob):
    single_term = RewardTerms(values[None], scored[None], torch.ones(1, len(values), dtype=torch.float64))
    return estimate_advantages(
        values,
        scored,
        knob,
        terms=single_term,
        lengths=torch.ones_like(values),
        greedy=torch.full(values.shape[:1], 0.5, dtype=torch.float64),
    ).advantages


def tolerance(values):
    return 1e-6 * (1 + values.abs().max().item())


@given(scores(), st.sampled_from(GROUP_CENTRED_KNOBS))
def test_group_centred_advantages_add_up_to_zero(values_and_scored, knob):
    values, scored = values_and_scored
    estimates = advantages(values, scored, knob)
    assert estimates.sum(dim=1).tolist() == pytest.approx([0] * len(values), abs=tolerance(estimates) * 10)


@given(scores(), st.sampled_from(SHIFT_FREE_KNOBS))
def test_adding_a_constant_to_all_rewards_changes_nothing(values_and_scored, knob):
    values, scored = values_and_scored
    values = values.round(decimals=2)
    estimates = advantages(values, scored, knob)
    shifted_estimates = advantages(values + 64, scored, knob)
    torch.testing.assert_close(shifted_estimates, estimates, rtol=1e-6, atol=1e-6)


@given(scores(), st.sampled_from(COMBINATIONS), st.randoms(use_true_random=False))
def test_permuting_a_group_permutes_its_advantages(values_and_scored, knob, rng):
    values, scored = values_and_scored
    order = list(range(values.shape[1]))
    rng.shuffle(order)
    estimates = advantages(values, scored, knob)
    permuted_estimates = advantages(values[:, order], scored[:, order], knob)
    torch.testing.assert_close(permuted_estimates, estimates[:, order], rtol=1e-6, atol=1e-6)


@given(scores(), st.sampled_from(COMBINATIONS))
def test_every_baseline_with_every_scale_is_finite_and_zero_if_unscored(values_and_scored, knob):
    values, scored = values_and_scored
    estimates = advantages(values.where(scored, torch.nan), scored, knob)
    assert estimates.isfinite().all()
    assert (estimates[~scored] == 0).all()
