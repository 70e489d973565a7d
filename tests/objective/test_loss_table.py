"""Tests of every published rule on fixture F: loss and minus its gradient per token, calculated by hand."""

import math

import pytest
import torch

from backend.config import knobs
from backend.config.merge import resolve
from backend.config.objective import Objective
from tests.objective import fixture_f as f
from worker.objective.batch import require
from worker.objective.token_choice import split_updates

CENTRED_ADVANTAGE = knobs.GroupMean(scale=knobs.NoScale())
POPULATION_ADVANTAGE = knobs.GroupMean(scale=knobs.GroupStd(ddof=0, eps=0))
TOKEN_MEAN = knobs.TokenMean()


def preset(name: str) -> Objective:
    return resolve({"preset": name}).objective


def ppo(low=0.2, high=0.2, **options) -> Objective:
    return Objective(surrogate=knobs.PpoClip(eps_low=low, eps_high=high), **options)


def gspo(low, high) -> Objective:
    return Objective(
        ratio=knobs.SequenceGeometricRatio(), surrogate=knobs.PpoClip(eps_low=low, eps_high=high)
    )


def gmpo(eps) -> Objective:
    return Objective(
        ratio=knobs.SequenceGeometricRatio(), surrogate=knobs.GeoToken(eps_low=eps, eps_high=eps)
    )


def cispo(cap, mask=knobs.NoTokenMask()) -> Objective:  # noqa: B008
    return Objective(surrogate=knobs.WeightCap(cap=cap, token_mask=mask), aggregation=TOKEN_MEAN)


DAPO_OBJECTIVE = ppo(0.2, 0.28, aggregation=TOKEN_MEAN)
TIS_CORRECTION = knobs.TokenTis(cap=2.0)
BAND_MASK = knobs.TokenMask(low=0.5, high=2.0)
REJ_ADVANTAGE = knobs.NoBaseline()
GRPO_GRADIENT = "0 .1196 .0535 0 .0759 0 -.0731 -.0490 0 -.0541"
DAPO_GRADIENT = "0 .0957 .0641 0 .0910 0 -.1169 -.0783 0 -.0866"
OLMO_GRADIENT = "0 .0553 .0370 0 .0526 0 -.0675 -.0452 0 -.0500"
R1_GRADIENT = ".1461 .1196 .0535 .1190 .0759 -.1451 -.0731 -.0490 -.0421 -.0541"
GSPO_GRADIENT = ".1322 .1322 .0784 .0784 .0784 0 -.0534 -.0534 -.0534 -.0534"

