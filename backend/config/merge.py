"""From what a user wrote to the RunConfig that runs.

Merge order: defaults <- profile of the policy <- preset <- `base` fields <- variant fields. Mappings
merge deeply; lists and unions whose `type` differs are replaced whole. A variant's preset replaces the
base's preset, not its fields.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from backend.config.policies import profile_of
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from backend.errors import FieldError, InvalidConfig

Fields = Mapping[str, Any]


def resolve(base: Fields, variant: Fields | None = None, seed: int | None = None) -> RunConfig:
    """The complete config of one run.

    Raises InvalidConfig with one error per field that is unknown, out of range or contradicts another.
    """
    variant = {key: value for key, value in (variant or {}).items() if key != "name"}
    preset = variant.get("preset") or base.get("preset") or ""
    defaults = RunConfig().model_dump(mode="json")  # a part of a union needs no type
    merged = merge(merge(defaults, profile_of(_policy_name(base, variant))), _preset_changes(preset))
    merged = merge(merge(merged, base), variant) | {"preset": preset}
    if seed is not None:
        merged["seed"] = seed
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        raise InvalidConfig(field_errors(error, merged)) from None


def merge(below: Fields, above: Fields) -> dict[str, Any]:
    """`above` laid over `below`, deeply."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(under, Mapping) and isinstance(value, Mapping) and _same_member(under, value):
            merged[key] = merge(under, value)
        else:
            merged[key] = value
    return merged


def _same_member(under: Fields, value: Fields) -> bool:
    """Whether two parts of a union are of one `type`; a part without one belongs to whatever is below it."""
    return bool(value.get("type", under.get("type")) == under.get("type"))


def config_hash(config: RunConfig) -> str:
    """SHA-256 of the config without its seed: equal for all seeds of one variant."""
    content = json.dumps(config.model_dump(mode="json", exclude={"seed"}), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def field_errors(error: ValidationError, written: Any) -> list[FieldError]:
    """Pydantic's errors about `written` as (dotted path, message with the value that was met)."""
    return [
        found
        for item in error.errors(include_url=False)
        for found in _field_errors(tuple(_without_tags(item["loc"], written)), dict(item))
    ]


def _without_tags(loc: tuple[Any, ...], written: Any) -> Iterator[str]:
    """The path as the user wrote it: pydantic puts the tag of each union member into it."""
    for part in loc:
        if (
            isinstance(written, Mapping)
            and part not in written
            and part in (written.get("type"), written.get("name"))
        ):
            continue
        yield str(part)
        if isinstance(written, Mapping):
            written = written.get(part)
        elif isinstance(written, (list, tuple)) and isinstance(part, int) and part < len(written):
            written = written[part]
        else:
            written = None


def _field_errors(loc: tuple[str, ...], item: dict[str, Any]) -> list[FieldError]:
    if item["type"] == "combination":
        return [FieldError(".".join((*loc, path)), reason) for path, reason in item["ctx"]["errors"]]
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return [FieldError(".".join(loc), "there is no such field")]
    if item["type"] == "missing":
        return [FieldError(".".join(loc), "is required")]
    return [FieldError(".".join(loc), f"{_lower_first(message)}, got {_shown(item.get('input'))}")]


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _policy_name(base: Fields, variant: Fields) -> str:
    for fields in (variant, base):
        policy = fields.get("policy")
        if isinstance(policy, Mapping) and isinstance(policy.get("name"), str):
            return str(policy["name"])
    return "tiny"


def _preset_changes(name: Any) -> Fields:
    if not name:
        return {}
    if not isinstance(name, str) or name not in PRESETS:
        known = ", ".join(sorted(PRESETS))
        raise InvalidConfig([FieldError("preset", f"there is no preset {_shown(name)}; there are {known}")])
    return PRESETS[name].changes
