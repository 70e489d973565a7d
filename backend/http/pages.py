"""The list of pages, from which routes, permissions, styles and the menu are derived."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from backend.base.locations import FILES_ROOT

FRONTEND = FILES_ROOT / "frontend"
"""Directory of the scripts and styles of the pages."""


class Page(NamedTuple):
    """A page. Its view is `frontend/src/views/<name>.js`, and its style is `frontend/styles/<name>.css`."""

    path: str
    """Path in the router's notation; its first segment is the name of the page, and its parameters are props
    of the view.
    """

    label: str = ""
    """Name of the page in the menu; empty if the page is not in the menu."""

    menu: str = ""
    """Path of the page that is highlighted in the menu while this page is open, if it is another page."""

    view: str = ""
    """Name of the view, if it is the view of another page."""

    @property
    def name(self) -> str:
        """The name of the view and of its style."""
        return self.view or self.path.split("/")[1]


HOME = "/"
"""Redirects to the first page of the list."""

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
"""Addresses of former pages and common guesses, which `new_address` redirects."""

VIEWS_OF_ROLLOUTS = {
    "read": {},
    "causes": {"view": "breakdown"},
    "probes": {"tab": "evaluations"},
    "runs": {"tab": "evaluations", "across": "1"},
}
"""Parameters of a run's page for the views of the former rollouts page; other views kept their names."""


def new_address(path: str, query: Mapping[str, str]) -> str | None:
    """Return the new address of a page that has moved, with its parameters; None if it has not moved."""
    first_segment, _, identifier = path.lstrip("/").partition("/")
    parameters = dict(query)
    if first_segment == "runs" and identifier:
        return _address(f"/run/{quote(identifier, safe='')}", parameters)
    if first_segment == "rollouts":
        run_id = identifier or parameters.get("run", "")
        parameters.pop("run", None)
        view = parameters.pop("view", "read")
        tab = {"tab": "rollouts"} | VIEWS_OF_ROLLOUTS.get(view, {"view": view})
        return _address(f"/run/{quote(run_id, safe='')}", tab | parameters) if run_id else "/runs"
    if (
        first_segment == "compare"
        and not identifier
        and not (parameters.get("runs") or parameters.get("query"))
    ):
        experiment_id = parameters.pop("experiment", "")
        return (
            _address(f"/experiment/{quote(experiment_id, safe='')}", parameters)
            if experiment_id
            else "/experiments"
        )
    return None


def _address(path: str, parameters: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(parameters, safe=',/')}" if parameters else path
