"""Find and load rewards and problem sources that users have installed as entry points."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

PROBLEMS_GROUP = "grpolab.problems"
REWARDS_GROUP = "grpolab.rewards"

MOVED = {
    "worker.rollout.prompt": "import Prompt from worker.prompt",
    "worker.rollout.types": "import Prompt from worker.prompt, Completion and Group from worker.types",
}
"""Advice for each module that plugins may import and that has moved, by its old name."""


def plugin_names(group: str) -> list[str]:
    """Return the names of the installed plugins of a group without importing them."""
    return sorted({point.name for point in entry_points(group=group)})


def find_plugin(group: str, name: str) -> EntryPoint:
    """Return the entry point with this name. Raises ValueError with the installed names if it is missing."""
    points = [point for point in entry_points(group=group) if point.name == name]
    if not points:
        installed = ", ".join(plugin_names(group)) or "none"
        raise ValueError(f"there is no entry point {name!r} in the group {group}; installed are: {installed}")
    return points[0]


def load_plugin(point: EntryPoint) -> Any:
    """Import and return the object that a plugin's entry point refers to.

    Raises ImportError with the new name if the plugin imports a module of this project that has moved.
    """
    try:
        return point.load()
    except ModuleNotFoundError as error:
        if advice := MOVED.get(error.name or ""):
            raise ImportError(f"{error.name} has moved: {advice}", name=error.name) from error
        raise
