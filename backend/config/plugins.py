"""Find rewards and problem sources that users have installed as entry points."""

from importlib.metadata import EntryPoint, entry_points

PROBLEMS_GROUP = "grpolab.problems"
REWARDS_GROUP = "grpolab.rewards"


def plugin_names(group: str) -> list[str]:
    """Return the names of the installed plugins of a group without importing them."""
    return sorted({point.name for point in entry_points(group=group)})


def find_plugin(group: str, name: str) -> EntryPoint:
    """Return the entry point with this name. Raises ValueError with the installed names if it is missing."""
    points = [point for point in entry_points(group=group) if point.name == name]
    if not points:
        installed_names = ", ".join(plugin_names(group)) or "none"
        raise ValueError(
            f"there is no entry point {name!r} in the group {group}; installed are: {installed_names}"
        )
    return points[0]
