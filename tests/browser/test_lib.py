"""Pure parts of the pages: addresses, numbers, colours, statistics, configs."""

import math
from itertools import combinations, product
from types import SimpleNamespace

import pytest

from backend.db.models import COLOURS as COLOUR_COUNT
from backend.metrics.grouping import groups_of as groups_of_service

URL = "lib/url.js"
FORMAT = "lib/text/format.js"
COLOURS = "lib/colours.js"
STATS = "lib/runs/stats.js"
CONFIG = "lib/runs/config.js"

SPEC = """{ x: u.choice(['step', 'wall', 'tokens']), smoothing: u.number(0, {min: 0, max: 0.999}),
  runs: u.list(), hide: u.list([]), zoom: u.range(), q: u.text(), all: u.flag() }"""


def decoded(in_browser, search):
    return in_browser(URL, f"(u, search) => u.decode(search, {SPEC})", search)


def encoded(in_browser, search, changes):
    return in_browser(URL, f"(u, [search, changes]) => u.encode(search, changes, {SPEC})", [search, changes])


def test_an_empty_address_is_all_defaults(in_browser):
    assert decoded(in_browser, "") == {
        "x": "step",
        "smoothing": 0,
        "runs": None,
        "hide": [],
        "zoom": None,
        "q": "",
        "all": False,
    }


def test_an_unreadable_parameter_becomes_its_default(in_browser):
    view = decoded(in_browser, "?x=banana&smoothing=7&zoom=9,3&all=yes")
    assert (view["x"], view["smoothing"], view["zoom"], view["all"]) == ("step", 0, None, False)


def test_what_is_written_is_read_again(in_browser):
    changes = {
        "x": "tokens",
        "smoothing": 0.6,
        "runs": ["a", "b,c~d", "e~.5", "-"],
        "zoom": [10, 80.5],
        "q": "50 % & more",
        "all": True,
    }
    search = encoded(in_browser, "", changes)
    assert decoded(in_browser, search) == {**changes, "hide": []}


def test_a_default_is_not_written_and_other_parameters_stay(in_browser):
    assert encoded(in_browser, "?x=wall&other=1&smoothing=0.6", {"x": "step"}) == "?other=1&smoothing=0.6"


def test_an_empty_list_differs_from_none_chosen(in_browser):
    search = encoded(in_browser, "", {"runs": []})
    assert search == "?runs=-"
    assert decoded(in_browser, search)["runs"] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.6123, "0.612"),
        (-0.5, "−0.500"),
        (36.534, "36.53"),
        (150, "150"),
        (1234567, "1.23e6"),
        (0.0002, "2e−4"),
        (1e-7, "1e−7"),
        ("NaN", "NaN"),
        ("-Infinity", "−∞"),
        (None, "–"),
    ],
)
def test_a_metric_value_has_a_short_spelling(in_browser, value, text):
    assert in_browser(FORMAT, "(f, value) => f.formatValue(value)", value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (59.4, "59 s"), (125, "2 min 05 s"), (7500, "2 h 05 min"), (None, "–")],
)
def test_a_duration_shows_its_two_largest_units(in_browser, seconds, text):
    assert in_browser(FORMAT, "(f, seconds) => f.formatDuration(seconds)", seconds) == text


@pytest.mark.parametrize(
    ("metric", "kind"),
    [("reward/mean", "train"), ("eval/accuracy", "eval"), ("eval/sums/pass@4", "eval/sums"), ("", "train")],
)
def test_the_completions_behind_a_metric_are_those_that_it_measures(in_browser, metric, kind):
    assert in_browser("lib/metrics.js", "(m, metric) => m.kindOf(metric)", metric) == kind


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (192, 348, "3.2 – 5.8 min"),
        (183.6, 6480, "3.1 min – 1.8 h"),
        (22, 306, "22 s – 5.1 min"),
        (60, 60.1, "60 s"),
        (None, 60, "–"),
    ],
)
def test_the_ends_of_a_range_have_a_unit_each_unless_one_fits_both(in_browser, low, high, text):
    shown = in_browser(FORMAT, "(f, [low, high]) => f.formatDurationRange(low, high)", [low, high])
    assert shown.replace("\u00a0", " ") == text


