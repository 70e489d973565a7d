"""The loss written out with the numbers in use."""

import itertools
import math
import typing
from xml.etree import ElementTree as ET

import pytest
import torch

from backend.config import knobs
from backend.config.formula.loss import formula as formula_of
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from worker.objective import kl
from worker.objective.filters import loss_share, upweight
from worker.objective.policy_loss import denominators
from worker.objective.smoothing import Visits, smooth_standardised


def formula(objective):
    return formula_of(RunConfig().model_copy(update={"objective": objective}))


def test_a_weight_that_moves_is_a_symbol_with_its_course():
    knob = knobs.KlK3(coef=0.1, controller=knobs.DualController(target=0.02), to="old")
    text = formula(Objective(kl=knob))["text"].splitlines()
    assert text[0].endswith("+ β · 1/B ∑ᵢ 1/|oᵢ| ∑ₜ kᵢₜ")
    assert "xᵢₜ = log (π(oᵢₜ) / π_old(oᵢₜ))" in text
    course = ["β = 0.1 at first", "β ← 2 β where KL > 0.03", "β ← β/2 where KL < 0.0133333"]
    assert text[-4:-1] == course
    horizon = formula(Objective(kl=knob.with_(controller=knobs.HorizonController())))["text"]
    assert "β ← β (1 + clip(KL/0.01 − 1, −0.2, 0.2) B_step/10000)" in horizon


def test_weights_by_domain_stand_inside_the_sum():
    text = formula(Objective(kl=knobs.KlK3(coef={"math": 0, "code": 0.5})))["text"].splitlines()
    assert text[0].endswith("+ 1/B ∑ᵢ 1/|oᵢ| ∑ₜ βᵢ kᵢₜ")
    assert text[-3:-1] == ["βᵢ = 0 for math", "βᵢ = 0.5 for code"]


@pytest.mark.parametrize("domain", ["B", "a<b", "\x01"])
def test_a_domain_is_never_read_as_a_symbol(domain):
    shown = formula(Objective(kl=knobs.KlK3(coef={"": 0.1, domain: 0.5})))
    assert ET.fromstring(shown["mathml"]).tag.endswith("math")  # noqa: S314
    assert f"βᵢ = 0.5 for {domain.strip(chr(1))}" in shown["text"].splitlines()
    assert [entry["symbol"] for entry in shown["legend"]].count("B") == 1


def test_lopti_shows_which_tokens_each_of_its_updates_trains():
    text = text_of("lopti")
    assert "∑ₜ Uᵢₜ max(" in text[0]
    assert text[0].endswith("∑ₜ Uᵢₜ kᵢₜ")
    assert "Uᵢₜ = 1 where π_old(oᵢₜ) < 0.5 in a first update, else 0" in text
    assert "Uᵢₜ = 1 where π_old(oᵢₜ) ≥ 0.5 in a second one, else 0" in text


def test_a_bonus_that_follows_the_entropy_shows_its_course():
    text = formula(Objective(entropy=knobs.AdaptiveEntropy()))["text"].splitlines()
    assert text[0].endswith("− c · 1/B ∑ᵢ 1/|oᵢ| ∑ₜ Hᵢₜ")
    assert text[-4:-1] == [
        "c = c′ where mean(H_sampler) ≤ 0.2, else 0",
        "c′ = 0 at first",
        "c′ ← c′ + 0.005 where mean(H_sampler) < 0.2, else max(c′ − 0.005, 0)",
    ]


def test_a_reference_that_moves_says_when():
    assert "π_ref ← π every 400 steps" in text_of("r1")
    assert "π_ref ← π after 5 evaluations without a new best" in text_of("prorl")
    soft = Objective(kl=knobs.KlK3(), reference=knobs.EmaReference())
    assert "π_ref ← 0.6 π + 0.4 π_ref every 512 steps" in formula(soft)["text"]
    assert "π_ref" not in formula(Objective(reference=knobs.EveryN()))["text"]


def members(union):
    return typing.get_args(typing.get_args(union)[0])


def text_of(preset):
    return formula_of(resolve({"preset": preset}))["text"].splitlines()


