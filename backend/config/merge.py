"""Merge defaults, profile, preset and the user's changes into the RunConfig of a run.

Merge order: defaults <- profile of the policy <- preset <- `base` fields <- variant fields. Mappings are
merged recursively. Lists, and unions whose `type` differs, are replaced completely. A variant's preset
replaces the preset of the base, but not its fields. A preset's number of minibatches is limited to the
prompts per step.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError

from backend.base.errors import FieldError, InvalidConfig
from backend.base.wording import plain_message
from backend.config.policies import make_profile
from backend.config.presets import PRESETS
from backend.config.rewards import CorrectnessReward
from backend.config.run import RunConfig

Fields = Mapping[str, Any]


def resolve(
    base: Fields,
    variant: Fields | None = None,
    seed: int | None = None,
    *,
    profile: Callable[[str], Fields] = make_profile,
) -> RunConfig:
    """Return the complete config of a run. `profile` is a function that returns the profile of a policy.

    Raises InvalidConfig with an error for each field that is unknown, out of range or contradicts another
    one.
    """
    merged = merged_fields(base, variant or {}, profile=profile)
    if seed is not None:
        merged["seed"] = seed
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        raise InvalidConfig(field_errors(error, merged)) from None


def usual_config(config: RunConfig) -> RunConfig:
    """Return the config that the preset and the policy of a run have without the user's changes.

    A config does not contain the size of its policy, but only small policies start in float32.
    """
    base = {"preset": config.preset, "policy": {"name": config.policy.name}}
    profile = partial(make_profile, is_small=config.policy.dtype == "float32")
    try:
        return RunConfig.model_validate(merged_fields(base, {}, profile=profile))
    except InvalidConfig:  # a preset of another version
        return RunConfig.model_validate(merged_fields(base | {"preset": ""}, {}, profile=profile))


def merged_fields(
    base: Fields, variant: Fields, *, profile: Callable[[str], Fields] = make_profile
) -> dict[str, Any]:
    """Return the merged fields of a run before validation.

    `frontend/src/lib/launch/merge.js` does the same in the form. Raises InvalidConfig for an unknown preset.
    """
    variant = {key: value for key, value in variant.items() if key != "name"}
    preset = variant.get("preset") or base.get("preset") or ""
    defaults = RunConfig().model_dump(mode="json")  # lets a change of a union member omit the type
    merged = merge(merge(defaults, profile(_policy_name(base, variant))), _preset_changes(preset))
    merged = _fitting_correction(
        merge(merge(merged, base), variant) | {"preset": preset}, preset, (base, variant)
    )
    return _correct_config(merged, (base, variant))


def _fitting_correction(
    merged_config: dict[str, Any], preset: str, given_fields: tuple[Fields, ...]
) -> dict[str, Any]:
    """Return the fields with the minibatches of a preset limited to the prompts of a step.

    A number of minibatches that the user has set does not change.
    """
    preset_minibatches = _preset_changes(preset).get("updates", {}).get("minibatches")
    prompts = (
        merged_config["sampling"].get("prompts_per_step")
        if isinstance(merged_config["sampling"], Mapping)
        else None
    )
    updates = [fields.get("updates", {}) for fields in given_fields]
    is_chosen = any(
        not isinstance(fields_of_updates, Mapping) or "minibatches" in fields_of_updates
        for fields_of_updates in updates
    )
    if (
        preset_minibatches is None
        or is_chosen
        or not isinstance(prompts, int)
        or not 0 < prompts < preset_minibatches
    ):
        return merged_config
    return merge(merged_config, {"updates": {"minibatches": prompts}})


def _correct_config(merged_config: dict[str, Any], given_fields: tuple[Fields, ...]) -> dict[str, Any]:
    """Return the fields with the correction token_tis if sampling is off-policy and nothing corrects for it.

    A correction that the user has set, including `none`, does not change.
    """
    sampling, objective = merged_config["sampling"], merged_config["objective"]
    objectives = [fields.get("objective", {}) for fields in given_fields]
    is_chosen = any(
        not isinstance(fields_of_objective, Mapping) or "correction" in fields_of_objective
        for fields_of_objective in objectives
    )
    if is_chosen or not isinstance(sampling, Mapping) or not isinstance(objective, Mapping):
        return merged_config
    ratio, correction = objective.get("ratio"), objective.get("correction")
    is_none = isinstance(correction, Mapping) and correction.get("type") == "none"
    has_sampler = isinstance(ratio, Mapping) and ratio.get("old") == "sampler"
    if not is_none or has_sampler or not _is_off_policy(sampling):
        return merged_config
    return merge(merged_config, {"objective": {"correction": {"type": "token_tis"}}})


def _is_off_policy(sampling: Fields) -> bool:
    """Return whether unvalidated fields select another engine, or rollouts that run ahead of the updates."""
    engine, ahead = sampling.get("engine"), sampling.get("ahead")
    is_other = isinstance(engine, Mapping) and engine.get("type", "local") != "local"
    return is_other or (type(ahead) is int and ahead > 0)


def merge(base: Fields, override: Fields) -> dict[str, Any]:
    """Merge `override` into a copy of `base` recursively. Values of `override` take precedence."""
    merged = dict(base)
    for key, value in override.items():
        base_value = merged.get(key)
        if isinstance(base_value, Mapping) and isinstance(value, Mapping) and _same_member(base_value, value):
            merged[key] = merge(base_value, value)
        else:
            merged[key] = value
    return merged


def nest_paths(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields with dotted paths to nested fields."""
    config: dict[str, Any] = {}
    for path, value in changes.items():
        *parent_keys, last_key = path.split(".")
        fields: dict[str, Any] = {last_key: value}
        for key in reversed(parent_keys):
            fields = {key: fields}
        config = merge(config, fields)
    return config