def test_ten_runs_have_ten_colours_and_the_eleventh_is_dashed(in_browser):
    looks = in_browser(
        COLOURS,
        """c => { const items = [...Array(11)].map((_, i) => ({ key: String(i), slot: i }));
                  return [...c.looksTogether(items, 'light').values()]; }""",
    )
    assert len({look["colour"] for look in looks[:10]}) == 10
    assert [look["dash"] for look in looks] == ["solid"] * 10 + ["dash"]


@pytest.mark.parametrize(
    ("wanted", "slots"),
    [
        ([3, 4, 5], [3, 4, 5]),
        ([3, 3, 4], [3, 5, 4]),
        ([9, 9], [9, 0]),
        ([7] * 11, [7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_a_group_has_the_colour_of_its_first_run_unless_another_has_it(in_browser, wanted, slots):
    assert in_browser(COLOURS, "(c, [wanted]) => c.slotsOfGroups(wanted)", [wanted]) == slots


def test_the_palette_is_as_long_as_the_service_believes(in_browser):
    assert in_browser(COLOURS, "c => [c.PALETTES.light.length, c.PALETTES.dark.length]") == [COLOUR_COUNT] * 2


FIELDS = [
    {"name": "status", "type": "text", "values": ["finished", "failed"]},
    {"name": "tag", "type": "tags", "values": ["old one", "new"]},
    {"name": "created", "type": "date", "values": []},
    {"name": "eval/accuracy", "type": "metric", "values": []},
    {"name": "config.optimizer.lr", "type": "config", "values": []},
    {"name": "config.preset", "type": "config", "values": ["dapo", "grpo"]},
]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("sta", ["status"]),
        ("lr", ["config.optimizer.lr"]),
        ("status ", ["=", "!=", "~"]),
        ("status = f", ["finished", "failed"]),
        ("status not in (", ["finished", "failed"]),
        ("status in (failed, fi", ["finished"]),
        ("status in (failed", []),
        ("tag = ", ['"old one"', "new"]),
        ("preset = d", ["dapo"]),
        ("created > ", ["-1d", "-7d", "-30d"]),
        ("best(", ["eval/accuracy"]),
        ("best(eval/accuracy) ", [">", ">=", "<"]),
        ("otter ", ["and", "or"]),
        ("(status = failed) a", ["and"]),
        ("not eval", ["eval/accuracy"]),
        ('name = "a', []),
    ],
)
def test_completions_fit_the_place_in_the_query(in_browser, query, first):
    run = "(q, [text, fields]) => q.completionAt(text, text.length, fields).options.map((each) => each.text)"
    found = in_browser("lib/runs/query.js", run, [query, FIELDS])
    assert found[: max(1, len(first))] == first


def test_a_completion_takes_the_place_of_what_is_typed(in_browser):
    run = """(q, [text, caret, fields]) => {
        const found = q.completionAt(text, caret, fields);
        return q.completed(text, found, found.options[0]); }"""
    completed = in_browser("lib/runs/query.js", run, ["sta and tag = new", 3, FIELDS])
    assert completed == {"text": "status and tag = new", "caret": 6}


def test_a_caret_stands_below_the_place_of_an_error(in_browser):
    run = "(q, [text, position]) => q.pointedAt(text, position)"
    assert in_browser("lib/runs/query.js", run, ["😀 = x", 4]) == "😀 = x\n    ^"
    line, caret = in_browser("lib/runs/query.js", run, ["a " * 100 + "!", 200]).split("\n")
    assert line[caret.index("^")] == "!"


def linear(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def mixed(matrix, rgb):
    return [max(0.0, sum(w * c for w, c in zip(row, rgb, strict=True))) for row in matrix]


def oklab(rgb):
    """Björn Ottosson's perceptual space: distance there is how different colours look."""
    to_lms = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]]
    to_lab = [[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    roots = [value ** (1 / 3) for value in mixed(to_lms, rgb)]
    return [sum(w * v for w, v in zip(row, roots, strict=True)) for row in to_lab]


# Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "deutan": [[0.367, 0.861, -0.228], [0.28, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
}


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_colours_stay_apart_for_every_eye(in_browser, theme, eye):
    palette = in_browser(COLOURS, f"c => c.PALETTES.{theme}")
    seen = [oklab(mixed(EYES[eye], linear(colour))) for colour in palette]
    assert min(math.dist(a, b) for a, b in combinations(seen, 2)) > 0.075


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#14181e")])
def test_lines_have_a_contrast_of_three_to_one(in_browser, theme, ground):
    def luminance(colour):
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))

    for colour in in_browser(COLOURS, f"c => c.PALETTES.{theme}"):
        light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3