def test_a_formula_has_the_constants_that_keep_its_terms_finite():
    highest = "uᵢₜ = 1 for a share 0.002 of the tokens, at least one, that of highest covᵢₜ, else 0"
    assert highest in text_of("kl_cov")
    assert any("of the tokens, at least one, drawn where" in line for line in text_of("clip_cov"))
    assert "ωᵢ = max(rᵢ, 1e−08)" in text_of("vespo")
    measured = lines_of(preset="dppo", objective={"surrogate": {"measure": "kl"}})
    assert any("log ((1 − q′ᵢₜ + 1e−08) / (1 − pᵢₜ + 1e−08))" in line for line in measured)
    against_tokens = lines_of(objective={"advantage": {"type": "optimal_token"}})
    assert "bᵢₜ = (∑_i∈p Wᵢₜ Rᵢ) / max(∑_i∈p Wᵢₜ, 1e−08)" in against_tokens


def test_grpo_reads_as_in_its_paper():
    assert text_of("grpo") == [
        "L = − 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.2) Aᵢ) + 0.04 · 1/B ∑ᵢ 1/|oᵢ| ∑ₜ kᵢₜ",
        "Aᵢ = (Rᵢ − mean(R_group)) / (std(R_group) + 0.0001)",
        "Rᵢ = correctness",
        "rᵢₜ = clip(π(oᵢₜ) / π_old(oᵢₜ), exp(−20), exp(20))",
        "kᵢₜ = exp(−xᵢₜ) + xᵢₜ − 1",
        "kᵢₜ = exp(20) − 21 + (exp(20) − 1) (−20 − xᵢₜ) where xᵢₜ < −20",
        "xᵢₜ = log (π(oᵢₜ) / π_ref(oᵢₜ))",
        "∇L ← ∇L min(1, 1/‖∇L‖)",
    ]


def test_dapo_and_dr_grpo_differ_from_it_where_they_say():
    assert text_of("dapo")[0] == "L = − 1/(∑ᵢ |oᵢ|) ∑ᵢ ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.28) Aᵢ)"
    assert text_of("dr_grpo")[0] == "L = − 1/(B 64) ∑ᵢ ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.2) Aᵢ)"
    assert text_of("dr_grpo")[1] == "Aᵢ = Rᵢ − mean(R_group)"


def test_a_ratio_of_the_whole_completion_has_no_sum_over_tokens():
    assert text_of("gspo")[0] == "L = − 1/B ∑ᵢ min(rᵢ Aᵢ, clip(rᵢ, 0.9997, 1.0004) Aᵢ)"


def test_the_numbers_are_those_of_the_config():
    objective = Objective(surrogate=knobs.PpoClip(eps_low=0.1, eps_high=0.35, dual_clip=3))
    assert "clip(rᵢₜ, 0.9, 1.35)" in formula(objective)["text"]
    assert "3 Aᵢ" in formula(objective)["text"]


def test_a_whitening_says_over_what():
    magistral = Objective(advantage=knobs.GroupMean(scale=knobs.SeqWhiten()))
    lines = formula(magistral)["text"].splitlines()
    assert lines[1] == "Aᵢ = (cᵢ − mean(c_minibatch)) / (std(c_minibatch) + 0.0001)"
    assert "cᵢ = Rᵢ − mean(R_group)" in lines


@pytest.mark.parametrize("scale", members(knobs.Scale))
def test_every_scale_has_a_formula_of_its_own(scale):
    other_scales = [other_scale for other_scale in members(knobs.Scale) if other_scale is not scale]
    texts = [
        formula(Objective(advantage=knobs.GroupMean(scale=kind())))["text"] for kind in (scale, *other_scales)
    ]
    assert texts.count(texts[0]) == 1


RATIOS = members(knobs.Ratio)
SURROGATES = members(knobs.Surrogate)


def test_every_presets_mathml_is_well_formed():
    for preset in PRESETS:
        mathml = formula_of(resolve({"preset": preset}))["mathml"]
        assert ET.fromstring(mathml).tag.endswith("math"), preset  # noqa: S314


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


def test_every_surrogate_with_every_ratio_it_allows_has_a_formula_of_its_own():
    texts = []
    for ratio, surrogate in itertools.product(RATIOS, SURROGATES):
        try:
            objective = Objective(ratio=ratio(), surrogate=surrogate())
        except ValueError:
            continue
        texts.append(formula(objective)["text"])
    assert len(texts) == len(set(texts)) == sum(len(surrogate.ratios) for surrogate in SURROGATES)