LOSS_TABLE = {
    "1 GRPO": (ppo(), -0.0728, GRPO_GRADIENT),
    "2 GRPO with the population std": (
        ppo(advantage=POPULATION_ADVANTAGE),
        -0.0841,
        "0 .1381 .0617 0 .0876 0 -.0844 -.0566 0 -.0625",
    ),
    "3 GRPO with k3": (
        preset("grpo"),
        -0.0714,
        "-.0016 .1201 .0546 -.0009 .0751 .0022 -.0739 -.0487 .0010 -.0539",
    ),
    "4 DAPO": (preset("dapo"), -0.0522, DAPO_GRADIENT),
    "5 symmetric clip, token mean": (ppo(aggregation=TOKEN_MEAN), -0.0383, DAPO_GRADIENT),
    "6 sequence sums": (
        ppo(aggregation=knobs.SeqMeanTokenSum()),
        -0.0958,
        "0 .2392 .1604 0 .2276 0 -.2922 -.1959 0 -.2165",
    ),
    "7 Dr. GRPO": (preset("dr_grpo"), -0.0138, "0 .0345 .0232 0 .0329 0 -.0422 -.0283 0 -.0312"),
    "9 Olmo 3 without TIS": (
        ppo(0.2, 0.272, advantage=CENTRED_ADVANTAGE, aggregation=TOKEN_MEAN),
        -0.0293,
        OLMO_GRADIENT,
    ),
    "10 Olmo 3": (preset("olmo3"), -0.1117, OLMO_GRADIENT.replace("-.0500", "-.0526")),
    "11 DAPO with token TIS": (DAPO_OBJECTIVE.with_(correction=TIS_CORRECTION), -0.1955, None),
    "12 DAPO with a token mask": (DAPO_OBJECTIVE.with_(correction=BAND_MASK), 0.0262, None),
    "13 GRPO with a sequence mask": (
        ppo(correction=knobs.SequenceMask(level="product", low=0.5, high=2.0)),
        0.0634,
        None,
    ),
    "14 GSPO": (preset("gspo"), -0.0003, "0 0 0 0 0 0 0 0 0 0"),
    "15 GSPO with wide bounds": (gspo(0.2, 0.28), -0.1127, GSPO_GRADIENT),
    "15 GSPO-token with wide bounds": (
        gspo(0.2, 0.28).with_(ratio=knobs.SequenceGeometricTokenRatio()),
        -0.1127,
        GSPO_GRADIENT,
    ),
    "16 GMPO .45": (gmpo(0.45), -0.1369, ".1322 .1322 .0771 0 .0771 -.1451 -.0534 -.0534 -.0534 -.0534"),
    "16 GMPO .4": (preset("gmpo"), -0.1331, None),
    "17 GMPO .2": (gmpo(0.2), -0.0707, "0 .1258 .0710 0 .0710 0 -.0541 -.0541 0 -.0541"),
    "19 CISPO 1.28": (
        cispo(1.28),
        0.0768,
        ".1108 .0957 .0641 .1108 .0910 -.0580 -.1108 -.0783 -.0674 -.0866",
    ),
    "20 CISPO 5": (
        preset("cispo"),
        0.1259,
        ".1169 .0957 .0641 .1428 .0910 -.0580 -.1169 -.0783 -.0674 -.0866",
    ),
    "21 SAPO": (
        preset("sapo"),
        -0.1894,
        ".1417 .1193 .0526 .1073 .0758 -.1408 -.0706 -.0488 -.0416 -.0541",
    ),
    "22 DCPO's bounds": (
        Objective(surrogate=knobs.DynamicClip(eps_low=0.16, eps_high=0.2, r_max=10)),
        -0.1410,
        "0 .1196 .0535 .1190 .0759 -.1451 -.0731 -.0490 -.0421 -.0541",
    ),
    "22 DCPO with GRPO's advantages": (preset("dcpo").with_(advantage=knobs.GroupMean()), -0.1410, None),
    "23 REINFORCE with RLOO's baseline": (
        preset("rloo"),
        -0.1000,
        ".1667 .1667 .1667 .1667 .1667 -.1667 -.1667 -.1667 -.1667 -.1667",
    ),
    "24 Reinforce-Rej": (
        ppo(advantage=REJ_ADVANTAGE, aggregation=TOKEN_MEAN),
        -0.5297,
        "0 .1105 .0741 0 .1051 0 0 0 0 0",
    ),
    "24 Reinforce-Rej, the preset without KL and entropy": (
        preset("reinforce_rej").with_(kl=knobs.NoKl(), entropy=knobs.NoEntropyBonus()),
        -0.5297,
        "0 .1105 .0741 0 .1051 0 0 0 0 0",
    ),
    "26 DeepSeek-V3.2": (
        preset("deepseek_v32"),
        -0.1420,
        "-.0001 .0691 .0309 0 .0438 0 -.0422 -.0283 0 -.0312",
    ),
    "27 the book's form with KL": (preset("grpo_book_kl"), -0.2499 + 0.0010, None),
    "29 the book's DeepSeek-V3.2": (preset("deepseek_v32_book"), -0.3925, None),
    "29 without its KL": (preset("deepseek_v32_book").with_(kl=knobs.NoKl()), -0.3950, None),
    "28 the book's clipped form": (preset("grpo_book_clip"), -0.2499, None),
    "31 advantage reweighting": (
        preset("ar").with_(kl=knobs.NoKl()),
        -0.0265,
        "0 .0756 .0623 0 .0773 0 -.1078 -.0644 0 -.0819",
    ),
    "32 R1 without KL": (preset("r1").with_(kl=knobs.NoKl()), -0.1506, R1_GRADIENT),
    "32 R1": (preset("r1"), -0.1506, None),
    "33 ProRL's clip": (
        ppo(0.2, 0.4, aggregation=TOKEN_MEAN),
        -0.0686,
        ".1169 .0957 .0641 0 .0910 0 -.1169 -.0783 0 -.0866",
    ),
    "34 Magistral's clip on one group": (
        ppo(0.2, 0.27, aggregation=knobs.PromptMean()),
        -0.0504,
        DAPO_GRADIENT,
    ),
    "34 Magistral on one group": (
        preset("magistral").with_(surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.27)),
        -0.0504,
        DAPO_GRADIENT,
    ),
    "ProRL v2 without KL": (
        preset("prorl_v2").with_(kl=knobs.NoKl()),
        -0.3140,
        "0 .1105 .0741 0 .1051 0 -.1350 -.0905 0 -.1051",
    ),
    "35 CISPO 1.28 with the token mask": (
        cispo(1.28, knobs.PpoTokenMask(eps_low=0.2, eps_high=0.28)),
        0.0944,
        None,
    ),
}


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split()]


