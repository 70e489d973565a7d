"""Group runs for mean curves by variant, experiment, tag, verdict or config fields.

`frontend/src/lib/runs/grouping.js` groups runs in the same way.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

CONFIG_PREFIX = "config."
RUN_KEYS = ("variant", "experiment", "tag", "verdict", "config")
"""Keys other than config fields. `config` is the whole config except the seed."""
MAX_KEYS = 8

MISSING = object()


def is_key(key: str) -> bool:
    """Return whether runs can be grouped by this key."""
    return key in RUN_KEYS or (key.startswith(CONFIG_PREFIX) and len(key) > len(CONFIG_PREFIX))


def group_runs(
    runs: Sequence[Any], configs: Mapping[str, Mapping[str, Any]], keys: Sequence[str]
) -> dict[str, list[str]]:
    """Return the run ids of each group by its name, in the order of the first runs of the groups.

    Runs with equal values of all keys are in the same group. Runs that lack a field are grouped together.
    `configs` is used only for config fields.
    """
    if list(keys) == ["variant"]:
        return _group_by_variant(runs)
    flat_configs = {run.id: dict(flatten(configs.get(run.id, {}))) for run in runs}
    groups: dict[tuple[str, ...], list[Any]] = {}
    for run in runs:
        groups.setdefault(tuple(_identity(run, flat_configs[run.id], key) for key in keys), []).append(run)
    runs_by_name: dict[str, list[str]] = {}
    for members in groups.values():
        name = ", ".join(_label(members[0], flat_configs[members[0].id], key, keys) for key in keys)
        while name in runs_by_name:
            name = f"{name} · {members[0].config_hash[:6]}"
        runs_by_name[name] = [run.id for run in members]
    return runs_by_name


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of the leaves of a config. Objects in a
    list are identified by their names.
    """
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        names = _item_names(value)
        yield path, names
        for name, item in zip(names, value, strict=True):
            yield from flatten(item, f"{path}.{name}")
    elif isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from flatten(child, f"{path}.{key}" if path else key)
    elif path:
        yield path, value


def _item_names(items: Sequence[Mapping[str, Any]]) -> list[str]:
    name_counts: Counter[str] = Counter()
    names = []
    for position, item in enumerate(items, 1):
        labels = (item[key] for key in ("entry_point", "name", "type") if item.get(key) is not None)
        name = str(next(labels, position))
        name_counts[name] += 1
        names.append(f"{name} {name_counts[name]}" if name_counts[name] > 1 else name)
    return names


def _value(run: Any, value_by_path: Mapping[str, Any], key: str) -> Any:
    if key.startswith(CONFIG_PREFIX):
        path = key.removeprefix(CONFIG_PREFIX)
        return value_by_path.get(path, value_by_path.get(f"{path}.type", MISSING))
    if key == "tag":
        return sorted(set(map(str, run.tags or []))) or MISSING
    group_value = {
        "variant": run.variant,
        "experiment": run.experiment_name,
        "verdict": run.verdict,
        "config": run.config_hash,
    }[key]
    return MISSING if group_value is None else group_value


def _identity(run: Any, value_by_path: Mapping[str, Any], key: str) -> str:
    value = _value(run, value_by_path, key)
    return "" if value is MISSING else json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """Return whole numbers as integers, so that 1 and 1.0 are equal, and other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _label(run: Any, value_by_path: Mapping[str, Any], key: str, keys: Sequence[str]) -> str:
    """Return a label for a run's value of a key, with the name of the
    config field if there are several keys.
    """
    value = _value(run, value_by_path, key)
    field = key.removeprefix(CONFIG_PREFIX)
    if value is MISSING:
        return f"no {field}"
    if key == "config":
        return f"{run.variant} · {run.config_hash[:6]}"
    text = " + ".join(map(str, value)) if isinstance(value, list) else str(_plain(value))
    return f"{field} {text}" if key.startswith(CONFIG_PREFIX) and len(keys) > 1 else text


def _group_by_variant(runs: Sequence[Any]) -> dict[str, list[str]]:
    """Return the ids of runs that differ only in their seed, by variant.

    Forks at the same step are grouped together, regardless of their parents, and separately from runs without
    a parent, because the mean of a fork and its parent would count the parent's steps twice. If several
    groups have the same variant name, the name of the experiment or run is added, and if that is not unique,
    the step of the fork or the hash of the config.
    """
    members: dict[tuple[str, str, int | None], list[Any]] = {}
    for run in runs:
        members.setdefault((run.variant, run.config_hash, run.fork_step), []).append(run)
    group_counts = Counter(variant for variant, _, _ in members)
    runs_by_label: dict[str, list[str]] = {}
    for (variant, digest, step), group in members.items():
        owner = group[0].experiment_name or group[0].name
        label = variant if group_counts[variant] == 1 else f"{variant} · {owner}"
        suffixes = chain([] if step is None else [f"fork at {step}"], [digest[:6]], count(2))
        while label in runs_by_label:
            label = f"{label} · {next(suffixes)}"
        runs_by_label[label] = [run.id for run in group]
    return runs_by_label