def lines_of(**written):
    return formula_of(resolve(written))["text"].splitlines()


def test_what_length_and_sampling_do_to_the_loss_is_part_of_it():
    text = lines_of(length={"truncated": {"type": "mask"}}, sampling={"max_new_tokens": 32})
    assert text[-1] == (
        "|oᵢ| = 0 and every term of it 0 where oᵢ was truncated at 32 tokens; "
        "Rᵢ still counts in means and deviations, and oᵢ still counts in B."
    )
    text = lines_of(preset="dr_grpo", sampling={"max_new_tokens": 3000})
    assert text[0].startswith("L = − 1/(B 3000) ∑ᵢ")
    text = lines_of(sampling={"top_p": 0.9, "keep_mask": True, "temperature": 0.8})
    assert text[-2:] == [
        "π is at temperature 0.8.",
        "π is over the ids that top-p left, as are π_old and π_ref.",
    ]
    assert "π is at temperature 1." in text_of("grpo_book")
    assert not any("temperature" in line or "ids" in line for line in lines_of(sampling={"keep_mask": True}))


ZERO_VARIANCE = {"groups": {"type": "zero_variance"}}


def test_filters_say_what_is_left_out_and_what_the_divisor_counts():
    mean_over_all = (
        "B counts the groups left out too: it is what trains, times groups sampled / groups that train. "
        "Leaving out advantages of 0 changes no gradient."
    )
    left_out = "A group trains where its rewards differ; the others are left out."
    assert lines_of(filters=ZERO_VARIANCE)[-2:] == [left_out, mean_over_all]
    made_up = lines_of(filters=ZERO_VARIANCE | {"upweight": True})
    assert made_up[-2:] == [left_out, "B counts only what trains."]
    assert lines_of(filters=ZERO_VARIANCE, objective={"aggregation": {"type": "token_mean"}})[-1] == left_out
    assert "P counts only what trains." in text_of("scalerl")
    assert text_of("gpg")[-3:] == [
        left_out,
        "Σ |oᵢ| counts the tokens of groups left out too. Leaving out advantages of 0 changes no gradient.",
        "The loss is multiplied by groups sampled / groups that train.",
    ]
    assert "Where wᵢ = 0 the completion is left out, its tokens in every divisor too." in text_of(
        "k3_rejection"
    )


def test_a_divisor_is_what_the_loss_divides_by():
    """Two groups of two completions train of three sampled: B is 4, or 6 with the group left out."""
    rows = torch.ones(4, 1, dtype=torch.bool), torch.tensor([0, 0, 1, 1])
    weights = {
        upweighted: denominators(
            *rows,
            Objective(),
            max_new_tokens=1,
            loss_share=loss_share(trained=2, total=3) * factor,
        ).weights
        for upweighted, factor in ((False, 1), (True, upweight(trained=2, total=3)))
    }
    assert weights[False].tolist() == pytest.approx([1 / 6] * 4)
    assert weights[True].tolist() == pytest.approx([1 / 4] * 4)


def test_refilling_says_how_a_step_becomes_full():
    bounds = {"groups": {"type": "accuracy", "low": 0.1, "high": 0.9}}
    full = "Fresh prompts are sampled until 16 groups train, in at most 3 batches of 16; groups beyond that "
    told = {
        "dynamic": full + "are dropped.",
        "active": full + "train first in the next step.",
    }
    share = (
        "A group trains where the share of right answers in it is above 0.1 and below 0.9; "
        "the others are left out."
    )
    for kind, sentence in told.items():
        text = lines_of(filters=bounds | {"refill": {"type": kind, "max_batches": 3}})
        assert text[-3:] == [
            share,
            sentence,
            "B counts only what trains.",
        ]
    tried = lines_of(filters=bounds | {"refill": {"type": "neighbours", "n": 5}})
    assert "Places of groups left out try the prompts that come next, 5 tries in all." in tried