def _same_member(under: Fields, value: Fields) -> bool:
    """Return whether two union members have the same `type`. A value without a type matches any member."""
    return bool(value.get("type", under.get("type")) == under.get("type"))


def config_hash(config: RunConfig) -> str:
    """Return the SHA-256 of the config without its seed, which is equal for all seeds of a variant.

    The field `environment` is left out if there is none, so that hashes of old versions stay valid.
    """
    left_out = {"seed"} | ({"environment"} if config.environment.type == "none" else set())
    content = json.dumps(config.model_dump(mode="json", exclude=left_out), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def grading_hash(config: RunConfig) -> str:
    """Return the SHA-256 of the problems and graders. Equal hashes mean equal grading of equal answers."""
    graders = [
        term.model_dump(mode="json", exclude={"weight", "map"})
        for term in config.rewards
        if isinstance(term, CorrectnessReward)
    ]
    problems = [source.model_dump(mode="json", exclude={"weight"}) for source in config.problems]
    content = json.dumps({"problems": problems, "graders": graders}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def field_errors(error: ValidationError, document: Any) -> list[FieldError]:
    """Convert pydantic's errors about `document` to dotted paths and messages with the invalid value."""
    items = error.errors(include_url=False)
    locations = [item["loc"] for item in items]
    return [
        field_error
        for item in items
        if not (item["type"] == "too_short" and _is_above(item["loc"], locations))
        for field_error in _field_errors(tuple(_strip_tags(item["loc"], document)), dict(item))
    ]


def _is_above(loc: tuple[Any, ...], error_locs: list[tuple[Any, ...]]) -> bool:
    """Return whether an item of the list at `loc` has an error, because
    pydantic then counts it as missing.
    """
    return any(len(other_loc) > len(loc) and other_loc[: len(loc)] == loc for other_loc in error_locs)


def _strip_tags(loc: tuple[Any, ...], document: Any) -> Iterator[str]:
    """Yield the segments of the user's path, without the tags of union members that pydantic inserts."""
    for key in loc:
        if _is_tag(key, document):
            continue
        if isinstance(document, (str, int, float)):
            return  # the branch of a union such as int | "max_new_tokens"
        yield str(key)
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, (list, tuple)) and isinstance(key, int) and key < len(document):
            document = document[key]
        else:
            document = None


MESSAGE_BY_ERROR_TYPE = {
    "tuple_type": "expected a list",
    "model_type": "expected an object with fields",
    "model_attributes_type": "expected an object with fields",
    "dict_type": "expected an object with fields",
}
"""Messages for error types that pydantic describes with Python terms."""


def _is_tag(key: Any, document: Any) -> bool:
    """Return whether a segment of a path is the tag of a union member and not a field."""
    if not isinstance(document, Mapping):
        return isinstance(document, (str, int, float))  # a number or text has no parts
    kinds = (document.get("type"), document.get("name"), "by_domain")
    return key not in document and key in kinds


def _field_errors(loc: tuple[str, ...], item: dict[str, Any]) -> list[FieldError]:
    path, kind, context = ".".join(loc), item["type"], item.get("ctx", {})
    if kind == "combination":
        return [FieldError(".".join((*loc, subpath)), reason) for subpath, reason in context["errors"]]
    if kind == "extra_forbidden":
        return [FieldError(path, "there is no such field")]
    if kind == "missing":
        return [FieldError(path, "is required")]
    if kind == "union_tag_not_found":
        return [FieldError(f"{path}.{context['discriminator'].strip(chr(39))}", "is required")]
    message = MESSAGE_BY_ERROR_TYPE.get(kind) or plain_message(item["msg"])
    if kind == "too_short":
        message = f"expected at least {context['min_length']}"
    return [FieldError(path, f"{message}, got {_excerpt(item.get('input'))}")]


def _excerpt(value: Any) -> str:
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
        preset_names = ", ".join(sorted(PRESETS))
        raise InvalidConfig(
            [FieldError("preset", f"there is no preset {_excerpt(name)}; there are {preset_names}")]
        )
    return PRESETS[name].changes
