"""Rewards and problem sources that a user has installed as entry points."""

from importlib.metadata import EntryPoint, entry_points

PROBLEMS_GROUP = "grpolab.problems"
REWARDS_GROUP = "grpolab.rewards"


def plugin_names(group: str) -> list[str]:
    """Names of the installed plugins of a group, without importing any of them."""
    return sorted({point.name for point in entry_points(group=group)})


def find_plugin(group: str, name: str) -> EntryPoint:
    """The entry point of that name; ValueError lists the installed ones when there is none."""
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        installed = ", ".join(plugin_names(group)) or "none"
        raise ValueError(f"there is no entry point {name!r} in the group {group}; installed are: {installed}")
    return found[0]
