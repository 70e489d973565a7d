"""Pure parts of the launch form, held against the server's own rules."""

import json
import subprocess

import pytest
import yaml

from backend.config.merge import merge, resolve
from tests.browser.catalog import CATALOG, written

SCHEMA = "lib/launch/schema.js"
LAYERS = "lib/launch/layers.js"
FORM = "lib/launch/form.js"
YAML = "lib/text/yaml.js"


def test_the_fields_of_a_section_have_kinds(in_browser):
    function = (
        "(s, schema) => Object.fromEntries(s.fieldsOf(schema, schema, {}, '').map((f) => [f.path, f.kind]))"
    )
    kinds = in_browser(SCHEMA, function, written(CATALOG["schema"]))
    assert kinds["steps"] == "number"
    assert kinds["policy"] == "section"
    assert kinds["problems"] == "list"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("objective.surrogate", "union"),
        ("objective.surrogate.eps_high", "number"),
        ("objective.advantage.scale.ddof", "choice"),
        ("sampling.temperature", "number"),
        ("optimizer.betas", "tuple"),
        ("rewards.0.weight", "number"),
        ("filters.upweight", "boolean"),
        ("problems.0.operands", "number"),
        ("objective.surrogate.no_such_field", None),
    ],
)
def test_a_field_is_found_by_its_path(in_browser, path, kind):
    function = "(s, [schema, path, config]) => s.fieldAt(schema, path, config)?.kind ?? null"
    assert (
        in_browser(SCHEMA, function, [written(CATALOG["schema"]), path, written(CATALOG["defaults"])]) == kind
    )


@pytest.mark.parametrize(
    ("node", "typed", "value"),
    [
        ({"type": "integer"}, "12", 12),
        ({"type": "number"}, "3e-4", 3e-4),
        ({"type": "number"}, "much", "much"),
        ({"type": "number"}, "", ""),
        ({"type": "string"}, "12", "12"),
        ({"anyOf": [{"type": "integer"}, {"const": "max_new_tokens"}]}, "64", 64),
        ({"anyOf": [{"type": "integer"}, {"const": "max_new_tokens"}]}, "max_new_tokens", "max_new_tokens"),
        ({"type": "object"}, '{"min_terms": 2}', {"min_terms": 2}),
        ({"oneOf": [{"type": "number"}, {"type": "object"}]}, "0.04", 0.04),
        ({"oneOf": [{"type": "number"}, {"type": "object"}]}, '{"math": 0}', {"math": 0}),
        ({"type": "object"}, '{"min_terms": ', '{"min_terms": '),
        ({"anyOf": [{"type": "number"}, {"$ref": "#/$defs/LengthAdaptive"}]}, '{"alpha": 1}', {"alpha": 1}),
    ],
)
def test_what_is_typed_becomes_a_value_or_stays_for_the_server_to_refuse(in_browser, node, typed, value):
    assert in_browser(SCHEMA, "(s, [node, typed]) => s.readTyped(node, typed)", [node, typed]) == value


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"minimum": 0, "maximum": 1}, "0 to 1"),
        ({"exclusiveMinimum": 0}, "above 0"),
        ({"minimum": 1}, "at least 1"),
        ({"minimum": 0, "exclusiveMaximum": 1}, "at least 0, below 1"),
        ({"minimum": 0, "exclusiveMaximum": 2**31}, "at least 0, below 2^31"),
        ({}, ""),
    ],
)
def test_a_range_in_words(in_browser, node, words):
    assert in_browser(SCHEMA, "(s, node) => s.rangeText(node)", node) == words


def test_setting_a_field_writes_the_tag_of_its_union(in_browser):
    function = "(o, [own, path, value, whole]) => o.setAt(own, path, value, whole)"
    changed = in_browser(
        LAYERS, function, [{}, "objective.surrogate.eps_high", 0.28, written(CATALOG["defaults"])]
    )
    assert changed == {"objective": {"surrogate": {"type": "ppo_clip", "eps_high": 0.28}}}


def test_a_field_taken_back_leaves_nothing_behind(in_browser):
    function = "(o, [own, path, below]) => o.unsetAt(own, path, below)"
    own = {"steps": 5, "objective": {"surrogate": {"type": "ppo_clip", "eps_high": 0.28}}}
    left = in_browser(LAYERS, function, [own, "objective.surrogate.eps_high", written(CATALOG["defaults"])])
    assert left == {"steps": 5}


def test_a_list_is_written_whole(in_browser):
    function = "(o, [own, path, value, whole]) => o.setAt(own, path, value, whole)"
    whole = {"rewards": [{"name": "correctness", "weight": 1}, {"name": "think_format", "weight": 0.2}]}
    assert in_browser(LAYERS, function, [{}, "rewards.1.weight", 0.5, whole]) == {
        "rewards": [{"name": "correctness", "weight": 1}, {"name": "think_format", "weight": 0.5}]
    }


def test_the_least_changes_give_the_other_config_again(in_browser):
    one = written(resolve({}, {"preset": "grpo"}, 0).model_dump(mode="json"))
    other = written(resolve({}, {"preset": "gspo"}, 0).model_dump(mode="json"))
    changes = in_browser(LAYERS, "(o, [a, b]) => o.changesBetween(a, b)", [one, other])
    assert merge(one, changes) == other
    assert set(changes) == {"preset", "objective", "updates"}


