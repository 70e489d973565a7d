"""The list of pages, the only place that names their addresses: routes, permissions, styles, menu follow."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from backend.base.locations import FILES_ROOT

FRONTEND = FILES_ROOT / "frontend"
"""The folder of the pages' scripts and styles."""


class Page(NamedTuple):
    """A page. Its view is `frontend/src/views/<name>.js`, its style `frontend/styles/<name>.css`."""

    path: str
    """The path in the router's notation; its first part is the page's name, its parameters are the view's
    props.
    """

    label: str = ""
    """The page's name in the menu; empty for a page that is not in the menu."""

    menu: str = ""
    """Path of the page that is marked in the menu while this one is open, if it is not this one."""

    view: str = ""
    """Name of the view, if it is that of another page."""

    @property
    def name(self) -> str:
        """The name of its view and of its style."""
        return self.view or self.path.split("/")[1]


HOME = "/"
"""Leads to the first page of the list."""

PAGES = (
    Page("/runs", label="Runs"),
    Page("/experiments", label="Experiments"),
    Page("/launch", label="Launch"),
    Page("/import", label="Import"),
    Page("/queue", label="Queue"),
    Page("/run/{run_id}", menu="/runs"),
    Page("/compare", menu="/experiments"),
    Page("/experiment/{experiment_id}", menu="/experiments", view="compare"),
)

REDIRECTS = ("/runs/{run_id}", "/rollouts", "/rollouts/{run_id}")
"""Addresses of former pages, and those that people guess: `new_address` has the new ones."""

VIEWS_OF_ROLLOUTS = {
    "read": {},
    "causes": {"view": "breakdown"},
    "probes": {"tab": "evaluations"},
    "runs": {"tab": "evaluations", "across": "1"},
}
"""Parameters of a run's page for the views of the former page of rollouts; other views kept their names."""


def new_address(path: str, query: Mapping[str, str]) -> str | None:
    """Return the address of a page that has moved, with the parameters; None if it has not moved."""
    first, _, identifier = path.lstrip("/").partition("/")
    others = dict(query)
    if first == "runs" and identifier:
        return _address(f"/run/{quote(identifier, safe='')}", others)
    if first == "rollouts":
        run_id = identifier or others.get("run", "")
        others.pop("run", None)
        view = others.pop("view", "read")
        tab = {"tab": "rollouts"} | VIEWS_OF_ROLLOUTS.get(view, {"view": view})
        return _address(f"/run/{quote(run_id, safe='')}", tab | others) if run_id else "/runs"
    if first == "compare" and not identifier and not (others.get("runs") or others.get("query")):
        experiment_id = others.pop("experiment", "")
        return (
            _address(f"/experiment/{quote(experiment_id, safe='')}", others)
            if experiment_id
            else "/experiments"
        )
    return None


def _address(path: str, parameters: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(parameters, safe=',/')}" if parameters else path
