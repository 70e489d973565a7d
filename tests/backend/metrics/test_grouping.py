"""Tests of groups of runs by shared properties."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from backend.metrics.grouping import group_runs


def make_run(
    name, *, variant="grpo", tags=(), verdict=None, digest="aaaaaa", experiment="one", parent=None, step=None
):
    return SimpleNamespace(
        id=name, name=name, variant=variant, tags=list(tags), verdict=verdict, config_hash=digest,
        experiment_name=experiment, fork_step=step, parent_run=parent,
    )  # fmt: skip


def group_configs(configs, *keys):
    return group_runs([make_run(name) for name in configs], configs, keys)


def test_runs_without_a_field_form_a_group_that_says_so():
    configs = {"a": {"clip": {"high": 0.2}}, "b": {}, "c": {"clip": {}}, "d": {"clip": {"high": None}}}
    expected = {"0.2": ["a"], "no clip.high": ["b", "c"], "None": ["d"]}
    assert group_configs(configs, "config.clip.high") == expected


def test_several_fields_make_one_group_per_combination():
    configs = {"a": {"lr": 1, "g": 4}, "b": {"lr": 1.0, "g": 4}, "c": {"lr": 1, "g": 8}}
    assert group_configs(configs, "config.lr", "config.g") == {"lr 1, g 4": ["a", "b"], "lr 1, g 8": ["c"]}


def test_grouping_by_all_fields_but_the_seed_joins_variants_of_one_config():
    runs = [make_run("a"), make_run("b", variant="other"), make_run("c", digest="bbbbbb")]
    assert list(group_runs(runs, {}, ["config"]).values()) == [["a", "b"], ["c"]]
    assert list(group_runs(runs, {}, ["config", "variant"]).values()) == [["a"], ["b"], ["c"]]


def test_a_variant_named_like_another_group_takes_no_run_from_it():
    digests = {"a": "aaaaaa", "b": "bbbbbb", "c": "bbbbbb1", "d": "bbbbbb2"}
    runs = [make_run(name, digest=digest) for name, digest in digests.items()]
    runs += [make_run("e", variant="grpo · one"), make_run("f", variant="grpo · one · bbbbbb")]
    groups = group_runs(runs, {}, ["variant"])
    assert sorted(run for members in groups.values() for run in members) == list("abcdef")


def test_forks_of_one_step_share_a_mean_separate_from_their_parents():
    runs = [
        make_run("a"),
        make_run("b"),
        make_run("c", parent="a", step=5),
        make_run("d", parent="b", step=5),
    ]
    runs.append(make_run("e", parent="c", step=8))
    assert group_runs(runs, {}, ["variant"]) == {
        "grpo · one": ["a", "b"],
        "grpo · one · fork at 5": ["c", "d"],
        "grpo · one · fork at 8": ["e"],
    }


VALUES = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from(["", "0", "no a"]))
CONFIGS = st.lists(st.dictionaries(st.sampled_from("ab"), VALUES), max_size=8)


@given(CONFIGS, st.lists(st.sampled_from(["config.a", "config.b"]), min_size=1, max_size=2, unique=True))
def test_each_run_is_in_one_group_with_those_that_agree_in_all_keys(configs, keys):
    configs_by_name = {str(number): config for number, config in enumerate(configs)}
    groups = group_configs(configs_by_name, *keys)
    group_by_run = {run: name for name, members in groups.items() for run in members}
    assert sorted(run for members in groups.values() for run in members) == sorted(configs_by_name)
    for first_name, first in configs_by_name.items():
        for second_name, second in configs_by_name.items():
            agree = all(
                repr(first.get(key[-1], "absent!")) == repr(second.get(key[-1], "absent!")) for key in keys
            )
            assert (group_by_run[first_name] == group_by_run[second_name]) == agree
