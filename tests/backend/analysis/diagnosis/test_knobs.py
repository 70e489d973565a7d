"""Tests of remedies as config changes: checked by hand for each cause, and valid for every preset."""

import pytest

from backend.analysis.diagnosis.knobs import CHANGES_BY_CAUSE, first_change
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.remedies import REMEDIES, remedy_for
from backend.config.merge import merge, nest_paths, resolve
from backend.config.presets import PRESETS
from backend.config.run import RunConfig

CRITIC = {"objective": {"advantage": {"type": "critic"}}}


def rewards(*terms):
    return {"rewards": list(terms)}


def first_knob_change(cause, fields):
    """Return the first change for a config in which only these fields differ from the defaults."""
    return first_change(cause, RunConfig.model_validate(fields).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("cause", "fields", "changes"),
    [
        ("update_size", {"optimizer": {"lr": 3e-3}}, {"optimizer.lr": 1e-3}),
        (
            "update_size",
            {"optimizer": {"lr": 3e-3, "max_grad_norm": 5}},
            {"optimizer.lr": 1e-3, "optimizer.max_grad_norm": 1.0},
        ),
        ("entropy_explosion", {"optimizer": {"lr": 3e-4}}, {"optimizer.lr": 1e-4}),
        (
            "entropy_explosion",
            {"objective": {"entropy": {"type": "bonus", "coef": 0.3}}},
            {"objective.entropy": {"type": "none"}},
        ),
        (
            "entropy_explosion",
            {"objective": {"entropy": {"type": "adaptive"}}},
            {"objective.entropy": {"type": "none"}},
        ),
        (
            "entropy_collapse",
            {"objective": {"entropy": {"type": "bonus", "coef": -0.3}}},
            {"objective.entropy": {"type": "none"}},
        ),
        ("entropy_collapse", {"updates": {"epochs": 2}}, {"objective.surrogate.eps_high": 0.28}),
        ("entropy_collapse", {}, {"objective.entropy": {"type": "adaptive"}}),
        (
            "entropy_collapse",  # the clip only acts with older sampling weights
            {"updates": {"epochs": 1, "minibatches": 1}, "sampling": {"ahead": 2}},
            {"objective.surrogate.eps_high": 0.28},
        ),
        (
            "staleness",
            {"updates": {"epochs": 1, "minibatches": 1}, "sampling": {"ahead": 2}},
            {"updates.epochs": 1, "updates.minibatches": 1, "sampling.staleness": 0, "sampling.ahead": 0},
        ),
        ("router_drift", {}, {"sampling.routing_replay": True}),
        (
            "router_drift",
            {"sampling": {"routing_replay": True}},
            {"objective.router": {"type": "router_shift"}},
        ),
        ("overfitting", {}, {"objective.kl": {"type": "k3", "coef": 0.01}}),
        (
            "overfitting",
            {"objective": {"kl": {"type": "k3", "coef": 0.1}}, "optimizer": {"lr": 3e-4}},
            {"optimizer.lr": 1e-4},
        ),
        ("dead_run", {"optimizer": {"lr": 1e-12}}, {"optimizer.lr": 3e-4}),
        ("dead_run", {"policy": {"name": "some/model"}, "optimizer": {"lr": 1e-12}}, {"optimizer.lr": 1e-5}),
        ("dead_run", {"steps": 50, "optimizer": {"warmup_steps": 30}}, {"optimizer.warmup_steps": 5}),
        ("dead_run", {"optimizer": {"max_grad_norm": 1e-9}}, {"optimizer.max_grad_norm": 1.0}),
        ("dead_run", {}, {}),
        ("critic", {}, {}),
        ("critic", CRITIC, {"objective.value.lr_factor": 2.0, "objective.value.pretrain_steps": 50}),
        ("critic", CRITIC | {"steps": 40}, {"objective.value.epochs": 2}),
        (
            "length_collapse",
            {"length": {"penalty": {"type": "soft_overlong"}}},
            {"length.penalty": {"type": "none"}},
        ),
        ("length_collapse", {}, {"objective.aggregation": {"type": "seq_mean_token_sum_norm"}}),
        (
            "length_blowup",
            {"length": {"truncated": {"type": "mask"}}},
            {"length.penalty": {"type": "soft_overlong"}},
        ),
        (
            "repetition",
            {"length": {"truncated": {"type": "mask"}}},
            {"objective.kl": {"type": "k3", "coef": 0.01}},
        ),
        (
            "kl_pull",
            {"objective": {"kl": {"type": "k1", "coef": 3.0}}},
            {"objective.kl": {"type": "k3", "coef": 0.04}},
        ),
        ("kl_pull", {"objective": {"kl": {"type": "k3", "coef": 0.02}}}, {"objective.kl.coef": 0.005}),
        ("kl_pull", {}, {}),
        (
            "kl_runaway",
            {"objective": {"kl": {"type": "k1", "coef": 0.1}}},
            {"objective.kl": {"type": "k3", "coef": 0.2}},
        ),
        ("displacement", {}, {"objective.nll": {"type": "positive", "coef": 0.1}}),
        (
            "displacement",
            {"objective": {"nll": {"type": "positive", "coef": 0.1}}},
            {"objective.nll.coef": 0.2},
        ),
        (
            "vanishing_signal",
            {},
            {"filters.groups": {"type": "zero_variance"}, "filters.refill": {"type": "dynamic"}},
        ),
        (
            "vanishing_signal",
            {"filters": {"groups": {"type": "zero_variance"}, "refill": {"type": "dynamic"}}},
            {"sampling.group_size": 16},
        ),
        (
            "mismatch",
            {"sampling": {"precision": "int8"}},
            {
                "sampling.precision": "policy",
                "objective.correction": {"type": "token_tis", "cap": 2.0},
            },
        ),
        (
            "mismatch",  # the ratio already covers the mismatch, and a second correction is refused
            {"sampling": {"precision": "int8"}, "objective": {"ratio": {"type": "token", "old": "sampler"}}},
            {"sampling.precision": "policy"},
        ),
        (
            "staleness",
            {"updates": {"epochs": 2, "resample_each_epoch": True}},
            {
                "updates.epochs": 1,
                "updates.minibatches": 1,
                "sampling.staleness": 0,
                "updates.resample_each_epoch": False,
            },
        ),
        ("verifier", {}, {}),
    ],
)
def test_the_first_change_for_a_cause(cause, fields, changes):
    assert first_knob_change(cause, fields) == changes