@pytest.mark.parametrize(("step", "steps"), [(25, 40), (40, 80), (50, 90)])
def test_a_fork_of_a_run_that_has_ended_there_trains_as_many_steps_again(in_browser, step, steps):
    made = in_browser(FORM, "(f, step) => f.beyondFork({ steps: 40, seed: 1 }, step)", step)
    assert made == {"steps": steps, "seed": 1}


def test_a_clone_of_a_run_launches_the_same_config(in_browser):
    config = resolve({"steps": 40}, {"preset": "dapo", "optimizer": {"lr": 0.002}}, 3).model_dump(mode="json")
    function = "(f, [catalog, config]) => f.formFromConfig(catalog, config, { variant: 'mine', seed: 3 })"
    form = in_browser(FORM, function, [written(CATALOG), written(config)])
    assert form["seeds"] == "3"
    assert form["base"] == {"steps": 40}
    assert form["variants"] == [{"name": "mine", "preset": "dapo", "optimizer": {"lr": 0.002}}]
    assert resolve(form["base"], form["variants"][0], 3).model_dump(mode="json") == config


def test_a_recipe_becomes_a_variant_that_runs_the_recipe(in_browser):
    recipe = resolve({}, {"preset": "grpo", "optimizer": {"lr": 0.003}, "steps": 60}, 0).model_dump(
        mode="json"
    )
    base = {"steps": 200, "sampling": {"group_size": 4}}
    function = "(f, [catalog, base, recipe]) => f.variantOfRecipe(catalog, base, recipe)"
    variant = in_browser(
        FORM, function, [written(CATALOG), base, {"name": "demo", "config": written(recipe)}]
    )
    assert resolve(base, variant, 0).model_dump(mode="json") == recipe


def test_one_knob_off_changes_one_knob(in_browser):
    grpo = written(resolve({}, {"preset": "grpo"}, 0).model_dump(mode="json"))
    dapo = written(resolve({}, {"preset": "dapo"}, 0).model_dump(mode="json"))
    function = """(f, [plain, full]) => f.oneKnobOff({ name: 'dapo', preset: 'dapo' }, full,
        f.methodDifferences(plain, full).filter(({ path }) => path === 'objective.surrogate.eps_high'))"""
    [variant] = in_browser(FORM, function, [grpo, dapo])
    assert variant["name"] == "dapo − eps_high"
    changed = written(resolve({}, variant, 0).model_dump(mode="json"))
    assert changed["objective"].pop("surrogate")["eps_high"] == 0.2
    dapo["objective"].pop("surrogate")
    assert changed == dapo


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0,1,2", [0, 1, 2]), ("0-3", [0, 1, 2, 3]), ("7 5; 5", [7, 5]), ("2..4,9", [2, 3, 4, 9])],
)
def test_seeds_are_lists_and_ranges(in_browser, text, seeds):
    assert in_browser(FORM, "(f, text) => f.parseSeeds(text)", text) == {"seeds": seeds, "error": ""}


@pytest.mark.parametrize("text", ["", "a", "1.5", "-1", "5-2", "0-100000", "2147483648"])
def test_what_is_no_list_of_seeds_says_so(in_browser, text):
    answer = in_browser(FORM, "(f, text) => f.parseSeeds(text)", text)
    assert answer["seeds"] == []
    assert answer["error"]


def test_the_command_survives_a_shell(in_browser):
    body = {"name": 'it\'s "quoted" $HOME `x` \\', "base": {}, "variants": [], "seeds": [0]}
    command = in_browser(
        FORM, "(f, body) => f.commandOf('http://127.0.0.1:8000', {path: '/experiments', body})", body
    )
    data = command.partition("-d ")[2]
    printed = subprocess.run(
        ["sh", "-c", f"printf %s {data}"], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(printed) == body


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": {"c": [1, 2.5, -3], "d": []}, "e": {}, "f": None, "g": True},
        {"list": [{"name": "x", "inner": {"y": [{"z": "w"}]}}, {"name": "q"}], "plain": [[1, 2], ["a", "b"]]},
        {
            "yes": "no",
            "on": "true",
            "null": "null",
            "0x": "12",
            "empty": "",
            "tilde": "~",
            "date": "2026-11-21",
        },
        {
            "colon": "a: b",
            "hash": "a #b",
            "dash": "- a",
            "quote": "\"'",
            "lines": "a\nb\tc",
            "emoji": "😀 é",
            "nel": "\x85\u2028",
        },
        {"small": 1e-08, "large": 1e22, "exact": 0.1, "int": 1234567890123},
    ],
)
def test_yaml_is_read_back_by_another_reader(in_browser, value):
    assert yaml.safe_load(in_browser(YAML, "(y, value) => y.toYaml(value)", value)) == value


def test_a_whole_config_is_read_back_from_yaml(in_browser):
    config = written(resolve({}, {"preset": "dapo"}, 0).model_dump(mode="json"))
    assert yaml.safe_load(in_browser(YAML, "(y, value) => y.toYaml(value)", config)) == config


def test_json_in_the_address_that_cannot_be_read_is_the_default(in_browser):
    function = "(u, texts) => texts.map((text) => u.json({ a: 1 }).read(text) ?? null)"
    assert in_browser("lib/url_json.js", function, ['{"b":2}', "{", "[]", "null"]) == [
        {"b": 2},
        None,
        None,
        None,
    ]