def test_the_interval_over_three_seeds_is_students(in_browser):
    assert in_browser(STATS, "s => s.spread([1, 2, 3])") == pytest.approx(
        {"n": 3, "mean": 2, "std": 1, "half": 4.3027 / math.sqrt(3)}
    )


def test_one_seed_has_a_mean_and_no_interval(in_browser):
    assert in_browser(STATS, "s => s.spread([0.5])") == {"n": 1, "mean": 0.5, "std": None, "half": None}


def test_the_service_and_the_page_agree_on_students_t(in_browser):
    from backend.metrics.statistics import t_975

    freedoms = [1, 2, 4, 17, 30, 31, 200]
    ours = in_browser(STATS, "(s, freedoms) => freedoms.map(s.t95)", freedoms)
    assert ours == pytest.approx([t_975(freedom) for freedom in freedoms], rel=2e-3)


def test_only_fields_that_differ_are_listed(in_browser):
    configs = [{"a": {"b": 1, "c": [1]}, "d": None}, {"a": {"b": 2, "c": [1]}, "d": None, "e": True}]
    assert in_browser(CONFIG, "(c, configs) => c.differences(configs).map(({ path }) => path)", configs) == [
        "a.b",
        "e",
    ]


def test_a_field_that_varies_inside_a_variant_shows_all_its_values(in_browser):
    groups = [
        {"name": "x", "configs": [{"lr": 1, "seed": 0}, {"lr": 2, "seed": 1}]},
        {"name": "y", "configs": [{"lr": 1, "seed": 0}]},
    ]
    rows = in_browser(CONFIG, "(c, groups) => c.groupDifferences(groups)", groups)
    assert rows == [{"path": "lr", "cells": [[1, 2], [1]]}]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("=1+1", "'=1+1"),
        ("\t1", '"\'\t1"'),
        ("+1e5", "+1e5"),
        ("＝1", "'＝1"),
        ("a;=1", '"a;=1"'),
        ("-0.5", "-0.5"),
        (-0.5, "-0.5"),
        ('a "b", c', '"a ""b"", c"'),
        (None, ""),
    ],
)
def test_a_cell_of_a_csv_runs_no_formula(in_browser, cell, text):
    assert in_browser("lib/text/csv.js", "(c, cell) => c.csvCell(cell)", cell) == text


def test_key_metrics_come_before_chosen_sections(in_browser):
    available = ["loss/total", "optim/lr", "reward/mean", "time/step_seconds"]
    sections = in_browser("lib/runs/summary.js", "(c, a) => c.chosenSections(a, ['key', 'optim'])", available)
    assert sections == [
        {"section": "key metrics", "metrics": ["reward/mean", "loss/total"]},
        {"section": "optim", "metrics": ["optim/lr"]},
    ]


def test_sections_come_in_the_order_of_the_question(in_browser):
    names = ["time/step_seconds", "zebra/x", "loss/total", "eval/accuracy", "reward/mean"]
    sections = in_browser("lib/metrics.js", "(m, names) => m.bySection(names).map(s => s.section)", names)
    assert sections == ["eval", "reward", "loss", "time", "zebra"]


def run_of(run_id, experiment, lr=0.1, seed=0, step=None):
    return {
        "id": run_id,
        "variant": "grpo",
        "experiment_name": experiment,
        "config_hash": f"{lr}".ljust(64, "0"),
        "config": {"lr": lr, "seed": seed},
        "fork_step": step,
    }


def groups_of(in_browser, *runs):
    source = "(g, runs) => g.groupsOf(runs).map(({ name, runs }) => [name, runs.map(({ id }) => id)])"
    return in_browser("lib/runs/groups.js", source, list(runs))


def test_seeds_of_one_config_share_a_mean(in_browser):
    groups = groups_of(in_browser, run_of("b", "one", seed=1), run_of("a", "one"))
    assert groups == [["grpo", ["a", "b"]]]