def test_a_natural_gradient_gets_a_smaller_trust_region():
    config = resolve({"preset": "trpo"}).model_dump(mode="json")
    assert first_change("update_size", config) == {"updates.trust.delta": 0.00333}


def test_coefficients_per_domain_change_domain_by_domain():
    fields = {
        "problems": [{"name": "sums", "domain": "easy"}, {"name": "sums", "domain": "hard"}],
        "objective": {"kl": {"type": "k3", "coef": {"easy": 0.1, "hard": 0.5}}},
    }
    kl_setting = first_knob_change("kl_runaway", fields)["objective.kl"]
    assert kl_setting == {"type": "k3", "coef": {"easy": 0.2, "hard": 1.0}}
    assert first_knob_change("kl_pull", fields)["objective.kl"]["coef"] == {"easy": 0.04, "hard": 0.04}


def reward_names(terms, *fields):
    return [(term["name"], *(term[field] for field in fields)) for term in terms]


def test_a_reward_that_wrong_answers_earn_is_restricted_to_right_ones():
    fields = rewards({"name": "correctness"}, {"name": "think_format", "weight": 4.0})
    (terms,) = first_knob_change("reward_hacking", fields).values()
    assert reward_names(terms, "weight") == [("correctness", 1.0), ("think_format", 4.0)]
    assert terms[1]["only_when_correct"] is True
    (second_change,) = first_knob_change("reward_hacking", {"rewards": terms}).values()
    assert reward_names(second_change, "weight") == [("correctness", 1.0), ("think_format", 1.0)]


def test_a_term_that_cannot_depend_on_right_answers_pays_a_quarter():
    (terms,) = first_knob_change(
        "reward_hacking", rewards({"name": "correctness"}, {"name": "length", "weight": 2.0})
    ).values()
    assert reward_names(terms, "weight") == [("correctness", 1.0), ("length", 0.5)]


def test_right_answers_that_lost_reward_pay_again():
    fields = rewards({"name": "correctness", "weight": -3.0}, {"name": "think_format", "weight": 1.0})
    (terms,) = first_knob_change("reward_hacking", fields).values()
    assert reward_names(terms, "weight") == [("correctness", 3.0), ("think_format", 1.0)]
    assert terms[1]["only_when_correct"] is True


def test_correctness_alone_cannot_be_hacked_by_another_term():
    assert first_knob_change("reward_hacking", rewards({"name": "correctness"})) == {}


def test_an_added_format_reward_becomes_a_requirement():
    fields = rewards({"name": "correctness", "map": "-1/1"}, {"name": "think_format", "weight": 0.2})
    (terms,) = first_knob_change("broken_format", fields).values()
    # otherwise 0 for a missing format would exceed -1
    assert reward_names(terms[:1], "map") == [("correctness", "0/1")]
    assert reward_names(terms[1:], "weight", "required") == [("think_format", 0.0, True)]
    assert first_knob_change("broken_format", {"rewards": terms}) == {}


def test_a_box_is_required_if_answers_count_without_one():
    (terms,) = first_knob_change(
        "broken_format", rewards({"name": "correctness", "extraction": "lenient"})
    ).values()
    assert terms[1] == {"name": "boxed_format", "weight": 0.0, "required": True}
    assert first_knob_change("broken_format", rewards({"name": "correctness", "extraction": "boxed"})) == {}


def test_the_script_of_the_prompt_is_rewarded_and_then_required():
    (terms,) = first_knob_change("language_mix", rewards({"name": "correctness"})).values()
    assert terms[1] == {"name": "language", "weight": 0.1}
    (terms,) = first_knob_change("language_mix", {"rewards": terms}).values()
    assert reward_names(terms[1:], "form", "required") == [("language", "consistent", True)]


def test_brevity_is_no_longer_rewarded():
    fields = rewards({"name": "correctness"}, {"name": "length", "weight": 0.5})
    (terms,) = first_knob_change("length_collapse", fields).values()
    assert reward_names(terms, "weight") == [("correctness", 1.0), ("length", 0.0)]


def test_every_cause_except_a_wrong_verifier_has_a_field_to_change():
    assert REMEDIES.keys() - CHANGES_BY_CAUSE.keys() == {"verifier"}


@pytest.mark.parametrize("cause", REMEDIES)
def test_every_change_of_every_preset_makes_another_valid_config(cause):
    for preset in PRESETS:
        config = resolve({"preset": preset}).model_dump(mode="json")
        changes = remedy_for(cause, Log({}, config), {}, is_first=True).changes
        changed_config = RunConfig.model_validate(merge(config, nest_paths(changes)))
        assert (changed_config.model_dump(mode="json") == config) is (changes == {}), preset


def test_a_config_of_another_version_gets_no_fields():
    assert first_change("update_size", {"optimizer": {"lr": 1e-3, "gone": 1}}) == {}