def test_a_group_is_judged_before_length_and_kl_change_its_rewards():
    text = lines_of(
        filters=ZERO_VARIANCE,
        length={"penalty": {"type": "soft_overlong"}, "truncated": {"type": "scale_reward"}},
        rewards=[{"name": "correctness"}, {"name": "length"}],
        objective={"kl": {"type": "k1", "place": "reward"}},
    )
    judged = "without the term length and before truncation and before length_penalty and before the KL"
    assert f"A group trains where its rewards differ, judged {judged}; the others are left out." in text


def test_passes_and_optimizer_steps_are_told_where_there_are_several():
    assert not any(line.startswith("Each step") for line in lines_of())
    several = lines_of(updates={"epochs": 4, "minibatches": 2})[-1]
    assert several == (
        "Each step makes 4 passes over its rollouts, with 2 optimizer steps in each, "
        "on whole groups in a random order."
    )
    assert lines_of(updates={"minibatches": 2})[-1].startswith("Each step makes one pass over")
    fresh = lines_of(updates={"epochs": 2, "resample_each_epoch": True})[-1]
    assert fresh == (
        "Each step makes 2 passes, each over fresh rollouts of the policy that opened the step, "
        "with one optimizer step in each."
    )


def test_weight_decay_says_what_decays():
    assert not any("θ" in line for line in lines_of())
    update_lines = lines_of(optimizer={"weight_decay": 0.1})
    assert update_lines[-1] == "θ ← (1 − 0.1 lr) θ for weights of two or more dimensions"
    assert "θ ← (1 − 0.01 lr) θ for all weights" in text_of("grpo_book")
    lines_with_critic = lines_of(preset="ppo", optimizer={"weight_decay": 0.1, "decayed": "all"})
    assert "θ_V ← (1 − 0.1 lr) θ_V for all weights" in lines_with_critic


def test_trpo_shows_its_trust_region():
    text = text_of("trpo")
    assert text[-6:-1] == [
        "θ ← θ + 0.8ᵐ s",
        "m = the first of 0 … 9 where D ≤ 0.01 and L falls; without one θ stays",
        "s = √(0.02 / (x · (F + 0.1 I) x)) x",
        "(F + 0.1 I) x ≈ g after at most 10 conjugate-gradient iterations",
        "g = − ∇L",
    ]
    assert not any("‖∇L‖" in line for line in text)
    plain = lines_of(preset="trpo", updates={"trust": {"damping": 0, "backtracks": 3, "delta": 0.5}})
    assert "s = √(1 / (x · F x)) x" in plain
    assert "m = the first of 0 … 2 where D ≤ 0.5 and L falls; without one θ stays" in plain


def test_dcpo_shows_its_recursion_over_the_visits_of_a_prompt():
    assert text_of("dcpo")[1:11] == [
        "Aᵢ = smaller(S_new, S_tot)",
        "S_new = (n a_new + a_tot) / (n + 1)",
        "S_tot = (a_new + n a_tot) / (n + 1)",
        "a_new = (Rᵢ − mean(R_group)) / std(R_group), 0 where all of R_group are equal",
        "a_tot = (Rᵢ − μ′) / √v′, 0 where v′ ≤ 1e−12",
        "μ′ = (n μ + mean(R_group)) / (n + 1)",
        "v′ = (n v + std(R_group)² + n / (n + 1) (mean(R_group) − μ)²) / (n + 1)",
        "n = μ = v = 0 before a prompt's first visit",
        "n ← n + 1, μ ← μ′, v ← v′ after each visit",
        "Rᵢ = correctness",
    ]


def test_dcpos_recursion_is_the_one_that_trains():
    """One earlier visit with mean 0.5 and variance 0.3; now one of two is right."""
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    past = Visits(*(torch.full((1, 1), value, dtype=torch.float64) for value in (1.0, 0.5, 0.3)))
    standardised = smooth_standardised(rewards, rewards >= 0, past, ddof=1)
    n, mu, v, mean, std = 1, 0.5, 0.3, 0.5, 0.5**0.5
    mu_after = (n * mu + mean) / (n + 1)
    v_after = (n * v + std**2 + n / (n + 1) * (mean - mu) ** 2) / (n + 1)
    a_new, a_tot = (1 - mean) / std, (1 - mu_after) / v_after**0.5
    s_new, s_tot = (n * a_new + a_tot) / (n + 1), (a_new + n * a_tot) / (n + 1)
    smaller = s_new if abs(s_new) <= abs(s_tot) else s_tot
    assert float(standardised.advantages[0, 0]) == pytest.approx(smaller)
    assert [float(visit) for visit in standardised.visits] == pytest.approx([n + 1, mu_after, v_after])


