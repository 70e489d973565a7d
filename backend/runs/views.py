"""Saved views of lists and comparisons of runs, which all users share."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from backend.base.documented import Documented
from backend.base.errors import Conflict, NotFound
from backend.http.paging import iso_time
from backend.runs.order import read_order
from backend.runs.query.syntax import MAX_CHARACTERS, parse
from backend.runs.schemas import Body
from backend.storage.engine import insert_into, new_id
from backend.storage.models import SavedView

MAX_VIEWS = 200

MAX_SETTINGS = 50
MAX_SETTINGS_CHARACTERS = 20_000
"""Maximum total number of characters of all settings, enough for the ids of about 700 runs."""

ShortText = Annotated[str, Field(max_length=200)]


def _check_length(settings: dict[str, str]) -> dict[str, str]:
    if sum(len(name) + len(value) for name, value in settings.items()) > MAX_SETTINGS_CHARACTERS:
        raise ValueError(
            f"has over {MAX_SETTINGS_CHARACTERS:,} characters: choose the runs by a query instead"
        )
    return settings


Settings = Annotated[dict[ShortText, str], Field(max_length=MAX_SETTINGS), AfterValidator(_check_length)]


class View(Documented):
    """Settings of a page: filters, order, groups and columns of a list of runs, or those of Compare."""

    page: Literal["runs", "compare"] = "runs"
    settings: Settings = {}
    """Additional query parameters of the page's URL: `{"x": "tokens", "log": "y"}`."""
    query: Annotated[str, Field(max_length=MAX_CHARACTERS)] = ""
    """Query that selects the runs when the view is opened."""
    status: ShortText = ""
    verdict: ShortText = ""
    tag: ShortText = ""
    variant: ShortText = ""
    experiment: ShortText = ""
    archived: bool = False
    sort: ShortText = "-created_at"
    group: ShortText = ""
    """Field by which the table is grouped; empty for no grouping."""
    columns: Annotated[list[ShortText], Field(max_length=100)] | None = None
    """Columns in addition to those of every list; null for the default columns."""


class ViewRequest(View, Body):
    """A request to save a view, which replaces a view with the same name."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"\S")]


class ViewItem(View):
    """A saved view."""

    id: str
    name: str
    changed_at: str


class ViewPage(Documented):
    """All views, sorted by name."""

    items: list[ViewItem]
    next: None


def saved_views(session: Session) -> Sequence[dict[str, Any]]:
    """Return all views sorted by name, as described by `ViewItem`."""
    return [
        _view_json(row) for row in session.scalars(select(SavedView).order_by(SavedView.name, SavedView.id))
    ]


def save_view(session: Session, request: ViewRequest) -> dict[str, Any]:
    """Save a view; raise InvalidRequest for an invalid query, and Conflict if there are too many views."""
    parse(request.query)
    read_order(request.sort)
    name = request.name.strip()
    count = session.scalar(select(func.count()).select_from(SavedView).where(SavedView.name != name)) or 0
    if count >= MAX_VIEWS:
        raise Conflict(f"there are {count} views already: delete one first")
    view = request.model_dump(exclude={"name"})
    statement = insert_into(session, SavedView).values(id=new_id(), name=name, view=view)
    changes = {"view": statement.excluded.view, "changed_at": statement.excluded.changed_at}
    session.execute(statement.on_conflict_do_update(index_elements=["name"], set_=changes))
    return _view_json(session.scalars(select(SavedView).where(SavedView.name == name)).one())


def delete_view(session: Session, view_id: str) -> dict[str, Any]:
    """Delete a view and return it; raise NotFound if it does not exist."""
    row = session.get(SavedView, view_id)
    if row is None:
        raise NotFound(f"there is no view {view_id!r}")
    session.execute(delete(SavedView).where(SavedView.id == view_id))
    return _view_json(row)


def _view_json(row: SavedView) -> dict[str, Any]:
    view = View.model_validate(row.view).model_dump()
    return {"id": row.id, "name": row.name, "changed_at": iso_time(row.changed_at), **view}
