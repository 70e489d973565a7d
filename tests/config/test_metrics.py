"""Tests of the metric catalog."""

from backend.config.metrics import (
    FAMILIES,
    METRICS,
    canonical_name,
    find_metric,
)


def test_every_metric_has_a_unit_a_meaning_and_a_section():
    for metric in (*METRICS.values(), *FAMILIES):
        assert metric.unit
        assert metric.meaning.endswith(".")
        assert metric.section


def test_a_family_covers_only_its_members():
    assert find_metric("reward/correctness/mean").name == "reward/<term>/mean"
    assert find_metric("eval/pass_at_8").name == "eval/pass_at_<k>"
    assert find_metric("eval/math500/pass_at_8").name == "eval/<suite>/pass_at_<k>"
    assert find_metric("eval/math500/maj_at_8_high").name == "eval/<suite>/<metric>_high"
    assert find_metric("eval/accuracy/math").name == "eval/accuracy/<domain>"
    assert find_metric("reward/a/b/mean") is None
    assert find_metric("eval/pass_at_") is None


def test_names_of_other_trainers_are_mapped_to_ours():
    assert canonical_name("critic/rewards/mean") == "reward/mean"
    assert canonical_name("train/reward") == "reward/mean"
    assert canonical_name("rewards/accuracy_fn/std") == "reward/accuracy_fn/std"
    assert canonical_name("train/rewards/accuracy_fn/mean") == "reward/accuracy_fn/mean"
    assert canonical_name("eval_completions/mean_length") == "eval/length_mean"
    assert canonical_name("val-core/math500/acc/mean@4") == "eval/math500/accuracy"
    assert canonical_name("val-core/math500/acc/maj@4/mean") == "eval/math500/maj_at_4"
    assert canonical_name("critic/score/mean") is None
    assert canonical_name("reward/mean") is None
