"""Check names of metrics, which must be in the catalog, in one of its families, or recorded by a run."""

from collections.abc import Sequence
from difflib import get_close_matches

from sqlalchemy.orm import Session

from backend.base.errors import FieldError, InvalidRequest
from backend.config.metrics import ALIASES, FAMILIES, METRICS, find_metric
from backend.metrics.store import find_keys

MAX_NAME_CHARACTERS = 128


def require_known(session: Session, names: Sequence[str], path: str) -> None:
    """Raise InvalidRequest with an error at the parameter `path` for each unknown name."""
    uncatalogued_names = [name for name in names if find_metric(name) is None]
    recorded_names = find_keys(session, uncatalogued_names) if uncatalogued_names else {}
    if unknown_names := [name for name in uncatalogued_names if name not in recorded_names]:
        raise InvalidRequest([FieldError(path, unknown_name_message(name)) for name in unknown_names])


def unknown_name_message(name: str) -> str:
    """Return a message about an unknown name that suggests similar names."""
    if len(name) > MAX_NAME_CHARACTERS:
        return f"a metric's name has at most {MAX_NAME_CHARACTERS} characters, got {name[:40]!r}..."
    if name in ALIASES:
        return f"there is no metric {name!r}; it is called {ALIASES[name]} here"
    similar_names = get_close_matches(name, [*METRICS, *(family.name for family in FAMILIES)], n=3)
    hint = (
        f"did you mean {', '.join(similar_names)}"
        if similar_names
        else "GET /api/v1/metric-catalog lists them"
    )
    return f"there is no metric {name!r}; {hint}"
