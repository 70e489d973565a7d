"""Tests of clips, caps and gates by hand."""

import math

import pytest
import torch

from tests.objective import fixture_f as f
from worker.objective import ratios, surrogates


def evaluate_at(ratio, advantage, rule, **knobs):
    """Return the objective and the gradient weight d(objective)/d(log r) / A at one ratio."""
    log_ratio = torch.tensor([[ratio]], dtype=torch.float64).log().requires_grad_()
    terms = rule(log_ratio.exp(), torch.tensor([[advantage]], dtype=torch.float64), **knobs)
    (gradient,) = torch.autograd.grad(terms.objective.sum(), log_ratio)
    return terms.objective.item(), gradient.item() / advantage, terms


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "flows"),
    [
        (1.5, 1, 1.2, False),
        (0.5, 1, 0.5, True),
        (0.5, -1, -0.8, False),
        (1.5, -1, -1.5, True),
        (1.1, 1, 1.1, True),
    ],
)
def test_ppo_takes_the_pessimistic_side(ratio, advantage, objective, flows):
    objective_value, weight, _ = evaluate_at(ratio, advantage, surrogates.ppo_clip, eps_low=0.2, eps_high=0.2)
    assert objective_value == pytest.approx(objective)
    assert bool(weight) is flows


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "flows"),
    [(0.5, -1, -0.5, True), (1.5, -1, -1.2, False), (1.5, 1, 1.2, False), (0.5, 1, 0.5, True)],
)
def test_the_books_rule_bounds_only_from_above(ratio, advantage, objective, flows):
    objective_value, weight, _ = evaluate_at(ratio, advantage, surrogates.book_signed_surrogate, eps_high=0.2)
    assert objective_value == pytest.approx(objective)
    assert bool(weight) is flows


@pytest.mark.parametrize(("c", "objective"), [(3.0, -3), (4.0, -4), (0.0, -5)])
def test_dual_clip_caps_a_bad_token(c, objective):
    objective_value, _, flags = evaluate_at(
        5, -1, surrogates.ppo_clip, eps_low=0.2, eps_high=0.2, dual_clip=c
    )
    assert objective_value == pytest.approx(objective)
    assert c == 0 or flags.dual.item() is True


@pytest.mark.parametrize(
    ("tau", "ratio", "gate", "weight"),
    [
        (1, 1, 2.0000, 1),
        (1.05, 1, 1.9048, 1),
        (1, 1.5, 2.4898, 0.9400),
        (1.05, 0.5, 1.4159, 0.9341),
        (1, 2, 2.9242, 0.7864),
        (1.05, 2, 2.8220, 0.7681),
    ],
)
def test_sapos_gate_and_its_weight(tau, ratio, gate, weight):
    objective_value, slope, flags = evaluate_at(ratio, 1, surrogates.sapo, tau_pos=float(tau), tau_neg=9.0)
    assert objective_value == pytest.approx(gate, abs=6e-5)
    assert flags.gate.item() == pytest.approx(weight, abs=6e-5)
    assert slope == pytest.approx(weight * ratio, abs=1e-4)


@pytest.mark.parametrize(
    ("q", "low", "high"),
    [
        (0.9, 0.7687, 1.1872),
        (0.5, 0.5, 1.3062),
        (0.1, 0.5, 2),
        (0.01, 0.5, 5),
        (0.001, 0.5, 10),
    ],
)
def test_dcpos_bounds_widen_for_rare_tokens(q, low, high):
    old_logprobs = torch.tensor([[q]], dtype=torch.float64).log()
    bounds = surrogates.dynamic_bounds(old_logprobs, eps_low=0.16, eps_high=0.2, r_max=10.0)
    assert (bounds.low.item(), bounds.high.item()) == pytest.approx((low, high), abs=6e-5)


def test_a_capped_weight_still_has_the_gradient_of_log_p():
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    terms = surrogates.weight_cap(logprobs, torch.tensor([[9.0]]), torch.tensor([[2.0]]), cap=5.0)
    terms.objective.sum().backward()
    assert logprobs.grad.item() == 10
    assert terms.high.item() is True


LOG_RATIO = torch.where(f.MASK, f.pad_rows(f.DRIFT), 0.0)


def test_ratios_of_complete_completions():
    geometric = ratios.sequence_geometric(LOG_RATIO, f.MASK).exp().flatten().tolist()
    assert geometric == pytest.approx([1.2214, 1.0869, 0.6703, 0.9876], abs=6e-5)
    product = ratios.sequence_product(LOG_RATIO).exp().flatten().tolist()
    assert product == pytest.approx([1.4918, 1.2840, 0.6703, 0.9512], abs=6e-5)


