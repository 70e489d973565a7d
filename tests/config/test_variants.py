"""Tests that a new variant with missing parts fails with a clear sentence instead of a KeyError."""

import typing
from collections import Counter

import pytest

from backend.base.documented import field_descriptions
from backend.config import knobs
from backend.config.base import Frozen
from backend.config.formula import meanings
from backend.config.objective import Objective
from tests.property.objectives import members

SURROGATE_TYPES = members(knobs.Surrogate)
FIELD_NAMES = list(Objective.model_fields)


@pytest.mark.parametrize("member", SURROGATE_TYPES, ids=lambda member: member.__name__)
def test_a_surrogate_describes_its_effect_and_the_ratios_it_supports(member):
    missing = [name for name in ("ratios", "acts") if not getattr(member, name, None)]
    assert not missing, f"give the class {member.__name__} its class variables {missing}"
    unknown_ratios = set(member.ratios) - set(typing.get_args(knobs.RatioType))
    assert not unknown_ratios, f"{member.__name__}.ratios names {unknown_ratios}, which are no ratios"


@pytest.mark.parametrize("field", FIELD_NAMES)
def test_every_member_of_a_knob_describes_itself_and_its_parameters(field):
    for member in members(Objective.model_fields[field].annotation):
        assert member.__doc__ != Frozen.__doc__, f"{member.__name__} needs a docstring: the form shows it"
        undescribed_fields = member.model_fields.keys() - field_descriptions(member).keys() - {"type"}
        assert not undescribed_fields, (
            f"{member.__name__} needs a docstring under each of {undescribed_fields}"
        )


def test_no_formula_symbol_has_two_meanings():
    knob_meanings = [module.MEANINGS for module in vars(meanings).values() if hasattr(module, "MEANINGS")]
    counts = Counter(name for module in (meanings.COMMON, *knob_meanings) for name in module)
    assert [name for name, count in counts.items() if count > 1] == []