def test_scalerl_divides_by_the_deviation_of_what_is_left_after_the_baseline():
    assert text_of("scalerl")[1:3] == ["Aᵢ = cᵢ / (std(c_step) + 0.0001)", "cᵢ = Rᵢ − mean(R_group)"]


def test_a_division_by_nothing_is_an_advantage_of_0():
    silent = "Aᵢ = 0 where all of R_group are equal"
    scale = {"type": "group_std", "eps": 0}
    assert silent in lines_of(objective={"advantage": {"type": "group_mean", "scale": scale}})
    assert silent in lines_of(objective={"advantage": {"type": "none", "scale": {"type": "group_std"}}})
    assert silent not in lines_of()


def clamps_of(**objective):
    return [line for line in lines_of(objective=objective) if "clip(" in line or "20" in line]


def test_clamps_stand_where_they_act():
    edges = "exp(−20), exp(20))"
    token = f"clip(π(oᵢₜ) / π_old(oᵢₜ), {edges}"
    assert f"qᵢₜ = {token}" in clamps_of(ratio={"type": "seq_geo"})
    assert f"rᵢ = clip(∏ₜ qᵢₜ, {edges}" in clamps_of(ratio={"type": "seq_product"})
    assert f"rᵢₜ = clip(π(oᵢₜ) / π_sampler(oᵢₜ), {edges}" in clamps_of(
        ratio={"type": "token", "old": "sampler"}
    )
    assert "rᵢₜ = π(oᵢₜ) / sg[π(oᵢₜ)]" in lines_of(objective={"ratio": {"type": "token", "old": "current"}})
    corrected = clamps_of(correction={"type": "seq_tis", "level": "product"})
    assert f"ρᵢₜ = clip(π_old(oᵢₜ) / π_sampler(oᵢₜ), {edges}" in corrected
    assert f"ρᵢ = clip(∏ₜ ρᵢₜ, {edges}" in corrected
    assert "kᵢₜ = clip(xᵢₜ, −20, 20)" in clamps_of(kl={"type": "k1"})
    assert "kᵢₜ = 1/2 clip(xᵢₜ, −20, 20)²" in clamps_of(kl={"type": "k2"})
    assert "kᵢₜ = rᵢₜ clip(xᵢₜ, −20, 20)" in clamps_of(kl={"type": "r_k1"})


def test_a_limit_of_k3_ends_it_before_its_tangent_begins():
    limited = lines_of(objective={"kl": {"type": "k3", "k3_limit": 10}})
    assert "kᵢₜ = min(exp(−xᵢₜ) + xᵢₜ − 1, 10)" in limited
    assert not any("xᵢₜ < −20" in line for line in limited)
    ratio = lines_of(objective={"kl": {"type": "r_k3"}})
    assert "kᵢₜ = rᵢₜ κᵢₜ" in ratio
    assert "κᵢₜ = exp(20) − 21 + (exp(20) − 1) (−20 − xᵢₜ) where xᵢₜ < −20" in ratio


def test_the_tangent_is_what_k3_computes():
    x = torch.tensor([[-25.0, -3.0]], dtype=torch.float64)
    beyond = math.exp(20) - 21 + (math.exp(20) - 1) * (-20 + 25)
    assert kl.k3(x).tolist()[0] == pytest.approx([beyond, math.exp(3) - 3 - 1])


def test_the_off_policy_mask_has_the_grain_of_the_advantages():
    opsm = {"off_policy_mask": {"type": "opsm"}}
    assert " Mᵢ min(" in lines_of(objective=opsm)[0]
    tokens = lines_of(objective=opsm | {"token_weight": {"type": "ar"}})
    assert " Mᵢₜ min(" in tokens[0]
    assert any(line.startswith("Mᵢₜ = 0 where Aᵢₜ < 0") for line in tokens)
    capped = {"surrogate": {"type": "weight_cap", "token_mask": {"type": "ppo"}}}
    assert " Mᵢ mᵢₜ " in lines_of(objective=opsm | capped)[0]
