"""The form and the service merge what a user wrote into the same config."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from backend.config.merge import merge, merged_fields, resolve
from backend.config.presets import PRESETS
from backend.errors import InvalidConfig
from tests.browser.catalog import CATALOG, written

MERGE = "lib/launch/merge.js"
CASES = 1_000
PRESET_NAMES = ["", *PRESETS]
FIELDS: list[dict[str, Any]] = [
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
"""Fields that a base or a variant writes, wrong ones among them."""

VARIANTS = [{"preset": name} for name in PRESETS] + [
    {"preset": "dapo", "objective": {"surrogate": {"type": "sapo"}}},
    {"preset": "grpo", "objective": {"kl": {"type": "none"}}, "updates": {"minibatches": 4}},
    {"preset": "gspo", "policy": {"name": "Qwen/Qwen3-0.6B"}},
    {"preset": "trpo", "policy": {"name": "Qwen/Qwen3-0.6B"}},
    {"preset": "r1", "policy": {"name": "Qwen/Qwen3-0.6B"}},
    {"preset": "r1", "sampling": {"prompts_per_step": 5}},
    {"preset": "cispo", "sampling": {"prompts_per_step": 5}, "updates": {"minibatches": 2}},
    {"rewards": [{"name": "correctness"}, {"name": "think_format"}], "stop_rules": []},
]


def full_config(in_browser, base, variant):
    function = """(m, [catalog, base, variant]) =>
        m.laidOver(catalog, m.belowVariant(catalog, base, variant), m.ownFields(variant))"""
    return in_browser(MERGE, function, [written(CATALOG), base, written(variant)])


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: json.dumps(variant)[:60])
@pytest.mark.parametrize(
    "base", [{}, {"steps": 40, "sampling": {"group_size": 4}}], ids=["plain", "with base"]
)
def test_the_form_shows_the_config_that_the_server_would_run(in_browser, base, variant):
    assert full_config(in_browser, base, variant) == written(
        resolve(base, variant, 0).model_dump(mode="json")
    )


def random_layer(random_: random.Random) -> dict[str, Any]:
    """What a base or a variant may write: fields of its own, parts of presets, perhaps a preset."""
    parts = [*FIELDS, *parts_of_presets()]
    layer: dict[str, Any] = {}
    for part in random_.sample(parts, random_.randint(0, 4)):
        layer = merge(layer, part)
    return layer | ({"preset": random_.choice(PRESET_NAMES)} if random_.random() < 0.7 else {})


def parts_of_presets() -> Iterator[dict[str, Any]]:
    """Each section and each part of an objective that a preset sets."""
    for preset in PRESETS.values():
        for section, changes in preset.changes.items():
            inner = changes.items() if section == "objective" else ()
            yield from ({section: {part: value}} for part, value in inner)
            yield {section: changes}


def test_form_and_service_merge_random_layers_alike(in_browser):
    random_ = random.Random(0)
    layers = [(random_layer(random_), random_layer(random_)) for _ in range(CASES)]
    function = """(m, [catalog, layers]) => layers.map(([base, variant]) =>
        m.merge(m.fieldsBelow(catalog, base, variant), m.ownFields(variant)))"""
    found = in_browser(MERGE, function, [written(CATALOG), written(layers)])
    for (base, variant), merged in zip(layers, found, strict=True):
        assert merged == written(merged_fields(base, variant)), (base, variant)


def test_form_shows_the_config_that_would_run_for_random_layers(in_browser):
    random_ = random.Random(1)
    valid = [layers for _ in range(CASES) if runs(layers := (random_layer(random_), random_layer(random_)))]
    assert len(valid) > CASES / 10
    function = """(m, [catalog, layers]) => layers.map(([base, variant]) =>
        m.laidOver(catalog, m.belowVariant(catalog, base, variant), m.ownFields(variant)))"""
    found = in_browser(MERGE, function, [written(CATALOG), written(valid)])
    for (base, variant), full in zip(valid, found, strict=True):
        assert full == written(resolve(base, variant).model_dump(mode="json")), (base, variant)


def runs(layers: tuple[dict[str, Any], dict[str, Any]]) -> bool:
    try:
        resolve(*layers)
    except InvalidConfig:
        return False
    return True
