"""The class of presets, and settings that several presets share."""

from typing import Any, Literal, get_origin

from backend.config import knobs
from backend.config.base import Frozen
from backend.config.filters import AccuracyFilter, DynamicRefill, FiltersConfig
from backend.config.length import LengthConfig, SoftOverlong


class Preset(Frozen):
    """The settings of a published method."""

    title: str
    """Common name of the method."""
    source: str
    """Publication of the method."""
    note: str
    """Description of the method, with the metrics to watch and the sizes in its paper."""
    changes: dict[str, Any]
    """Fields of RunConfig that differ from the defaults."""


def preset(title: str, source: str, note: str, **sections: Any) -> Preset:
    """Return a preset from sections of RunConfig. Only explicitly set fields become changes."""
    changes = {name: _dump_set_fields(section) for name, section in sections.items()}
    return Preset(title=title, source=source, note=" ".join(note.split()), changes=changes)


def _dump_set_fields(value: Any) -> Any:
    """Return the explicitly set fields, with the `type` or `name` that selects each union member."""
    if isinstance(value, tuple):
        return [_dump_set_fields(element) for element in value]
    if not isinstance(value, Frozen):
        return value
    fields = type(value).model_fields
    tags = [
        name for name in ("type", "name") if name in fields and get_origin(fields[name].annotation) is Literal
    ]
    tag = {name: getattr(value, name) for name in tags}
    return tag | {
        name: _dump_set_fields(getattr(value, name)) for name in sorted(value.model_fields_set, key=str)
    }


NO_SCALE = knobs.GroupMean(scale=knobs.NoScale())
"""Reward minus the group's mean, in units of reward."""

DYNAMIC_SAMPLING = FiltersConfig(
    groups=AccuracyFilter(low=0.0, high=1.0), refill=DynamicRefill(max_batches=10)
)
"""DAPO's dynamic sampling of prompts that are neither always nor never solved."""

SOFT_OVERLONG = LengthConfig(penalty=SoftOverlong())
"""DAPO's penalty near the maximum completion length."""
