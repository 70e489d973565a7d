"""Expand sweeps: variants and values of knobs become ordinary variants. All functions are pure."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import Field, JsonValue, field_validator

from backend.base.errors import FieldError, InvalidConfig
from backend.config.merge import merged_fields, resolve
from backend.experiments.search_settings import SearchSettings
from backend.experiments.sweep_values import MAX_LISTED, Axis, count_text, parse_axis, value_key
from backend.runs.schemas import MAX_CONFIG_BYTES, MAX_NAME_CHARACTERS, Body

MAX_RUNS = 500
"""Maximum number of runs in one experiment."""
MAX_KNOBS = 16
MAX_TEXT = 4000
MAX_VALUE_TEXT = 40
"""Maximum length of a value in the name of a variant; longer values are represented by their index."""
MAX_BYTES = 4 << 20
"""Maximum size of all variants as JSON, in bytes."""
MAX_PLANNED_CELLS = 16
"""Number of configurations on which the plan of a search is based."""
MAX_TRIES_PER_CELL = 200
"""Number of draws per cell of a random sweep after which no more combinations are assumed to exist."""
UNSWEPT_FIELDS = ("name", "seed")

Fields = Mapping[str, Any]


class SweptKnob(Body):
    """A knob and its values."""

    path: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.\w+)*$", max_length=200)]
    """Dotted path of a field of RunConfig, such as `optimizer.lr` or `preset`."""
    values: str | list[JsonValue]
    """Values as a list or a text: `1e-4, 3e-4`, `1e-5..1e-3 log 5`, `0..1 lin 5`, `2..16 step 2`."""

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if path in UNSWEPT_FIELDS:
            raise ValueError("is not a knob; seeds have a list of their own")
        return path

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: str | list[JsonValue]) -> str | list[JsonValue]:
        limit = MAX_TEXT if isinstance(values, str) else MAX_LISTED
        if not 0 < len(values) <= limit:
            unit = "characters" if isinstance(values, str) else "values"
            raise ValueError(f"has {len(values)} {unit}, expected 1 to {limit}")
        return values


class Sweep(Body):
    """Values of knobs that multiply the variants of an experiment."""

    knobs: Annotated[list[SweptKnob], Field(min_length=1, max_length=MAX_KNOBS)]
    method: Literal["grid", "random", "search"] = "grid"
    """`grid`: every combination of the values; `random`: a random sample of them; `search`: combinations that
    are chosen one after the other, depending on the results so far.
    """
    cells: Annotated[int, Field(ge=1, le=MAX_RUNS)] = 12
    """Number of combinations of a random sweep, or the maximum number that a search tries."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of a random sweep or a search. The same seed draws the same cells, and a larger number of cells
    begins with those of a smaller one.
    """
    search: SearchSettings = SearchSettings()
    """Settings of a sweep with the method `search`."""

    @field_validator("knobs")
    @classmethod
    def _check_knobs(cls, knobs: list[SweptKnob]) -> list[SweptKnob]:
        if len({knob.path for knob in knobs}) < len(knobs):
            raise ValueError("a knob can be swept once")
        if (size := len(orjson.dumps([knob.model_dump() for knob in knobs]))) > MAX_CONFIG_BYTES:
            raise ValueError(f"takes {size:,} bytes as JSON; at most {MAX_CONFIG_BYTES:,} are accepted")
        return knobs


class Cell(NamedTuple):
    """A variant that a sweep has produced."""

    variant: dict[str, Any]
    """Variant with its name and the values of the knobs."""
    variant_name: str
    """Name of the original variant."""
    values: tuple[Any, ...]
    """Value of each knob, in order."""


def expand(base: Fields, variants: Sequence[Fields], sweep: Sweep, *, seeds: int) -> list[Cell]:
    """Return every variant with every combination of values, in the order of the variants and values.

    Raise InvalidConfig for invalid values, and, before any cell is created, if there would be too many runs
    with `seeds` runs per cell.
    """
    axes = [parse_axes(base, variant, sweep) for variant in variants]
    cells = sum(_count_cells(variant_axes, sweep) for variant_axes in axes)
    if (runs := cells * seeds) > MAX_RUNS:
        reason = f"{count_text(cells)} cells with {seeds} seeds each are {count_text(runs)} runs"
        raise InvalidConfig([FieldError("sweep", f"{reason}; one experiment may have {MAX_RUNS}")])
    result: list[Cell] = []
    size = 0
    for variant, variant_axes in zip(variants, axes, strict=True):
        for values in (
            _grid(variant_axes) if sweep.method == "grid" else _sample(variant_axes, sweep.cells, sweep.seed)
        ):
            result.append(make_cell(base, variant, sweep, variant_axes, values))
            size += len(orjson.dumps(result[-1].variant))
            if size > MAX_BYTES:
                raise InvalidConfig(
                    [FieldError("sweep", f"makes variants of more than {MAX_BYTES:,} bytes as JSON")]
                )
    _refuse_duplicates([cell.variant["name"] for cell in result])
    return result


def make_cell(
    base: Fields, variant: Fields, sweep: Sweep, axes: Sequence[Axis], values: Sequence[Any]
) -> Cell:
    """Return the variant with these values of the knobs; raise InvalidConfig if a path does not exist."""
    paths = [knob.path for knob in sweep.knobs]
    name = _variant_name(str(variant["name"]), paths, values, axes)
    new_variant = _change_variant(variant, paths, values, merged_fields(base, variant))
    return Cell(new_variant | {"name": name}, variant["name"], tuple(values))


def draw_cells(base: Fields, variants: Sequence[Fields], sweep: Sweep, *, seeds: int) -> list[Cell]:
    """Return the candidates for the first cell of a search: at most MAX_PLANNED_CELLS cells of a random sweep
    with its seed.

    Raise InvalidConfig for invalid values or an invalid search.
    """
    errors = []
    if len(variants) > 1:
        errors.append(FieldError("variants", "a search changes one variant; to try several, sweep `preset`"))
    if any(knob.path == "steps" for knob in sweep.knobs):
        errors.append(
            FieldError("sweep.knobs", "runs of a search are compared at equal steps: leave `steps` out")
        )
    if not sweep.search.has_direction:
        reason = f"the catalog does not say whether more {sweep.search.metric} is better: choose a direction"
        errors.append(FieldError("sweep.search.direction", reason))
    repeated_runs = min(sweep.search.top, sweep.cells) * (seeds - 1)
    if (runs := sweep.cells + repeated_runs) > MAX_RUNS:
        reason = (
            f"{sweep.cells} configurations and {repeated_runs} runs with the remaining seeds are {runs} runs"
        )
        errors.append(FieldError("sweep", f"{reason}; one experiment may have {MAX_RUNS}"))
    if errors:
        raise InvalidConfig(errors)
    axes = parse_axes(base, variants[0], sweep)
    combinations = prod(axis.count for axis in axes)
    cells = min(sweep.cells, MAX_PLANNED_CELLS, combinations or MAX_PLANNED_CELLS)
    result = [
        make_cell(base, variants[0], sweep, axes, values) for values in _sample(axes, cells, sweep.seed)
    ]
    _refuse_duplicates([cell.variant["name"] for cell in result])
    return result


def _refuse_duplicates(names: Sequence[str]) -> None:
    seen_names: set[str] = set()
    for name in names:
        if name in seen_names:
            raise InvalidConfig([FieldError("sweep", f"two cells would have the name {name!r}")])
        seen_names.add(name)


def parse_axes(base: Fields, variant: Fields, sweep: Sweep) -> list[Axis]:
    """Return the values of each knob; raise InvalidConfig with all invalid values."""
    current_config = _config_now(base, variant)
    axes, errors = [], []
    for number, knob in enumerate(sweep.knobs):
        path = f"sweep.knobs.{number}.values"
        try:
            axes.append(parse_axis(knob.values, value_at(current_config, knob.path)))
        except ValueError as error:
            errors.append(FieldError(path, str(error)))
            continue
        if sweep.method == "grid" and not axes[-1].count:
            reason = "a grid needs a number of values: write log 5 or lin 5 after the range"
            errors.append(FieldError(path, reason))
    if errors:
        raise InvalidConfig(errors)
    return axes


def _config_now(base: Fields, variant: Fields) -> Fields:
    """Return the config of the variant without the sweep, even if only a swept value makes it valid."""
    try:
        return resolve(base, variant).model_dump(mode="json")
    except InvalidConfig:
        return merged_fields(base, variant)


def value_at(config: Any, path: str) -> Any:
    """Return the value at a dotted path of a config, or None."""
    for key in path.split("."):
        if isinstance(config, Mapping):
            config = config.get(key)
        elif isinstance(config, Sequence) and not isinstance(config, str) and key.isdigit():
            config = config[int(key)] if int(key) < len(config) else None
        else:
            return None
    return config


def _count_cells(axes: Sequence[Axis], sweep: Sweep) -> int:
    """Return the number of cells of a variant; raise InvalidConfig if a random sweep requests too many."""
    if sweep.method == "grid":
        return prod(axis.count for axis in axes)
    combinations = prod(axis.count for axis in axes)  # 0 if one of the axes is a continuous range
    if 0 < combinations < sweep.cells:
        reason = (
            f"there are only {combinations} combinations; ask for at most that many cells, or for the grid"
        )
        raise InvalidConfig([FieldError("sweep.cells", reason)])
    return sweep.cells


def _grid(axes: Sequence[Axis]) -> Iterator[tuple[Any, ...]]:
    return product(*(axis.listed_values for axis in axes))


def _sample(axes: Sequence[Axis], cells: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield distinct combinations, all with equal probability."""
    rng = random.Random(seed)
    seen_keys: set[bytes] = set()
    for _ in range(cells * MAX_TRIES_PER_CELL):
        values = tuple(axis.draw(rng) for axis in axes)
        key = value_key(values)
        if key not in seen_keys:
            seen_keys.add(key)
            yield values
        if len(seen_keys) == cells:
            return
    reason = f"only {len(seen_keys)} different combinations were found; ask for fewer cells"
    raise InvalidConfig([FieldError("sweep.cells", reason)])


