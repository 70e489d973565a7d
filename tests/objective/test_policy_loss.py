"""Tests of the complete loss: its metrics, its micro-batches, and its robustness to garbage."""

from typing import get_args

import pytest
import torch
from pydantic import ValidationError

from backend.config import knobs
from backend.config.merge import resolve
from backend.config.metrics import find_metric
from backend.config.objective import Objective
from tests.objective import fixture_f as f
from tests.presets import METHOD_PRESETS, OBJECTIVE_BY_PRESET
from worker.objective.metric_sums import MetricSums
from worker.objective.policy_loss import denominators, has_gradient, policy_loss

WIDE_GSPO = Objective(
    ratio=knobs.SequenceGeometricRatio(), surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.28)
)


def compute_metrics(objective, new_logprobs=f.NEW_LOGPROBS):
    return f.run(objective, new_logprobs, entropy=f.ENTROPY)[0].metrics.values()


def test_clip_fractions_count_the_tokens_without_a_gradient():
    metrics = compute_metrics(Objective())
    assert (metrics["clip/high_frac"], metrics["clip/low_frac"]) == pytest.approx((0.2, 0.2))
    prorl = Objective(surrogate=knobs.PpoClip(eps_high=0.4), aggregation=knobs.TokenMean())
    assert compute_metrics(prorl)["clip/high_frac"] == pytest.approx(0.1)


def test_a_shared_ratio_is_counted_once_per_completion():
    metrics = compute_metrics(WIDE_GSPO)
    assert metrics["clip/high_frac"] + metrics["clip/low_frac"] == pytest.approx(0.25)
    assert metrics["ratio/mean"] == pytest.approx((1.2214 + 1.0869 + 0.6703 + 0.9876) / 4, abs=6e-5)
    narrow_metrics = compute_metrics(resolve({"preset": "gspo"}).objective)
    assert narrow_metrics["clip/high_frac"] + narrow_metrics["clip/low_frac"] == pytest.approx(1.0)


def test_capped_weights_are_counted_for_either_sign():
    assert compute_metrics(Objective(surrogate=knobs.WeightCap(cap=1.28)))["clip/high_frac"] == pytest.approx(
        0.3
    )
    assert compute_metrics(Objective(surrogate=knobs.WeightCap(cap=5)))["clip/high_frac"] == 0


def test_a_smooth_gate_reports_its_weight_and_no_clipping():
    metrics = compute_metrics(resolve({"preset": "sapo"}).objective, f.pad_rows(f.OLD_LOGPROBS))
    assert metrics["gate/mean"] == pytest.approx(1)
    assert not [name for name in metrics if name.startswith("clip/")]


def test_on_fresh_rollouts_the_loss_is_about_zero_while_the_gradient_is_not():
    result, minus_gradient = f.run(Objective(), f.pad_rows(f.OLD_LOGPROBS), old_logprobs=None)
    assert result.loss.item() == pytest.approx(0, abs=1e-12)
    assert result.metrics.values()["ratio/max"] == 1
    assert minus_gradient.abs().min() > 0.05


def test_the_terms_of_the_loss_add_up():
    objective = Objective(kl=knobs.KlK3(coef=0.5), entropy=knobs.EntropyBonus(coef=0.1))
    batch = f.batch(objective)
    weights = denominators(batch.mask, batch.group_index, objective, max_new_tokens=4)
    entropy = torch.full((4, 4), 2.0, dtype=torch.float64).where(f.MASK, torch.nan)
    metrics = policy_loss(f.NEW_LOGPROBS, batch, objective, weights, entropy=entropy).metrics.values()
    assert metrics["policy/entropy"] == pytest.approx(2)
    assert metrics["loss/entropy"] == pytest.approx(-0.2)
    assert metrics["loss/kl"] == pytest.approx(0.5 * 0.0341, abs=6e-5)
    term_sum = metrics["loss/policy"] + metrics["loss/kl"] + metrics["loss/entropy"]
    assert metrics["loss/total"] == pytest.approx(term_sum)
    assert metrics["kl/coef"] == pytest.approx(0.5)


def test_an_entropy_bonus_without_entropy_is_refused():
    with pytest.raises(ValueError, match="needs entropy"):
        f.run(Objective(entropy=knobs.EntropyBonus()))


def test_a_reference_term_without_reference_is_refused():
    with pytest.raises(ValueError, match="needs reference log-probabilities"):
        f.run(Objective(kl=knobs.KlK3()), reference_logprobs=None)


def test_minibatches_are_averaged_and_micro_batches_are_added():
    objective = resolve({"preset": "grpo"}).objective
    batch = f.batch(objective)
    weights = denominators(batch.mask, batch.group_index, objective, max_new_tokens=4)
    rows = [slice(0, 1), slice(1, 4)]
    micro = [policy_loss(f.NEW_LOGPROBS[r], batch.rows(r), objective, weights.rows(r)) for r in rows]
    merged_metrics = MetricSums.merged(loss_of_rows.metrics for loss_of_rows in micro).values()
    result = policy_loss(f.NEW_LOGPROBS, batch, objective, weights)
    assert merged_metrics == pytest.approx(result.metrics.values())
    averaged_metrics = (result.metrics + result.metrics).values()
    assert averaged_metrics == pytest.approx(result.metrics.values())


