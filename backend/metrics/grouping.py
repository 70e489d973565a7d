"""Groups of runs that share a curve: by variant, experiment, tag, verdict or fields of their configs.

The pages group the same way in `frontend/src/lib/runs/grouping.js`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

CONFIG = "config."
ABOUT_RUN = ("variant", "experiment", "tag", "verdict", "config")
"""Keys that are not fields of a config; `config` is the whole config but for the seed."""
MAX_KEYS = 8

MISSING = object()


def is_key(key: str) -> bool:
    """Return whether runs can be grouped by this."""
    return key in ABOUT_RUN or (key.startswith(CONFIG) and len(key) > len(CONFIG))


def group_runs(
    runs: Sequence[Any], configs: Mapping[str, Mapping[str, Any]], keys: Sequence[str]
) -> dict[str, list[str]]:
    """Return the run ids of each group by its name; groups are in the order of their first runs.

    Runs share a group if they agree in all keys. A run that lacks a field is in a group with the others that
    lack it. `configs` is read for fields of configs alone.
    """
    if list(keys) == ["variant"]:
        return _group_by_variant(runs)
    flats = {run.id: dict(flatten(configs.get(run.id, {}))) for run in runs}
    groups: dict[tuple[str, ...], list[Any]] = {}
    for run in runs:
        groups.setdefault(tuple(_identity(run, flats[run.id], key) for key in keys), []).append(run)
    named: dict[str, list[str]] = {}
    for members in groups.values():
        name = ", ".join(_label(members[0], flats[members[0].id], key, keys) for key in keys)
        while name in named:
            name = f"{name} · {members[0].config_hash[:6]}"
        named[name] = [run.id for run in members]
    return named


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a config by dotted path; items of a list of objects go by their names."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        names = _item_names(value)
        yield path, names
        for name, item in zip(names, value, strict=True):
            yield from flatten(item, f"{path}.{name}")
    elif isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flatten(inner, f"{path}.{key}" if path else key)
    elif path:
        yield path, value


def _item_names(items: Sequence[Mapping[str, Any]]) -> list[str]:
    times: Counter[str] = Counter()
    names = []
    for position, item in enumerate(items, 1):
        labels = (item[key] for key in ("entry_point", "name", "type") if item.get(key) is not None)
        name = str(next(labels, position))
        times[name] += 1
        names.append(f"{name} {times[name]}" if times[name] > 1 else name)
    return names


def _value(run: Any, flat: Mapping[str, Any], key: str) -> Any:
    if key.startswith(CONFIG):
        path = key.removeprefix(CONFIG)
        return flat.get(path, flat.get(f"{path}.type", MISSING))
    if key == "tag":
        return sorted(set(map(str, run.tags or []))) or MISSING
    group_value = {
        "variant": run.variant,
        "experiment": run.experiment_name,
        "verdict": run.verdict,
        "config": run.config_hash,
    }[key]
    return MISSING if group_value is None else group_value


def _identity(run: Any, flat: Mapping[str, Any], key: str) -> str:
    value = _value(run, flat, key)
    return "" if value is MISSING else json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """Return the value with whole numbers as integers, so that 1 and 1.0 are one value."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _label(run: Any, flat: Mapping[str, Any], key: str, keys: Sequence[str]) -> str:
    """Return the value; if there are several keys, fields of configs have their names."""
    value = _value(run, flat, key)
    field = key.removeprefix(CONFIG)
    if value is MISSING:
        return f"no {field}"
    if key == "config":
        return f"{run.variant} · {run.config_hash[:6]}"
    text = " + ".join(map(str, value)) if isinstance(value, list) else str(_plain(value))
    return f"{field} {text}" if key.startswith(CONFIG) and len(keys) > 1 else text


def _group_by_variant(runs: Sequence[Any]) -> dict[str, list[str]]:
    """Return the ids of runs that differ only in their seed, by variant.

    Forks of one step are together, whichever run each of them left, and apart from runs that were trained
    from the beginning: a mean of a fork and the run that it left would count that run's steps twice. Where a
    variant name stands for several groups, the experiment's or the run's name (and, if that does not tell
    them apart, the step of the fork or the config) is added.
    """
    members: dict[tuple[str, str, int | None], list[Any]] = {}
    for run in runs:
        members.setdefault((run.variant, run.config_hash, run.fork_step), []).append(run)
    times = Counter(variant for variant, _, _ in members)
    named: dict[str, list[str]] = {}
    for (variant, digest, step), group in members.items():
        whose = group[0].experiment_name or group[0].name
        label = variant if times[variant] == 1 else f"{variant} · {whose}"
        marks = chain([] if step is None else [f"fork at {step}"], [digest[:6]], count(2))
        while label in named:
            label = f"{label} · {next(marks)}"
        named[label] = [run.id for run in group]
    return named