def _change_variant(
    variant: Fields, paths: Sequence[str], values: Sequence[Any], full_config: Fields
) -> dict[str, Any]:
    new_variant: Any = dict(variant)
    full_fields: Any = full_config
    for path, value in zip(paths, values, strict=True):
        path_parts = path.split(".")
        new_variant, full_fields = (
            _set_value(new_variant, path_parts, value, full_fields),
            _set_value(full_fields, path_parts, value, full_fields),
        )
    return dict(new_variant)


def _set_value(fields: Any, path: Sequence[str], value: Any, full_fields: Any) -> Any:
    """Return the fields with a value at a path; lists are copied completely from `full_fields`."""
    key, *subpath = path
    if isinstance(full_fields, Sequence) and not isinstance(full_fields, str):
        if not key.isdigit() or int(key) >= len(full_fields):
            raise InvalidConfig(
                [FieldError("sweep", f"there is no item {key} in a list of {len(full_fields)}")]
            )
        index = int(key)
        items = list(full_fields)
        items[index] = _set_value(items[index], subpath, value, items[index]) if subpath else value
        return items
    if not subpath:
        return _to_mapping(fields) | {key: value}
    mapping, inner_full = (
        _to_mapping(fields),
        full_fields.get(key) if isinstance(full_fields, Mapping) else None,
    )
    return mapping | {key: _set_value(mapping.get(key), subpath, value, inner_full)}


