"""The loss written out with the numbers in use."""

import itertools
import typing
from xml.etree import ElementTree as ET

import pytest

from backend.config import knobs
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from backend.formula.loss import formula as formula_of


def formula(objective):
    return formula_of(RunConfig().model_copy(update={"objective": objective}))


def test_a_weight_that_moves_is_a_symbol_with_its_course():
    knob = knobs.KlK3(coef=0.1, controller=knobs.DualController(target=0.02), to="old")
    text = formula(Objective(kl=knob))["text"].splitlines()
    assert text[0].endswith("+ β · 1/B ∑ᵢ 1/|oᵢ| ∑ₜ kᵢₜ")
    assert "xᵢₜ = log (π(oᵢₜ) / π_old(oᵢₜ))" in text
    assert text[-3:] == ["β = 0.1 at first", "β ← 2 β where KL > 0.03", "β ← β/2 where KL < 0.0133333"]
    horizon = formula(Objective(kl=knob.with_(controller=knobs.HorizonController())))["text"]
    assert "β ← β (1 + clip(KL/0.01 − 1, −0.2, 0.2) B_step/10000)" in horizon


def test_weights_by_domain_stand_inside_the_sum():
    text = formula(Objective(kl=knobs.KlK3(coef={"math": 0, "code": 0.5})))["text"].splitlines()
    assert text[0].endswith("+ 1/B ∑ᵢ 1/|oᵢ| ∑ₜ βᵢ kᵢₜ")
    assert text[-2:] == ["βᵢ = 0 for math", "βᵢ = 0.5 for code"]


def test_lopti_shows_which_tokens_each_of_its_updates_trains():
    text = text_of("lopti")
    assert "∑ₜ Uᵢₜ max(" in text[0]
    assert text[0].endswith("∑ₜ Uᵢₜ kᵢₜ")
    assert "Uᵢₜ = 1 where π_old(oᵢₜ) < 0.5 in a first update, else 0" in text
    assert "Uᵢₜ = 1 where π_old(oᵢₜ) ≥ 0.5 in a second one, else 0" in text


def test_a_bonus_that_follows_the_entropy_shows_its_course():
    text = formula(Objective(entropy=knobs.AdaptiveEntropy()))["text"].splitlines()
    assert text[0].endswith("− c · 1/B ∑ᵢ 1/|oᵢ| ∑ₜ Hᵢₜ")
    assert text[-3:] == [
        "c = c′ where mean(H_sampler) ≤ 0.2, else 0",
        "c′ = 0 at first",
        "c′ ← c′ + 0.005 where mean(H_sampler) < 0.2, else max(c′ − 0.005, 0)",
    ]


def test_a_reference_that_moves_says_when():
    assert "π_ref ← π every 400 steps" in text_of("r1")
    assert "π_ref ← π after 5 evaluations without a new best" in text_of("prorl")
    soft = Objective(kl=knobs.KlK3(), reference=knobs.EmaReference())
    assert "π_ref ← 0.6 π + 0.4 π_ref every 512 steps" in formula(soft)["text"]
    assert "←" not in formula(Objective(reference=knobs.EveryN()))["text"]


def members(union):
    return typing.get_args(typing.get_args(union)[0])


def text_of(preset):
    return formula_of(resolve({"preset": preset}))["text"].splitlines()


def test_grpo_reads_as_in_its_paper():
    assert text_of("grpo") == [
        "L = − 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.2) Aᵢ) + 0.04 · 1/B ∑ᵢ 1/|oᵢ| ∑ₜ kᵢₜ",
        "Aᵢ = (Rᵢ − mean(R_group)) / (std(R_group) + 0.0001)",
        "rᵢₜ = π(oᵢₜ) / π_old(oᵢₜ)",
        "kᵢₜ = exp(−xᵢₜ) + xᵢₜ − 1",
        "xᵢₜ = log (π(oᵢₜ) / π_ref(oᵢₜ))",
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
    others = [other for other in members(knobs.Scale) if other is not scale]
    texts = [formula(Objective(advantage=knobs.GroupMean(scale=kind())))["text"] for kind in (scale, *others)]
    assert texts.count(texts[0]) == 1


RATIOS = members(knobs.Ratio)
SURROGATES = members(knobs.Surrogate)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_presets_mathml_is_well_formed(preset):
    assert ET.fromstring(formula_of(resolve({"preset": preset}))["mathml"]).tag.endswith("math")  # noqa: S314


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
    assert len(texts) == len(set(texts)) == 18


def lines_of(**written):
    return formula_of(resolve(written))["text"].splitlines()


def test_what_filters_length_and_sampling_do_to_the_loss_is_part_of_it():
    text = lines_of(filters={"groups": {"type": "zero_variance"}, "upweight": True})
    assert text[0] == "L = u (− 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, clip(rᵢₜ, 0.8, 1.2) Aᵢ))"
    assert "u = groups_sampled / groups_kept" in text
    text = lines_of(length={"truncated": {"type": "mask"}}, sampling={"max_new_tokens": 32})
    assert text[-1] == "|oᵢ| = 0 and every term of it 0 where oᵢ was cut off at 32 tokens"
    text = lines_of(preset="dr_grpo", sampling={"max_new_tokens": 3000})
    assert text[0].startswith("L = − 1/(B 3000) ∑ᵢ")
    text = lines_of(sampling={"top_p": 0.9, "keep_mask": True, "temperature": 0.8})
    assert text[-2:] == ["π at temperature 0.8", "π over the ids that top-p left, also in π_old and π_ref"]
    assert "π at temperature 1" in text_of("grpo_book")
    assert not any("temperature" in line or "ids" in line for line in lines_of(sampling={"keep_mask": True}))


def test_the_off_policy_mask_has_the_grain_of_the_advantages():
    opsm = {"off_policy_mask": {"type": "opsm"}}
    assert " Mᵢ min(" in lines_of(objective=opsm)[0]
    tokens = lines_of(objective=opsm | {"token_weight": {"type": "ar"}})
    assert " Mᵢₜ min(" in tokens[0]
    assert any(line.startswith("Mᵢₜ = 0 where Aᵢₜ < 0") for line in tokens)
    capped = {"surrogate": {"type": "weight_cap", "token_mask": {"type": "ppo"}}}
    assert " Mᵢ mᵢₜ " in lines_of(objective=opsm | capped)[0]