def test_a_fully_masked_batch_keeps_its_graph():
    result, minus_gradient = f.run(Objective(), mask=torch.zeros_like(f.MASK))
    assert result.loss.item() == 0
    assert minus_gradient.abs().sum() == 0
    assert "ratio/max" not in result.metrics.values()


def test_half_precision_log_probs_are_computed_in_single_precision():
    objective = Objective()
    batch = f.batch(objective)
    weights = denominators(batch.mask, batch.group_index, objective, max_new_tokens=4)
    assert policy_loss(f.NEW_LOGPROBS.bfloat16(), batch, objective, weights).loss.dtype == torch.float64
    half_precision_batch = f.batch(
        objective, old_logprobs=f.pad_rows(f.OLD_LOGPROBS).bfloat16(), reference_logprobs=None
    )
    assert (
        policy_loss(f.NEW_LOGPROBS.bfloat16(), half_precision_batch, objective, weights).loss.dtype
        == torch.float32
    )


@pytest.mark.parametrize("preset", METHOD_PRESETS)
def test_contributions_and_gradients_of_tokens_match_the_loss(preset):
    result, minus_gradient = f.run(OBJECTIVE_BY_PRESET[preset], entropy=f.ENTROPY)
    contributions = result.contributions
    assert contributions["loss"].sum().item() == pytest.approx(result.loss.item(), abs=1e-12)
    assert contributions["loss"].sum().item() == pytest.approx(
        result.metrics.values()["loss/total"], abs=1e-12
    )
    assert (-contributions["gradient"])[f.MASK].tolist() == pytest.approx(minus_gradient.tolist(), abs=1e-12)
    assert (contributions["loss"][~f.MASK] == 0).all()


SURROGATES = [member for member in get_args(get_args(knobs.Surrogate)[0]) if member is not knobs.KlCov]
"""All surrogates except KlCov, which gives every row a gradient."""


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_rows_without_a_gradient_have_none(surrogate):
    advantages = f.advantages().clone()
    advantages[[1, 2]] = 0
    rows = f.MASK.nonzero()[:, 0]
    skipped_rows = 0
    for preset in METHOD_PRESETS:
        try:
            objective = Objective(**{**dict(OBJECTIVE_BY_PRESET[preset]), "surrogate": surrogate()})
        except ValidationError:
            continue  # this ratio is not allowed with this surrogate
        learns = has_gradient(f.batch(objective, advantages=advantages), objective)
        _, minus_gradient = f.run(objective, entropy=f.ENTROPY, advantages=advantages)
        assert (minus_gradient[~learns[rows]] == 0).all(), preset
        skipped_rows += int((~learns).sum())
    assert skipped_rows > 0


def test_only_rows_with_advantages_have_a_gradient_unless_another_term_has_one():
    advantages = torch.tensor([0.5, 0.0, 0.0, -0.5], dtype=torch.float64)
    plain_objective = Objective(kl=knobs.NoKl())
    pulling_objectives = [
        plain_objective.model_copy(update={"kl": knobs.KlK3()}),
        plain_objective.model_copy(update={"entropy": knobs.EntropyBonus()}),
    ]
    for objective, learns in (
        (plain_objective, [True, False, False, True]),
        *((pulling, [True] * 4) for pulling in pulling_objectives),
    ):
        assert has_gradient(f.batch(objective, advantages=advantages), objective).tolist() == learns


def test_every_metric_of_a_preset_is_in_the_catalog():
    names = {name for objective in OBJECTIVE_BY_PRESET.values() for name in compute_metrics(objective)}
    assert [name for name in names if not find_metric(name)] == []


@pytest.mark.parametrize("preset", METHOD_PRESETS)
def test_per_token_values_are_single_precision_and_zero_under_the_mask(preset):
    per_token = f.run(OBJECTIVE_BY_PRESET[preset], entropy=f.ENTROPY)[0].per_token
    for values in per_token.values():
        assert values.shape == (4, 4)
        assert values.dtype == torch.float32
        assert not values.requires_grad
        assert values[~f.MASK].tolist() == [0] * 6


def test_the_covariance_is_between_log_probability_and_advantage_over_tokens():
    new_logprobs, advantages = f.pad_rows(f.OLD_LOGPROBS), f.advantages().unsqueeze(1).expand(4, 4)
    covariance = compute_metrics(Objective(), new_logprobs)["policy/covariance"]
    samples = torch.stack([new_logprobs[f.MASK], advantages[f.MASK]])
    assert covariance == pytest.approx(float(torch.cov(samples, correction=0)[0, 1]), rel=1e-5)


def test_the_kl_share_compares_the_gradients_of_both_terms():
    """With k2, d KL / d log p = coef (log p - log ref) and d policy / d log p = -ratio A on each token."""
    plain_fields = {"surrogate": {"type": "none"}, "aggregation": {"type": "token_mean"}}
    with_kl_term = Objective.model_validate({**plain_fields, "kl": {"type": "k2", "coef": 0.5}})
    without_kl_term = Objective.model_validate({**plain_fields, "kl": {"type": "none"}})
    with_kl, without_kl = -f.run(with_kl_term)[1], -f.run(without_kl_term)[1]
    pull = (with_kl - without_kl).abs().sum()
    share = f.run(with_kl_term)[0].metrics.values()["optim/kl_share"]
    assert share == pytest.approx(float(pull / (pull + without_kl.abs().sum())), rel=1e-5)
    assert 0.01 < share < 0.99
    assert "optim/kl_share" not in f.run(without_kl_term)[0].metrics.values()
