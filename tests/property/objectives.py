"""Random objectives, drawn from the unions themselves, so that new members are covered automatically."""

import itertools
import typing
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from backend.config import knobs
from backend.config.base import Frozen
from backend.config.objective import Objective

NUMBER_CHOICES = (0.0, 0.5, 1.0, 3.0)
FIELD_NAMES = tuple(Objective.model_fields)
BASE_OBJECTIVES = (
    Objective(),
    Objective(surrogate=knobs.NoSurrogate(), ratio=knobs.NoRatio()),
    Objective(ratio=knobs.SequenceGeometricRatio(), surrogate=knobs.GeoToken()),
)
"""If the defaults of other fields exclude a member, one of these objectives allows it."""


def members(annotation: Any) -> list[type[Frozen]]:
    """Return the models that a field may hold."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, Frozen) else []
    return [member for argument in typing.get_args(annotation) for member in members(argument)]


def _values(field: FieldInfo) -> st.SearchStrategy[Any]:
    if models := members(field.annotation):
        return st.sampled_from(models).flatmap(built)
    if typing.get_origin(field.annotation) is typing.Literal:
        return st.sampled_from(typing.get_args(field.annotation))
    if isinstance(field.default, float):
        return st.sampled_from((field.default, *NUMBER_CHOICES))
    return st.just(field.default)


@st.composite
def built(draw: st.DrawFn, model: type[Frozen]) -> Frozen:
    """Return a value of a model, with fields in random order that are kept if earlier ones allow it."""
    fields: dict[str, Any] = {}
    for name in draw(st.permutations(list(model.model_fields))):
        candidate = fields | {name: draw(_values(model.model_fields[name]))}
        try:
            model(**candidate)
        except ValidationError:
            continue
        fields = candidate
    return model(**fields)


def any_objective() -> st.SearchStrategy[Any]:
    """Return a strategy for any objective that validation accepts."""
    return built(Objective)


def variants(model: type[Frozen]) -> list[Frozen]:
    """Return the defaults of a model, and each of its choices changed alone, with its numbers unchanged."""
    field_sets: list[dict[str, Any]] = [{}]
    for name, field in model.model_fields.items():
        if typing.get_origin(field.annotation) is typing.Literal:
            field_sets += [{name: choice} for choice in typing.get_args(field.annotation)]
        field_sets += [{name: member()} for member in members(field.annotation)]
    return list(dict.fromkeys(model(**change) for change in field_sets))


def every_pair() -> Iterator[Objective]:
    """Yield each member of each union together with each member of each other union, if that is allowed."""
    unions = {name: members(Objective.model_fields[name].annotation) for name in FIELD_NAMES}
    for first_field, second_field in itertools.combinations(FIELD_NAMES, 2):
        for pair in itertools.product(unions[first_field], unions[second_field]):
            if objective := build_allowed({first_field: pair[0](), second_field: pair[1]()}):
                yield objective


def build_allowed(changes: dict[str, Any]) -> Objective | None:
    """Return an objective with these fields, if validation accepts one."""
    for base in BASE_OBJECTIVES:
        try:
            return base.with_(**changes)
        except ValidationError:
            continue
    return None
