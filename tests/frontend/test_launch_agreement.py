"""Tests that the launch form and the service read one schema and merge a user's input equally."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from backend.base.errors import InvalidConfig
from backend.config.merge import merge, merged_fields, resolve
from backend.config.presets import PRESETS
from tests.frontend.catalog import CATALOG, json_config

FORM_MODULE = "lib/launch/form.js"
LAYERS_MODULE = "lib/launch/layers.js"
MERGE_MODULE = "lib/launch/merge.js"
SCHEMA_MODULE = "lib/launch/schema.js"
CASE_COUNT = 1_000
PRESET_NAMES = ["", *PRESETS]
FIELD_LAYERS: list[dict[str, Any]] = [
    *({"policy": {"name": name}} for name in ("tiny", "tiny_moe", "Qwen/Qwen3-0.6B")),
    *({"sampling": {"prompts_per_step": prompts}} for prompts in (-1, 0, 1, 3, 8, 2.5, "many", None)),
    *({"updates": {"minibatches": minibatches}} for minibatches in (1, 2, 5, None)),
    {"steps": 40},
    {"name": "mine"},
    {"sampling": {"group_size": 4}},
    {"sampling": {"engine": {"type": "server"}}},
    {"sampling": {"ahead": 2}},
    {"objective": {"correction": {"type": "none"}}},
    {"objective": {"ratio": {"old": "sampler"}}},
    {"optimizer": {"lr": 0.002, "betas": [0.9, 0.95]}},
    {"problems": [{"name": "sums"}]},
    {"rewards": [{"name": "correctness"}, {"name": "think_format"}]},
    {"stop_rules": []},
    {"objective": {"kl": {"type": "none"}}},
    {"objective": {"kl": {"type": None}}},
    {"objective": {"surrogate": {"eps_high": 0.3}}},
    {"objective": {"surrogate": {"type": "sapo"}}},
    {"no_such_field": {"a": {"b": 1}}},
    {"updates": 3},
]
"""Fields that a base or a variant sets, including wrong ones."""

VARIANT_LAYERS: list[dict[str, Any]] = [{"preset": name} for name in PRESETS] + [
    {"preset": "dapo", "objective": {"surrogate": {"type": "sapo"}}},
    {"preset": "grpo", "objective": {"kl": {"type": "none"}}, "updates": {"minibatches": 4}},
    {"preset": "gspo", "policy": {"name": "Qwen/Qwen3-0.6B"}},
    {"preset": "trpo", "policy": {"name": "Qwen/Qwen3-0.6B"}},
    {"preset": "r1", "policy": {"name": "Qwen/Qwen3-0.6B"}},
    {"preset": "r1", "sampling": {"prompts_per_step": 5}},
    {"preset": "cispo", "sampling": {"prompts_per_step": 5}, "updates": {"minibatches": 2}},
    {"rewards": [{"name": "correctness"}, {"name": "think_format"}], "stop_rules": []},
]
FULL_CONFIGS = """(m, [catalog, layers]) => layers.map(([base, variant]) =>
    m.layOver(catalog, m.mergeBelowVariant(catalog, base, variant), m.dropNames(variant)))"""
"""A JavaScript function that returns the full config of each pair of a base and a variant."""


def resolve_config(base: dict[str, Any], variant: dict[str, Any], seed: int = 0) -> Any:
    """Return the full config that the service would run."""
    return json_config(resolve(base, variant, seed).model_dump(mode="json"))


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
def test_a_field_is_found_by_its_path(in_node, path, kind):
    call = "(s, [{ schema, defaults }, path]) => s.findField(schema, path, defaults)?.kind ?? null"
    assert in_node(SCHEMA_MODULE, call, [json_config(CATALOG), path]) == kind


def test_the_smallest_changes_restore_the_other_config(in_node):
    grpo, gspo = (resolve_config({}, {"preset": preset}) for preset in ("grpo", "gspo"))
    changes = in_node(LAYERS_MODULE, "(o, [grpo, gspo]) => o.findChanges(grpo, gspo)", [grpo, gspo])
    assert merge(grpo, changes) == gspo
    assert set(changes) == {"preset", "objective", "updates"}


def test_a_clone_of_a_run_launches_the_same_config(in_node):
    config = resolve_config({"steps": 40}, {"preset": "dapo", "optimizer": {"lr": 0.002}}, seed=3)
    call = "(f, [catalog, config]) => f.makeForm(catalog, config, { variant: 'mine', seed: 3 })"
    form = in_node(FORM_MODULE, call, [json_config(CATALOG), config])
    assert form["seeds"] == "3"
    assert form["base"] == {"steps": 40}
    assert form["variants"] == [{"name": "mine", "preset": "dapo", "optimizer": {"lr": 0.002}}]
    assert resolve_config(form["base"], form["variants"][0], seed=3) == config


def test_a_recipe_becomes_a_variant_that_runs_the_recipe(in_node):
    config = resolve_config({}, {"preset": "grpo", "optimizer": {"lr": 0.003}, "steps": 60})
    base = {"steps": 200, "sampling": {"group_size": 4}}
    call = "(f, [catalog, base, config]) => f.makeRecipeVariant(catalog, base, { name: 'demo', config })"
    assert resolve_config(base, in_node(FORM_MODULE, call, [json_config(CATALOG), base, config])) == config


@pytest.mark.parametrize(
    "base", [{}, {"steps": 40, "sampling": {"group_size": 4}}], ids=["plain", "with base"]
)
def test_the_form_shows_the_config_that_the_server_would_run(in_node, base):
    configs = in_node(
        MERGE_MODULE,
        FULL_CONFIGS,
        [json_config(CATALOG), [(base, json_config(variant)) for variant in VARIANT_LAYERS]],
    )
    for variant, config in zip(VARIANT_LAYERS, configs, strict=True):
        assert config == resolve_config(base, variant), variant


def random_layer(random_: random.Random) -> dict[str, Any]:
    """Return what a base or a variant may contain: single fields, parts of presets, perhaps a preset."""
    layer: dict[str, Any] = {}
    for fields in random_.sample([*FIELD_LAYERS, *parts_of_presets()], random_.randint(0, 4)):
        layer = merge(layer, fields)
    return layer | ({"preset": random_.choice(PRESET_NAMES)} if random_.random() < 0.7 else {})


def parts_of_presets() -> Iterator[dict[str, Any]]:
    """Yield each section and each part of an objective that a preset sets."""
    for preset in PRESETS.values():
        for section, changes in preset.changes.items():
            inner_changes = changes.items() if section == "objective" else ()
            yield from ({section: {key: setting}} for key, setting in inner_changes)
            yield {section: changes}


def test_form_and_service_merge_random_layers_equally(in_node):
    rng = random.Random(0)
    layers = [(random_layer(rng), random_layer(rng)) for _ in range(CASE_COUNT)]
    call = """(m, [catalog, layers]) => layers.map(([base, variant]) =>
        m.merge(m.mergeFieldsBelow(catalog, base, variant), m.dropNames(variant)))"""
    answers = in_node(MERGE_MODULE, call, [json_config(CATALOG), json_config(layers)])
    for (base, variant), merged in zip(layers, answers, strict=True):
        assert merged == json_config(merged_fields(base, variant)), (base, variant)


def test_form_shows_the_config_that_would_run_for_random_layers(in_node):
    rng = random.Random(1)
    valid = [layers for _ in range(CASE_COUNT) if runs(layers := (random_layer(rng), random_layer(rng)))]
    assert len(valid) > CASE_COUNT / 10
    shown_configs = in_node(MERGE_MODULE, FULL_CONFIGS, [json_config(CATALOG), json_config(valid)])
    for (base, variant), full_config in zip(valid, shown_configs, strict=True):
        assert full_config == json_config(resolve(base, variant).model_dump(mode="json")), (base, variant)


def runs(layers: tuple[dict[str, Any], dict[str, Any]]) -> bool:
    try:
        resolve(*layers)
    except InvalidConfig:
        return False
    return True