@pytest.mark.parametrize(
    ("eps", "expected"),
    [
        (0.45, [1.2214, 1.0689, 0.6703, 0.9876]),
        (0.4, [1.2214, 1.0513, 0.6703, 0.9876]),
        (0.2, [1.1618, 0.9835, 0.8187, 1]),
    ],
)
def test_gmpo_clips_inside_the_geometric_mean(eps, expected):
    advantage_signs = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]], dtype=torch.float64)
    terms = surrogates.geo_token(LOG_RATIO, advantage_signs, f.MASK, eps_low=eps, eps_high=eps)
    assert terms.ratio.flatten().tolist() == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(
    ("old", "new", "advantage", "flows"),
    [
        (0.5, 0.8, 1, False),  # has risen by 0.3
        (0.5, 0.8, -1, True),  # has risen, but should fall
        (0.5, 0.2, -1, False),
        (0.5, 0.2, 1, True),
        (0.5, 0.6, 1, True),  # inside the region
        (0.001, 0.1, 1, True),  # a ratio of 100 that moves a tenth of the mass
    ],
)
def test_a_divergence_mask_removes_the_gradient_of_tokens_outside_the_region(old, new, advantage, flows):
    q, p = (torch.tensor([[probability]], dtype=torch.float64).log() for probability in (old, new))
    p.requires_grad_()
    terms = surrogates.divergence_mask(
        p,
        q,
        torch.tensor([[float(advantage)]], dtype=torch.float64),
        (p - q).exp(),
        surrogates.Bounds(0.2, 0.2),
        measure="tv",
        cap=20.0,
    )
    (gradient,) = torch.autograd.grad(terms.objective.sum(), p)
    assert gradient.item() == pytest.approx(advantage * min(new / old, 20) if flows else 0)
    assert (terms.low.item() or terms.high.item()) is not flows


def test_a_binary_kl_compares_two_coins_and_is_0_without_a_change():
    q, p = torch.tensor([[0.5, 0.9, 1.0]]).log(), torch.tensor([[0.25, 0.9, 1.0]]).log()
    expected = 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)
    assert surrogates.binary_kl(q, p)[0].tolist() == pytest.approx([expected, 0, 0], abs=1e-7)


@pytest.mark.parametrize(
    ("w", "advantage", "weight"),
    [(1, 1, 1), (1, -1, 1), (2, 1, 4 * math.exp(-3)), (2, -1, 8 * math.exp(-2)), (0.5, -1, 0.125 * math.e)],
)
def test_vespo_weighs_a_completion_by_its_distance(w, advantage, weight):
    policy = torch.tensor([[-0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    ratio, a = (torch.tensor([[float(number)]], dtype=torch.float64) for number in (w, advantage))
    shapes = {"positive": surrogates.GammaShape(2.0, 3.0), "negative": surrogates.GammaShape(3.0, 2.0)}
    terms = surrogates.vespo(policy, ratio, a, **shapes)
    (gradient,) = torch.autograd.grad(terms.objective.sum(), policy)
    assert gradient.tolist() == [pytest.approx([advantage * weight] * 2)]
    assert terms.gate.item() == pytest.approx(weight)


def test_vespo_ignores_a_completion_that_has_become_impossible():
    ratio = torch.tensor([[0.0], [1e30]], dtype=torch.float64)
    shape = surrogates.GammaShape(2.0, 3.0)
    terms = surrogates.vespo(
        torch.full((2, 1), -1.0, dtype=torch.float64),
        ratio,
        torch.ones(2, 1, dtype=torch.float64),
        positive=shape,
        negative=shape,
    )
    assert terms.gate.max().item() < 1e-13


def test_later_tokens_count_half_after_the_half_life():
    future = surrogates.future_log_ratio(
        torch.tensor([[0.0, 0.4, 0.0, 0.8]], dtype=torch.float64), half_life=2.0
    )
    assert future.tolist() == [pytest.approx([0.4 * 0.5**0.5 + 0.8 * 0.5**1.5, 0.8, 0.8 * 0.5**0.5, 0.8])]


@pytest.mark.parametrize(("advantage", "weight"), [(1.0, 1.2), (-1.0, 1.0)])
def test_a_bad_token_that_has_become_much_more_probable_gets_no_additional_weight(advantage, weight):
    log_ratio = torch.tensor([[math.log(5.0)]], dtype=torch.float64)
    a = torch.tensor([[advantage]], dtype=torch.float64)
    clipped_terms = surrogates.ppo_clip(log_ratio.exp(), a, eps_low=0.2, eps_high=0.2)
    terms = surrogates.influence_weighted_surrogate(
        clipped_terms,
        log_ratio,
        a,
        half_life=32.0,
        weights=surrogates.Band(1.0, 1.2),
        safety=4.0,
        dual_clip=0.0,
    )
    assert terms.gate.item() == pytest.approx(weight)
