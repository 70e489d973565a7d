"""Tests of the loss formula with the numbers in use."""

import typing
import xml.etree.ElementTree as ET

import pytest
import torch

from backend.config import knobs
from backend.config.formula.loss import formula as formula_of
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.run import RunConfig
from worker.objective.smoothing import Visits, smooth_standardised_advantages


def formula(objective):
    return formula_of(RunConfig().model_copy(update={"objective": objective}))


@pytest.mark.parametrize("domain", ["B", "a<b", "\x01"])
def test_a_domain_is_never_parsed_as_a_symbol(domain):
    formula_json = formula(Objective(kl=knobs.KlK3(coef={"": 0.1, domain: 0.5})))
    assert ET.fromstring(formula_json["mathml"]).tag.endswith("math")  # noqa: S314
    assert f"βᵢ = 0.5 for {domain.strip(chr(1))}" in formula_json["text"].splitlines()
    assert [entry["symbol"] for entry in formula_json["legend"]].count("B") == 1


def members(union):
    return typing.get_args(typing.get_args(union)[0])


def list_formula_lines(preset):
    return formula_of(resolve({"preset": preset}))["text"].splitlines()


def test_grpo_reads_as_in_its_paper():
    assert list_formula_lines("grpo") == [
        "L = − 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.2) Aᵢ) + 0.04 · 1/B ∑ᵢ 1/|oᵢ| ∑ₜ kᵢₜ",
        "Aᵢ = (Rᵢ − mean(R_group)) / (std(R_group) + 0.0001)",
        "Rᵢ = correctness",
        "rᵢₜ = clip(π(oᵢₜ) / π_old(oᵢₜ), exp(−20), exp(20))",
        "kᵢₜ = exp(−xᵢₜ) + xᵢₜ − 1",
        "kᵢₜ = exp(20) − 21 + (exp(20) − 1) (−20 − xᵢₜ) where xᵢₜ < −20",
        "xᵢₜ = log (π(oᵢₜ) / π_ref(oᵢₜ))",
        "∇L ← ∇L min(1, 1/‖∇L‖)",
    ]


def test_dapo_and_dr_grpo_differ_from_grpo_as_documented():
    assert list_formula_lines("dapo")[0] == "L = − 1/(∑ᵢ |oᵢ|) ∑ᵢ ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.28) Aᵢ)"
    assert list_formula_lines("dr_grpo")[0] == "L = − 1/(B 64) ∑ᵢ ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.2) Aᵢ)"
    assert list_formula_lines("dr_grpo")[1] == "Aᵢ = Rᵢ − mean(R_group)"


@pytest.mark.parametrize("scale", members(knobs.Scale))
def test_every_scale_has_a_distinct_formula(scale):
    other_scales = [other_scale for other_scale in members(knobs.Scale) if other_scale is not scale]
    texts = [
        formula(Objective(advantage=knobs.GroupMean(scale=kind())))["text"] for kind in (scale, *other_scales)
    ]
    assert texts.count(texts[0]) == 1


@pytest.mark.parametrize(
    "field",
    [
        "advantage",
        "correction",
        "off_policy_mask",
        "router",
        "kl",
        "aggregation",
        "entropy",
        "nll",
        "token_weight",
    ],
)
def test_every_member_of_a_knob_changes_the_formula(field):
    union = getattr(knobs, {"kl": "Kl"}.get(field, "".join(word.title() for word in field.split("_"))))
    texts = {formula(Objective(**{field: member()}))["text"] for member in members(union)}
    assert len(texts) == len(members(union))


def test_the_formula_of_dcpos_recursion_matches_the_training():
    """One earlier visit had mean 0.5 and variance 0.3, and now one of two is right."""
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    past_visits = Visits(
        *(torch.full((1, 1), statistic, dtype=torch.float64) for statistic in (1.0, 0.5, 0.3))
    )
    standardised = smooth_standardised_advantages(rewards, rewards >= 0, past_visits, ddof=1)
    n, mu, v, mean, std = 1, 0.5, 0.3, 0.5, 0.5**0.5
    mu_after = (n * mu + mean) / (n + 1)
    v_after = (n * v + std**2 + n / (n + 1) * (mean - mu) ** 2) / (n + 1)
    a_new, a_tot = (1 - mean) / std, (1 - mu_after) / v_after**0.5
    s_new, s_tot = (n * a_new + a_tot) / (n + 1), (a_new + n * a_tot) / (n + 1)
    smaller = s_new if abs(s_new) <= abs(s_tot) else s_tot
    assert float(standardised.advantages[0, 0]) == pytest.approx(smaller)
    assert [float(visit) for visit in standardised.visits] == pytest.approx([n + 1, mu_after, v_after])