@pytest.mark.parametrize("row", LOSS_TABLE)
def test_loss_and_gradient_match_the_table(row):
    objective, loss, gradient = LOSS_TABLE[row]
    result, minus_gradient = f.run(objective)
    assert result.loss.item() == pytest.approx(loss, abs=6e-5)
    if gradient is not None:
        assert minus_gradient.tolist() == pytest.approx(numbers(gradient), abs=6e-5)


def test_8_masking_the_truncated_completion_leaves_six_tokens():
    mask = f.MASK.clone()
    mask[3] = False
    result, minus_gradient = f.run(DAPO_OBJECTIVE, mask=mask)
    assert result.loss.item() == pytest.approx(-0.6721, abs=6e-5)
    assert minus_gradient[6:].tolist() == [0, 0, 0, 0]


def test_25_reinforce_rej_with_rewards_of_minus_one_and_one():
    signed = f.advantages(knobs.NoBaseline(), [[1.0, 1.0, -1.0, -1.0]])
    result, minus_gradient = f.run(ppo(aggregation=TOKEN_MEAN), advantages=signed)
    assert result.loss.item() == pytest.approx(-0.0443, abs=6e-5)
    expected = numbers("0 .1105 .0741 0 .1051 0 -.1350 -.0905 0 -.1000")
    assert minus_gradient.tolist() == pytest.approx(expected, abs=6e-5)


def y4_alone(advantages: list[float]) -> dict[str, torch.Tensor]:
    """Return fixture F reduced to its last completion, with an advantage for each of its tokens."""
    mask = f.MASK.clone()
    mask[:3] = False
    values = torch.zeros(4, 4, dtype=torch.float64)
    values[3] = torch.tensor(advantages)
    return {"mask": mask, "advantages": values}


CRITIC_ROWS = {
    "36 PPO": (
        preset("ppo"),
        [1.0667, 0.3004, -0.0365, -1.3306],
        -0.0480,
        [1.2801, 0.2718, -0.0292, -1.3306],
    ),
    "37 VAPO": (DAPO_OBJECTIVE, [0.35, 0.30, 0.40, 0.20], -0.3077, [0.4480, 0.2715, 0.3115, 0.2000]),
}


@pytest.mark.parametrize("row", CRITIC_ROWS)
def test_tokens_can_have_individual_advantages(row):
    objective, advantages, loss, token_objectives = CRITIC_ROWS[row]
    result, _ = f.run(objective, **y4_alone(advantages))
    assert result.loss.item() == pytest.approx(loss, abs=6e-5)
    assert -sum(token_objectives) / 4 == pytest.approx(loss, abs=6e-5)


def test_27_the_books_first_form_with_its_k1_penalty():
    book = preset("grpo_book")
    assert f.run(book)[0].loss.item() == pytest.approx(-0.1299, abs=6e-5)
    with_kl = book.with_(kl=knobs.KlK1(coef=0.02, aggregation="seq_sum"))
    assert f.run(with_kl)[0].loss.item() == pytest.approx(-0.1299 + 0.0010, abs=6e-5)


def test_35_the_token_mask_silences_the_same_tokens_as_ppo():
    _, minus_gradient = f.run(cispo(1.28, knobs.PpoTokenMask(eps_low=0.2, eps_high=0.28)))
    assert [t + 1 for t, g in enumerate(minus_gradient.tolist()) if g == 0] == [1, 4, 6, 9]


def test_30_lopti_trains_rare_tokens_first_and_then_the_others():
    lopti = preset("lopti").with_(kl=knobs.NoKl())
    rare_update, frequent_update = split_updates(f.batch(lopti), lopti.token_weight)
    assert require(rare_update.trained, "tokens")[f.MASK].tolist() == [
        bit == 1 for bit in (0, 1, 0, 1, 1, 1, 0, 1, 1, 0)
    ]
    first, second = (
        f.run(lopti, trained=half_update.trained) for half_update in (rare_update, frequent_update)
    )
    assert first[0].loss.item() == pytest.approx(-0.0772, abs=6e-5)
    assert second[0].loss.item() == pytest.approx(0.0320, abs=6e-5)
    assert first[0].loss.item() + second[0].loss.item() == pytest.approx(-0.0452, abs=6e-5)
    assert first[1].tolist() == pytest.approx(numbers("0 .0957 0 0 .0910 0 0 -.0783 0 0"), abs=6e-5)
    assert second[1].tolist() == pytest.approx(numbers("0 0 .0641 0 0 0 -.1169 0 0 -.0866"), abs=6e-5)
    assert first[0].metrics.values()["lopti/low_frac"] == pytest.approx(0.6)


