"""Tests of suspects: settings in which a run differs from its preset, its policy or its parent."""

from functools import partial

import pytest

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.suspects import find_suspects, unusual_values
from backend.config.merge import resolve, usual_config
from backend.config.policies import make_profile
from backend.config.presets import PRESETS
from backend.config.recipes import RECIPES
from tests.backend.analysis.diagnosis.logs import change_series, healthy


def resolve_fields(**changes):
    return resolve({"preset": "dr_grpo"} | changes).model_dump(mode="json")


@pytest.mark.parametrize(
    ("cause", "changes", "path"),
    [
        ("update_size", {"optimizer": {"lr": 3e-3}}, "optimizer.lr"),
        ("dead_run", {"optimizer": {"lr": 1e-6}}, "optimizer.lr"),
        (
            "entropy_explosion",
            {"objective": {"entropy": {"type": "bonus", "coef": 0.3}}},
            "objective.entropy",
        ),
        ("entropy_collapse", {"objective": {"entropy": {"type": "bonus", "coef": -1}}}, "objective.entropy"),
        ("kl_pull", {"objective": {"kl": {"type": "k1", "coef": 1}}}, "objective.kl"),
        ("staleness", {"sampling": {"staleness": 8}}, "sampling.staleness"),
        ("staleness", {"updates": {"epochs": 4}}, "updates.epochs"),
        ("length_blowup", {"sampling": {"max_new_tokens": 16}}, "sampling.max_new_tokens"),
        ("reward_hacking", {"rewards": [{"name": "correctness", "weight": -1}]}, "rewards"),
        ("verifier", {"rewards": [{"name": "correctness", "extraction": "lenient"}]}, "rewards"),
        (
            "length_collapse",
            {"rewards": [{"name": "correctness"}, {"name": "length", "weight": 5}]},
            "rewards",
        ),
    ],
)
def test_a_setting_far_from_the_preset_is_a_suspect_and_can_be_undone(cause, changes, path):
    suspect = find_suspects(resolve_fields(**changes))[cause]
    assert suspect.size > 0.2
    usual_value = resolve_fields()
    for key in path.split("."):
        usual_value = usual_value[key]
    assert suspect.changes[path] == usual_value


def test_no_preset_is_a_suspect_and_the_demo_of_a_collapse_is():
    assert all(not find_suspects(resolve({"preset": preset}).model_dump(mode="json")) for preset in PRESETS)
    assert unusual_values(RECIPES["smollm2_sums"].config) == []
    (warning,) = unusual_values(RECIPES["demo_collapse"].config)
    assert warning.startswith("Unusual: optimizer.lr is 0.003, 10 times the 0.0003 that")


def test_the_default_settings_of_a_small_model_are_not_suspects():
    profile = partial(make_profile, is_small=True)
    assert unusual_values(resolve({"policy": {"name": "mine"}}, profile=profile)) == []


def test_a_fork_is_compared_with_its_parent_and_undoing_a_change_is_not_a_suspect():
    parent = resolve_fields(optimizer={"lr": 1e-3})
    suspect = find_suspects(resolve_fields(optimizer={"lr": 1e-2}), parent)["update_size"]
    assert suspect.changes == {"optimizer.lr": 1e-3}  # with which the run before the fork was healthy
    assert find_suspects(resolve_fields(), parent) == {}


def test_settings_that_a_recipe_or_the_healthy_parent_has_are_not_suspects():
    recipe = RECIPES["smollm2_sums"].config
    assert recipe.sampling.max_new_tokens * 8 == usual_config(recipe).sampling.max_new_tokens
    large_rate = recipe.model_dump(mode="json") | {"optimizer": {"lr": 3e-4}}
    assert list(find_suspects(large_rate)) == ["update_size"]
    parent = resolve_fields(sampling={"max_new_tokens": 16})
    fork = resolve_fields(sampling={"max_new_tokens": 16}, optimizer={"lr": 3e-3})
    assert list(find_suspects(fork, parent)) == ["update_size"]
    assert list(find_suspects(parent, parent)) == ["length_blowup"]  # such as the control of a trial


def test_ten_times_the_learning_rate_comes_before_a_reward_that_stayed():
    """The accuracy falls while the format still pays, which alone would point to the reward."""
    terms = [{"name": "correctness", "weight": 1.0}, {"name": "think_format", "weight": 1.0}]
    log = healthy(120)
    log = Log(dict(log.series) | {"reward/mean": log.series["reward/accuracy"]})
    log = change_series(
        log, 80, reward__accuracy=lambda values: values * 0.02, policy__entropy=lambda values: values * 4
    )
    first_causes = []
    for rate in (3e-4, 3e-3):
        first = diagnose(Log(log.series, resolve_fields(optimizer={"lr": rate}, rewards=terms))).causes[0]
        first_causes.append(first.finding.cause)
    assert first_causes == ["reward_hacking", "update_size"]
    assert first.remedy.changes == {"optimizer.lr": 3e-4}


def test_the_first_remedy_undoes_all_large_changes_and_others_only_their_own():
    """Eight stale steps with the usual learning rate are harmless, as is three times that rate alone."""
    log = change_series(healthy(120), 80, reward__accuracy=lambda values: values * 0.02)
    fork = resolve_fields(optimizer={"lr": 1e-3}, sampling={"staleness": 8})
    causes = diagnose(Log(log.series, fork, parent_config=resolve_fields())).causes
    changes_by_cause = {cause.finding.cause: cause.remedy.changes for cause in causes}
    assert next(iter(changes_by_cause)) == "staleness"
    assert changes_by_cause["staleness"] == {"sampling.staleness": 0, "optimizer.lr": 3e-4}
    assert changes_by_cause["update_size"] == {"optimizer.lr": 3e-4}
