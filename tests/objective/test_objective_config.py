"""Tests of allowed and refused combinations of knobs, with their reasons."""

import pytest

from backend.base.errors import InvalidConfig
from backend.config import knobs
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.rules.combinations import warnings

REFUSED_COMBINATIONS = [
    ({"ratio": {"type": "none"}}, "surrogate.type", "clips a ratio, but ratio is none"),
    ({"surrogate": {"type": "geo_token"}}, "surrogate.type", "expected ratio seq_geo"),
    (
        {"surrogate": {"type": "weight_cap"}, "ratio": {"type": "seq_geo"}},
        "surrogate.type",
        "expected ratio token",
    ),
    (
        {"surrogate": {"type": "dynamic"}, "ratio": {"type": "seq_product"}},
        "surrogate.type",
        "old probability",
    ),
    ({"surrogate": {"type": "sapo"}, "ratio": {"type": "seq_product"}}, "surrogate.type", "near 1"),
    (
        {"ratio": {"type": "token", "old": "sampler"}, "correction": {"type": "token_tis"}},
        "correction.type",
        "already contains the mismatch",
    ),
    (
        {"ratio": {"type": "none"}, "surrogate": {"type": "none"}, "kl": {"type": "r_k3"}},
        "kl.type",
        "multiplies by the policy ratio",
    ),
    (
        {"ratio": {"type": "seq_geo"}, "token_weight": {"type": "ar"}},
        "token_weight.type",
        "expected ratio token or seq_geo_token",
    ),
    (
        {"ratio": {"type": "seq_product"}, "token_weight": {"type": "lopti"}},
        "token_weight.type",
        "expected ratio token or seq_geo_token",
    ),
    ({"reference": {"type": "ema", "alpha": 0}}, "reference.alpha", "greater than 0"),
    ({"token_weight": {"type": "lopti", "eta": 0}}, "token_weight.eta", "0 leaves no rare tokens"),
    ({"token_weight": {"type": "top_entropy", "q": 0}}, "token_weight.q", "greater than 0"),
    (
        {"ratio": {"type": "none"}, "surrogate": {"type": "none"}, "router": {"type": "router_shift"}},
        "router.type",
        "multiplies the policy ratio",
    ),
    (
        {"surrogate": {"type": "ppo_clip", "dual_clip": 0.5}},
        "surrogate.dual_clip",
        "expected 0 (off) or more than 1",
    ),
    ({"surrogate": {"type": "ppo_clip", "eps_low": -0.1}}, "surrogate.eps_low", "at least 0"),
    ({"surrogate": {"type": "ppo_clip", "eps_low": 1e400}}, "surrogate.eps_low", "finite"),
    ({"surrogate": {"type": "clipp"}}, "surrogate", "clipp"),
    ({"kl": {"type": "k3", "place": "reward"}}, "kl.place", "no such field"),
    ({"kl": {"type": "k1", "place": "reward", "to": "old"}}, "kl.to", "always be 0"),
    ({"kl": {"type": "k1", "to": "old"}}, "kl.type", "push away"),
    ({"kl": {"type": "k3", "coef": 0, "controller": {"type": "dual"}}}, "kl.coef", "only multiplies"),
    (
        {"kl": {"type": "k3", "coef": {"math": 0}, "controller": {"type": "dual"}}},
        "kl.coef",
        "only multiplies",
    ),
    ({"kl": {"type": "k3", "coef": -1}}, "kl.coef", "at least 0"),
    ({"kl": {"type": "k3", "coef": {"math": -1}}}, "kl.coef.math", "at least 0"),
    ({"kl": {"type": "k3", "coef": {}}}, "kl.coef", "expected at least 1"),
    (
        {"kl": {"type": "k3", "coef": {"math": 0, "code": 1}}},
        "kl.coef.code",
        "is not a domain of the problems",
    ),
    ({"kl": {"type": "k3", "coef": {"code": 1}}}, "kl.coef", "nothing for the domain 'math'"),
    ({"kl": {"type": "k3", "to": "old", "controller": {"type": "dual"}}}, "kl.controller.type", "always 0"),
    (
        {"advantage": {"type": "critic"}, "ratio": {"type": "seq_geo"}},
        "ratio.type",
        "critic judges each token",
    ),
    ({"advantage": {"type": "critic", "scale": {"type": "group_std"}}}, "advantage.scale", "group_std"),
    (
        {"advantage": {"type": "critic", "lambda_policy": 1.5}},
        "advantage.lambda_policy",
        "at most",
    ),
    ({"value": {"epochs": 0}}, "value.epochs", "updates.epochs"),
    ({"aggregation": {"type": "seq_mean_token_sum_norm", "l_max": 0}}, "aggregation.l_max", "max_new_tokens"),
]


@pytest.mark.parametrize(("objective", "path", "phrase"), REFUSED_COMBINATIONS)
def test_an_invalid_combination_is_refused_at_its_field(objective, path, phrase):
    with pytest.raises(InvalidConfig) as error_info:
        resolve({"objective": objective})
    messages = [(error.path, error.message) for error in error_info.value.errors]
    assert any(
        error_path.startswith(f"objective.{path}") and phrase in message for error_path, message in messages
    )


DOUBTFUL_COMBINATIONS = [
    (Objective(ratio=knobs.SequenceGeometricRatio()), "never clips"),
    (Objective(surrogate=knobs.WeightCap(cap=1)), "biases"),
    (Objective(kl=knobs.KlK1()), "noise"),
    (Objective(ratio=knobs.TokenRatio(old="current"), kl=knobs.KlRatioK3()), "k2's gradient"),
    (Objective(ratio=knobs.SequenceProductRatio()), "vanishes with length"),
]


@pytest.mark.parametrize(("objective", "phrase"), DOUBTFUL_COMBINATIONS)
def test_a_doubtful_combination_is_allowed_with_a_warning(objective, phrase):
    assert any(phrase in warning for warning in objective.warnings())


def test_a_kl_target_is_per_completion_if_the_kl_is_a_sum():
    assert Objective(kl=knobs.KlK3(aggregation="seq_sum")).kl_is_sum
    assert Objective(kl=knobs.KlK1(place="reward")).kl_is_sum
    assert Objective(kl=knobs.KlK3(), aggregation=knobs.SeqMeanTokenSum()).kl_is_sum
    assert not Objective(kl=knobs.KlK3(), aggregation=knobs.TokenMean()).kl_is_sum


def test_three_terms_that_raise_the_entropy_cause_a_warning():
    pushes = {
        "sampling": {"temperature": 1.2},
        "objective": {"entropy": {"type": "adaptive"}, "surrogate": {"type": "ppo_clip", "eps_high": 0.4}},
    }
    assert any("entropy may explode" in warning for warning in warnings(resolve(pushes)))


def test_a_reference_that_follows_stagnation_needs_evaluations():
    stagnation = {"kl": {"type": "k3"}, "reference": {"type": "on_stagnation"}}
    with pytest.raises(InvalidConfig, match="without evaluations no stagnation can be seen"):
        resolve({"objective": stagnation, "evaluation": {"every": 0}})
    assert resolve({"objective": stagnation}).objective.reference.type == "on_stagnation"


def test_a_moving_reference_without_a_kl_term_causes_a_warning():
    unused = resolve({"objective": {"reference": {"type": "every_n"}}})
    assert any("the objective has no KL to a reference" in warning for warning in warnings(unused))
    assert not any("no KL to a reference" in warning for warning in warnings(resolve({"preset": "r1"})))