GAMMA = [[1, 0.9], [0.95, 0.6, 1], [0.85], [1, 1, 0.7, 0.9]]


def test_18_rspo_multiplies_the_ratios_by_gamma_before_clip_and_mean():
    result, minus_gradient = f.run(preset("rspo"), router_shift=f.pad_rows(GAMMA).log())
    assert result.loss.item() == pytest.approx(-0.1199, abs=6e-5)
    expected = numbers(".1254 .1254 .0716 .0716 .0716 0 -.0501 -.0501 0 -.0501")
    assert minus_gradient.tolist() == pytest.approx(expected, abs=6e-5)
    geometric = result.per_token["ratio"][:, 0].tolist()
    assert geometric == pytest.approx([1.1587, 0.9919, 0.6703, 0.9265], abs=6e-5)


RATIO_RULES = {
    name: preset(name).with_(
        advantage=knobs.GroupMean(),
        aggregation=knobs.SeqMeanTokenMean(),
        correction=knobs.NoCorrection(),
        kl=knobs.NoKl(),
    )
    for name in (
        "grpo",
        "r1",
        "dapo",
        "dr_grpo",
        "gspo",
        "gspo_token",
        "gmpo",
        "cispo",
        "sapo",
        "olmo3",
        "rspo",
    )
} | {
    "no surrogate": Objective(surrogate=knobs.NoSurrogate()),
    "dcpo": Objective(surrogate=knobs.DynamicClip()),
    "book_signed": Objective(surrogate=knobs.BookSigned()),
    "reinforce": Objective(ratio=knobs.NoRatio(), surrogate=knobs.NoSurrogate()),
}


@pytest.mark.parametrize("rule", RATIO_RULES)
def test_38_without_drift_all_ratio_rules_have_the_same_gradient(rule):
    result, minus_gradient = f.run(RATIO_RULES[rule], f.pad_rows(f.OLD_LOGPROBS))
    expected = numbers(".1082 .1082 .0722 .0722 .0722 -.2165 -.0541 -.0541 -.0541 -.0541")
    assert minus_gradient.tolist() == pytest.approx(expected, abs=6e-5)
    if rule not in {"sapo", "cispo", "reinforce"}:  # their values are not estimates of improvement
        assert result.loss.item() == pytest.approx(0, abs=1e-12)


def test_39_sapos_value_without_drift_is_not_zero():
    result, _ = f.run(RATIO_RULES["sapo"], f.pad_rows(f.OLD_LOGPROBS))
    assert result.loss.item() == pytest.approx(-0.0412, abs=6e-5)


BOOK_SUMS = torch.tensor([[-7.9243], [-20.1546], [-16.6130], [-23.3677]], dtype=torch.float64)
BOOK_OLD = torch.tensor([[-10.9243], [-20.3546], [-14.6130], [-23.3677]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        (preset("grpo_book"), -2.5764),
        (preset("grpo_book_clip"), -2.3998),
        (preset("grpo_book_clip").with_(surrogate=knobs.PpoClip(eps_low=10, eps_high=10)), -2.3998),
        (preset("grpo_book_clip").with_(surrogate=knobs.PpoClip(eps_low=0.2, eps_high=0.2)), -0.1299),
        (preset("grpo_book_clip").with_(surrogate=knobs.BookSigned(eps_high=0.2)), -0.2738),
    ],
)
def test_the_numbers_of_the_book(objective, loss):
    from worker.objective.policy_loss import denominators, policy_loss

    mask = torch.ones(4, 1, dtype=torch.bool)
    missing_logprobs = {"sampler_logprobs": None, "reference_logprobs": None}
    batch = f.batch(objective, mask=mask, old_logprobs=BOOK_OLD, **missing_logprobs)
    weights = denominators(mask, batch.group_index, objective, max_new_tokens=1024)
    result = policy_loss(BOOK_SUMS, batch, objective, weights)
    assert result.loss.item() == pytest.approx(loss, abs=6e-5)
    if objective.ratio.type == "seq_product":
        assert result.metrics.values()["ratio/mean"] == pytest.approx(5.6106, abs=6e-5)
        assert result.per_token["ratio"].flatten().tolist() == pytest.approx(
            [math.exp(3), math.exp(0.2), math.exp(-2), 1], rel=1e-6
        )
