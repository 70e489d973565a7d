"""Presets for checks that are repeated for each method."""

from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.presets import PRESETS

OBJECTIVE_BY_PRESET: dict[str, Objective] = {name: resolve({"preset": name}).objective for name in PRESETS}


def _one_for_each_method() -> list[str]:
    methods: dict[tuple[str, str], str] = {}
    for name, objective in OBJECTIVE_BY_PRESET.items():
        methods.setdefault((objective.surrogate.type, objective.advantage.type), name)
    return list(methods.values())


METHOD_PRESETS = _one_for_each_method()
"""The first preset with each pair of surrogate and advantage. The others differ only in other knobs."""
