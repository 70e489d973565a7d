"""The list of pages, the only place that names their addresses: routes, permissions, styles, menu follow."""

from typing import NamedTuple

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

    @property
    def name(self) -> str:
        """The name of its view and of its style."""
        return self.path.split("/")[1]


HOME = "/"
"""Leads to the first page of the list."""

PAGES = (
    Page("/runs", label="Runs"),
    Page("/compare", label="Compare"),
    Page("/launch", label="Launch"),
    Page("/queue", label="Queue"),
    Page("/run/{run_id}", menu="/runs"),
    Page("/rollouts", menu="/runs"),
    Page("/import", menu="/runs"),
)

REDIRECTS = {
    "/runs/{run_id}": "/run/{run_id}",
    "/rollouts/{run_id}": "/rollouts?run={run_id}",
}
"""Addresses that people guess, and those where the pages are."""