def test_runs_of_one_variant_with_other_configs_stand_apart(in_browser):
    groups = groups_of(in_browser, run_of("a", "one"), run_of("b", "one", lr=0.2), run_of("c", "one", seed=1))
    assert groups == [["grpo · lr 0.1", ["a", "c"]], ["grpo · lr 0.2", ["b"]]]


def test_the_experiments_tell_groups_of_one_variant_apart(in_browser):
    groups = groups_of(in_browser, run_of("a", "one"), run_of("b", "two", lr=0.2))
    assert groups == [["grpo · one", ["a"]], ["grpo · two", ["b"]]]


def test_without_configs_their_hashes_tell_groups_apart(in_browser):
    runs = [run_of("a", "one"), run_of("b", "one", lr=0.25)]
    groups = groups_of(in_browser, *({**run, "config": None} for run in runs))
    assert groups == [["grpo · 0.1000", ["a"]], ["grpo · 0.2500", ["b"]]]


def test_a_fork_stands_apart_from_the_run_that_it_left(in_browser):
    groups = groups_of(in_browser, run_of("a", "one"), run_of("b", "one", step=5), run_of("c", "one", step=5))
    assert groups == [["grpo · from the start", ["a"]], ["grpo · fork at 5", ["b", "c"]]]


def test_forks_and_configs_tell_groups_apart_together(in_browser):
    runs = [run_of("a", "one"), run_of("b", "one", step=5), run_of("c", "one", lr=0.2)]
    names = [name for name, _ in groups_of(in_browser, *runs)]
    starts = ["lr 0.1 · from the start", "lr 0.1 · fork at 5", "lr 0.2 · from the start"]
    assert names == [f"grpo · {text}" for text in starts]
    names = [name for name, _ in groups_of(in_browser, *({**run, "config": None} for run in runs))]
    assert names == [f"grpo · {text.replace('lr ', '').replace(' ·', '000 ·')}" for text in starts]


def test_the_page_and_the_service_put_the_same_runs_into_a_mean(in_browser):
    kinds = product(["one", "two"], [0.1, 0.2], [None, 5, 8], range(2))
    runs = [
        run_of(f"{place:02}", experiment, lr, seed, step)
        for place, (experiment, lr, step, seed) in enumerate(kinds)
    ]
    known = [SimpleNamespace(**run, parent_run="p", name=run["id"]) for run in runs]
    found = groups_of_service(known, {}, ["variant"])
    assert [members for _, members in groups_of(in_browser, *runs)] == list(found.values())


def test_what_can_be_drawn_is_shared_fairly_among_groups(in_browser):
    groups = [{"runs": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}, {"runs": [{"id": "x"}]}]
    assert in_browser("lib/runs/groups.js", "(g, groups) => g.fairShare(groups, 3)", groups) == [
        "a",
        "x",
        "b",
    ]


@pytest.mark.parametrize(("seeds", "band"), [([3, 3], "ci95"), ([3, 2], "minmax"), ([1], "minmax")])
def test_an_interval_is_drawn_by_itself_only_where_there_are_three_seeds(in_browser, seeds, band):
    groups = [{"runs": [{}] * n} for n in seeds]
    assert in_browser("lib/runs/groups.js", "(g, groups) => g.bandOf('auto', groups)", groups) == band
    assert in_browser("lib/runs/groups.js", "(g, groups) => g.bandOf('std', groups)", groups) == "std"


OFFERS = [
    {
        "name": "grpo",
        "title": "GRPO",
        "family": "relatives",
        "note": "Group means. As Dr. GRPO does not. End.",
    },
    {"name": "dr_grpo", "title": "Dr. GRPO", "family": "relatives", "note": "No deviation."},
    {"name": "cispo", "title": "CISPO", "family": "others", "note": "Caps what GRPO clips."},
]


@pytest.mark.parametrize(
    ("typed", "found"),
    [("", ["grpo", "dr_grpo", "cispo"]), ("GRPO dr", ["dr_grpo", "grpo"]), ("caps", ["cispo"]), ("x", [])],
)
def test_offers_are_found_by_name_first_and_then_by_what_is_said_of_them(in_browser, typed, found):
    source = "(o, [offers, typed]) => o.matching(offers, typed).map(({ name }) => name)"
    assert in_browser("lib/launch/offers.js", source, [OFFERS, typed]) == found