def _to_mapping(fields: Any) -> dict[str, Any]:
    return dict(fields) if isinstance(fields, Mapping) else {}


def _variant_name(variant: str, paths: Sequence[str], values: Sequence[Any], axes: Sequence[Axis]) -> str:
    """Return the name of a cell, such as `grpo lr=0.0001 eps_high=0.28`."""
    short_paths = [_short_path(path) for path in paths]
    value_texts = [
        f"{short if short_paths.count(short) == 1 else path}={_value_text(value, axis)}"
        for short, path, value, axis in zip(short_paths, paths, values, axes, strict=True)
    ]
    name = " ".join([variant, *value_texts])
    if len(name) > MAX_NAME_CHARACTERS:
        reason = (
            f"the name {name[:60]}... has {len(name)} characters, at most {MAX_NAME_CHARACTERS} are possible"
        )
        raise InvalidConfig([FieldError("sweep", f"{reason}: give the variant a shorter one")])
    return name


def _short_path(path: str) -> str:
    """Return the last meaningful part of a path: `optimizer.lr` -> `lr`, `objective.kl.type` -> `kl`."""
    meaningful_keys = [key for key in path.split(".") if key != "type" and not key.isdigit()]
    return (meaningful_keys or [path])[-1]


def _value_text(value: Any, axis: Axis) -> str:
    if isinstance(value, float):
        text = f"{value:g}" if float(f"{value:g}") == value else repr(value)
        return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if 0 < len(text) <= MAX_VALUE_TEXT else f"#{axis.listed_values.index(value) + 1}"
