"""The metric catalog."""

from backend.config.metrics import FAMILIES, METRICS, find_metric


def test_every_metric_has_a_unit_a_meaning_and_a_section():
    for metric in (*METRICS.values(), *FAMILIES):
        assert metric.unit
        assert metric.meaning.endswith(".")
        assert metric.section


def test_an_alias_belongs_to_one_metric_only():
    aliases = [alias for metric in METRICS.values() for alias in metric.aliases]
    assert len(aliases) == len(set(aliases))


def test_a_family_covers_its_members_and_nothing_else():
    assert find_metric("reward/correctness/mean").name == "reward/<term>/mean"
    assert find_metric("eval/pass_at_8").name == "eval/pass_at_<k>"
    assert find_metric("reward/a/b/mean") is None
    assert find_metric("eval/pass_at_") is None