def test_offers_stand_under_their_families_and_a_note_begins_with_its_first_sentence(in_browser):
    source = "(o, offers) => o.byFamily(offers).map(([family, members]) => [family, members.length])"
    assert in_browser("lib/launch/offers.js", source, OFFERS) == [["relatives", 2], ["others", 1]]
    said = in_browser("lib/launch/offers.js", "(o, note) => o.sentences(note)", OFFERS[0]["note"])
    assert said == ["Group means.", "As Dr. GRPO does not.", "End."]


def test_turns_and_errors_of_a_run_are_marked_once_a_step(in_browser):
    def event(step, kind="alert", level="info", message="m"):
        return {"step": step, "kind": kind, "level": level, "message": message}

    events = [
        event(9, level="error", message="skipped"),
        event(4, "reference", message="replaced"),
        event(4, "checkpoint", message="continued"),
        event(4, "checkpoint", message="continued"),
        event(5, "data", "warning"),
        event(None, "reference"),
    ]
    marks = in_browser("lib/runs/marks.js", "(m, events) => m.marksOf(events)", events)
    assert marks == [{"step": 4, "text": "replaced; continued"}, {"step": 9, "text": "skipped"}]


def reward(**changes):
    return {"rewards": [{"name": "correctness", "weight": 1.0, "map": "0/1", **changes}], "seed": 0}


def test_a_field_inside_of_a_list_that_differs_is_shown(in_browser):
    groups = [{"name": "grpo", "configs": [reward()]}, {"name": "dapo", "configs": [reward(map="-1/1")]}]
    rows = in_browser(CONFIG, "(c, groups) => c.groupDifferences(groups)", groups)
    assert rows == [{"path": "rewards.correctness.map", "cells": [["0/1"], ["-1/1"]]}]


@pytest.mark.parametrize(
    ("one", "other"), [({}, None), ([], {}), ("", None), (None, 0), ([{"name": "a"}], []), ([1], ["a"])]
)
def test_no_field_that_differs_looks_the_same(in_browser, one, other):
    groups = [{"name": "a", "configs": [{"f": one}]}, {"name": "b", "configs": [{"f": other}]}]
    texts = in_browser(
        CONFIG,
        "(c, groups) => c.groupDifferences(groups)"
        ".map(({ cells }) => cells.map(([value]) => c.formatField(value)))",
        groups,
    )
    assert texts
    assert all(left != right for left, right in texts)


ABOUT = [
    ("reward/mean", {"name": "reward/mean", "scale": ["rewards", "length.penalty"]}),
    ("reward/correctness/mean", {"name": "reward/<term>/mean", "scale": ["rewards"]}),
    ("eval/accuracy", {"name": "eval/accuracy", "scale": []}),
]


@pytest.mark.parametrize(
    ("change", "apart"),
    [
        ({"map": "-1/1"}, [True, True, False]),
        ({"weight": 2.0}, [True, False, False]),
        ({"timeout_seconds": 9}, [False, False, False]),
    ],
)
def test_a_metric_is_comparable_where_its_scale_is_the_same(in_browser, change, apart):
    found = [
        bool(
            in_browser(
                "lib/runs/comparable.js",
                "(c, [metric, about, configs]) => c.scaleDifferences(metric, about, configs)",
                [metric, about, [reward(), reward(**change)]],
            )
        )
        for metric, about in ABOUT
    ]
    assert found == apart


@pytest.mark.parametrize(("scored", "right"), [(1.0, True), (0.0, False), (None, None), ("NaN", None)])
def test_a_completion_without_a_correctness_score_is_neither_right_nor_wrong(in_browser, scored, right):
    completion = {"correct": None, "flags": [], "rewards": {"correctness": scored}}
    assert in_browser("lib/rollouts.js", "(r, completion) => r.isRight(completion)", completion) is right


@pytest.mark.parametrize(
    ("origins", "apart"), [(("", "trl"), True), (("trl", "verl"), True), (("trl", "trl"), False)]
)
def test_rewards_of_runs_of_two_origins_are_not_comparable(in_browser, origins, apart):
    runs = [{"origin": origin, "config": {}} for origin in origins]
    ask = "(c, [metric, about, runs]) => c.scalesApart(metric, about, runs)"
    found = [
        bool(in_browser("lib/runs/comparable.js", ask, [metric, about, runs])) for metric, about in ABOUT
    ]
    assert found == [apart and bool(about.get("scale")) for _, about in ABOUT]
