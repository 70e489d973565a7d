"""What a new variant has to bring is asked for in a sentence, never by a KeyError somewhere else."""

import importlib
import typing
from collections import Counter

import pytest

from backend.base.documented import descriptions_of
from backend.config import knobs, rewards
from backend.config.base import Frozen
from backend.config.formula import meanings
from backend.config.formula.notation import block_of
from backend.config.objective import Objective
from tests.property.objectives import members

SURROGATES = members(knobs.Surrogate)
FIELDS = list(Objective.model_fields)


@pytest.mark.parametrize("member", SURROGATES, ids=lambda member: member.__name__)
def test_a_surrogate_says_which_ratios_it_is_defined_for_and_what_it_does(member):
    missing = [name for name in ("ratios", "acts") if not getattr(member, name, None)]
    assert not missing, f"give the class {member.__name__} its class variables {missing}"
    unknown = set(member.ratios) - set(typing.get_args(knobs.RatioType))
    assert not unknown, f"{member.__name__}.ratios names {unknown}, which are no ratios"


def test_the_types_of_ratios_are_those_of_the_union():
    types = {member.model_fields["type"].default for member in members(knobs.Ratio)}
    assert types == set(typing.get_args(knobs.RatioType))


@pytest.mark.parametrize("term", rewards.TERMS, ids=lambda term: term.__name__)
def test_a_reward_term_has_a_title_and_a_meaning(term):
    missing = [name for name in ("title", "meaning") if not getattr(term, name, None)]
    assert not missing, f"give the class {term.__name__} {missing}"


@pytest.mark.parametrize("field", FIELDS)
def test_every_member_of_a_knob_is_offered_by_the_package(field):
    for member in members(Objective.model_fields[field].annotation):
        module = importlib.import_module(member.__module__)
        assert hasattr(knobs, member.__name__), f"add {member.__name__} to __all__ of {module.__name__}"


@pytest.mark.parametrize("field", FIELDS)
def test_every_member_of_a_knob_explains_itself_and_its_parameters(field):
    for member in members(Objective.model_fields[field].annotation):
        assert member.__doc__ != Frozen.__doc__, f"{member.__name__} needs a docstring: the form shows it"
        silent = member.model_fields.keys() - descriptions_of(member).keys() - {"type"}
        assert not silent, f"{member.__name__} needs a docstring under each of {silent}"


def test_no_symbol_of_formulas_has_two_meanings():
    parts = [module.MEANINGS for module in vars(meanings).values() if hasattr(module, "MEANINGS")]
    counts = Counter(name for module in (meanings.COMMON, *parts) for name in module)
    assert [name for name, count in counts.items() if count > 1] == []


def test_a_symbol_without_a_meaning_is_named():
    with pytest.raises(LookupError, match=r"Ω stands in a formula without a meaning: add it to MEANINGS"):
        block_of(["L = Ω"], meanings.MEANINGS)
