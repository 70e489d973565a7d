"""Tests of off-policy masks and damping, on fixture F and by hand."""

import math

import pytest
import torch

from backend.config import knobs
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.rules.combinations import warnings
from tests.objective import fixture_f as f
from worker.objective import off_policy_masks

CENTRED_ADVANTAGE = knobs.GroupMean(scale=knobs.NoScale())


def masked_frac(**mask):
    result, minus_gradient = f.run(Objective(advantage=CENTRED_ADVANTAGE, off_policy_mask=knobs.Opsm(**mask)))
    return result.metrics.values()["opsm/masked_frac"], minus_gradient


def test_the_third_completion_is_too_far_from_its_sampler():
    """mean(mu - new) is -.2250, -.4167, 1.0000 and 0, and y3 and y4 have negative advantages."""
    share, minus_gradient = masked_frac(delta=0.5)
    assert share == 0.25
    assert minus_gradient[5] == 0
    assert masked_frac(delta=1.01)[0] == 0


def test_against_the_old_policy_it_is_masked_at_a_tenth_and_not_at_a_half():
    """mean(old - new) is -.2, -.0833, .4 and .0125."""
    assert masked_frac(delta=0.1, source="old")[0] == 0.25
    assert masked_frac(delta=0.5, source="old")[0] == 0


def test_good_completions_are_never_masked():
    drift = torch.tensor([[9.0], [9.0]])
    mask = off_policy_masks.off_policy_keep_mask(drift, torch.tensor([[1.0], [-1.0]]), delta=0.5)
    assert mask.tolist() == [[True], [False]]


def test_if_advantages_differ_between_tokens_the_mask_is_per_token():
    mask = off_policy_masks.off_policy_keep_mask(
        torch.tensor([[9.0]]), torch.tensor([[1.0, -1.0, 0.0]]), delta=0.5
    )
    assert mask.tolist() == [[True, False, True]]


def test_a_masked_completion_keeps_its_kl():
    objective = Objective(off_policy_mask=knobs.Opsm(), kl=knobs.KlK2(coef=1))
    assert f.run(objective)[1][5].item() == pytest.approx(0.2 / 4)  # x = -.2, a quarter of the mean


def test_the_mask_needs_the_samplers_log_probs():
    with pytest.raises(ValueError, match="needs sampler log-probabilities"):
        f.run(Objective(off_policy_mask=knobs.Opsm()), sampler_logprobs=None)
    f.run(Objective(off_policy_mask=knobs.Opsm(source="old")), sampler_logprobs=None)


def test_gamma_is_floored_and_has_no_gradient():
    shift = torch.tensor([[math.log(0.6), math.log(0.9)]], requires_grad=True)
    gate = off_policy_masks.floored_gate(shift, gamma_min=0.8)
    assert gate.log_gamma.exp().tolist()[0] == pytest.approx([0.8, 0.9])
    assert gate.gamma.tolist()[0] == pytest.approx([0.6, 0.9])
    assert gate.floored.tolist() == [[True, False]]
    assert not gate.log_gamma.requires_grad


def test_gamma_is_measured_before_the_floor():
    gamma = [[1, 0.9], [0.95, 0.6, 1], [0.85], [1, 1, 0.7, 0.9]]
    result, _ = f.run(resolve({"preset": "rspo"}).objective, router_shift=f.pad_rows(gamma).log())
    metrics = result.metrics.values()
    assert metrics["router/shift_mean"] == pytest.approx(sum(map(sum, gamma)) / 10)
    assert metrics["router/shift_min"] == pytest.approx(0.6)
    assert metrics["router/floor_frac"] == pytest.approx(0.2)


def test_a_dense_policy_ignores_the_knob():
    rspo, gmpo = (resolve({"preset": name}).objective for name in ("rspo", "gmpo"))
    dense_result, minus_gradient = f.run(rspo)
    assert dense_result.loss == f.run(gmpo)[0].loss
    assert minus_gradient.tolist() == f.run(gmpo)[1].tolist()
    assert not [name for name in dense_result.metrics.values() if name.startswith("router/")]


def test_doubtful_choices_cause_a_warning():
    assert any("dense policy" in warning for warning in warnings(resolve({"preset": "rspo"})))
    masked_config = {"objective": {"off_policy_mask": {"type": "opsm", "source": "old"}}}
    assert any(
        "opsm with source = old has no effect" in warning for warning in warnings(resolve(masked_config))
    )
    assert not any(
        "opsm with source = old has no effect" in warning
        for warning in warnings(resolve({"preset": "deepseek_v32_book"}))
    )
