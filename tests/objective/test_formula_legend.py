"""Tests that the legend of a formula explains exactly its symbols in plain words."""

import itertools
import re
import typing

import pytest

from backend.config import knobs
from backend.config.formula.legend import CONFIG_MEANINGS, ELEMENTARY_FUNCTIONS
from backend.config.formula.loss import formula
from backend.config.formula.meanings import MEANINGS
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from backend.config.run import RunConfig

KNOB_UNIONS = {
    "advantage": knobs.Advantage,
    "ratio": knobs.Ratio,
    "correction": knobs.Correction,
    "off_policy_mask": knobs.OffPolicyMask,
    "router": knobs.Router,
    "kl": knobs.Kl,
    "reference": knobs.Reference,
    "aggregation": knobs.Aggregation,
    "entropy": knobs.Entropy,
    "nll": knobs.Nll,
    "token_weight": knobs.TokenWeight,
}
REWARD_TERMS = [
    {"name": "correctness", "map": "-1/1"},
    {"name": "think_format", "required": True},
    {"name": "boxed_format"},
    {"name": "language", "only_when_correct": True},
    {"name": "length"},
]
SUMMED_KL = {"kl": knobs.KlK3(aggregation="seq_sum", to="reference")}


def members(union):
    return typing.get_args(typing.get_args(union)[0])


def objectives():
    """Yield every member of every knob, every scale per baseline, and every surrogate per ratio."""
    for field, union in KNOB_UNIONS.items():
        for member in members(union):
            yield {field: member()} | (SUMMED_KL if field == "reference" else {})
    for baseline, scale in itertools.product(members(knobs.RewardAdvantage), members(knobs.Scale)):
        yield {"advantage": lambda b=baseline, s=scale: b(scale=s())}
    for ratio, surrogate in itertools.product(members(knobs.Ratio), members(knobs.Surrogate)):
        yield {"ratio": ratio(), "surrogate": lambda s=surrogate: s()}
    for controller in members(knobs.Controller):
        yield {"kl": knobs.KlK3(controller=controller())}
    yield {"kl": knobs.KlK3(coef={"math": 0.1})}
    yield {"kl": knobs.KlK1(place="reward"), "advantage": knobs.Critic(lambda_policy=knobs.LengthAdaptive())}
    yield {"advantage": knobs.GroupMean(multi_reward="gdpo", group_sum="sqrt")}
    yield {"advantage": knobs.GroupMean(scale=knobs.BatchStd(of="centred_rewards", ddof=0))}
    yield {"surrogate": knobs.WeightCap(token_mask=knobs.PpoTokenMask())}
    yield {"off_policy_mask": knobs.Opsm(), "token_weight": knobs.AdvantageReweighting()}
    yield {"correction": knobs.SequenceTis(level="geo")}


def configs():
    """Yield every preset, every objective, and every kind of reward."""
    yield from (resolve({"preset": preset}) for preset in PRESETS)
    for fields in objectives():
        try:
            values = {
                name: field_value() if callable(field_value) else field_value
                for name, field_value in fields.items()
            }
            yield RunConfig().model_copy(update={"objective": Objective(**values)})
        except ValueError:
            continue  # a combination that is refused
    for truncated, advantage in itertools.product(("keep", "mask", "scale_reward"), ("sum", "gdpo")):
        yield resolve(
            {
                "rewards": REWARD_TERMS,
                "length": {"truncated": {"type": truncated}, "penalty": {"type": "soft_overlong"}},
                "objective": {"advantage": {"type": "group_mean", "multi_reward": advantage}},
            }
        )
    yield resolve({"preset": "ppo", "optimizer": {"weight_decay": 0.1}})


def test_every_symbol_has_a_meaning_and_every_meaning_a_symbol():
    terms = {"correctness", "think_format", "boxed_format", "language", "length"}
    used_symbols = {entry["symbol"] for config in configs() for entry in formula(config)["legend"]}
    explained_symbols = MEANINGS.keys() | CONFIG_MEANINGS.keys()
    assert used_symbols - terms == explained_symbols
    assert not explained_symbols & ELEMENTARY_FUNCTIONS
    assert not MEANINGS.keys() & CONFIG_MEANINGS.keys()


SINGLE_LETTERS_OF_WORDS = {"a", "s", "k"}
"""Letters that are words: the article, the end of "prompt's", and k below a sum whose sign has an entry."""


def test_every_letter_of_a_formula_has_a_meaning():
    """The letters are read from the text, since a plain word would not be in the legend."""
    for config in configs():
        explanation = formula(config)
        entries = {entry["symbol"] for entry in explanation["legend"]} | ELEMENTARY_FUNCTIONS
        text = "\n".join(explanation["text"].splitlines()[: -len(explanation["notes"]) or None])
        text = re.sub("[²ᵏᵐ]", " ", text)
        for symbol in sorted(entries, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(symbol)}(?![\w′])", " ", text)
        words = re.findall(r"[^\W\d]+", re.sub(r"\d[\d.]*(e−\d+)?", " ", text))
        odd_words = {word for word in words if len(word) == 1 or not re.fullmatch("[a-z]+", word)}
        assert odd_words <= SINGLE_LETTERS_OF_WORDS


def find_meaning(symbol, **written):
    legend = formula(resolve(written))["legend"]
    return next(entry["meaning"] for entry in legend if entry["symbol"] == symbol)


@pytest.mark.parametrize("name", ["A", "L", "length.bonus"])
def test_a_plugin_named_like_a_symbol_is_distinguished_from_it(name):
    reward_config = {"rewards": [{"name": "plugin", "entry_point": name}]}
    assert f"Rᵢ = plugin {name}" in formula(resolve(reward_config))["text"].splitlines()
    assert (
        find_meaning(f"plugin {name}", **reward_config)
        == f"reward term: the number that the plugin {name} gives"
    )
