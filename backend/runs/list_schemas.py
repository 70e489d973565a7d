"""Lists of runs as the HTTP interface shows them, and actions on many runs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from backend.base.documented import Documented
from backend.runs.bulk import MAX_RUNS, Action
from backend.runs.schemas import Body, KeptRun


class RunIds(Documented):
    """The runs of a list."""

    ids: list[str]


class QueryField(Documented):
    """A field that a query can name."""

    name: str
    type: Literal["text", "number", "date", "tags", "config", "metric"]
    values: list[str]
    """Possible values of the field, or those of stored runs; empty for any value."""


class QueryFieldPage(Documented):
    """All fields."""

    items: list[QueryField]
    next: None


class RunValue(Documented):
    """A value that runs of a list have in a field."""

    value: str
    """Value of the filter: the id of an experiment, or the label itself."""
    label: str
    runs: int
    """Number of runs that have it."""


class RunValuePage(Documented):
    """The values of a field, those of most runs first."""

    items: list[RunValue]
    next: None


class ActionRequest(Body):
    """An action on many runs."""

    action: Action
    tag: Annotated[str, Field(max_length=64)] = ""
    """Tag to add or remove, for `tag` and `untag`."""
    ids: Annotated[list[Annotated[str, Field(max_length=26)]], Field(max_length=MAX_RUNS)] | None = None
    """Runs by their ids; null: those of the query."""
    query: Annotated[str, Field(min_length=1)] | None = None
    archived: bool = False
    """Whether the query is for archived runs."""
    deleted: bool = False
    """Whether the query is for runs in the trash."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.ids is None) == (self.query is None):
            raise ValueError("expected either ids or a query")
        if (self.action in ("tag", "untag")) != bool(self.tag.strip()):
            raise ValueError("expected a tag for the actions tag and untag, and for no other")
        return self


class ActionOutcome(Documented):
    """The result of an action on many runs."""

    matched: int
    """Runs that it was meant for."""
    changed: list[str]
    """Ids of the runs that have another state now; the others had it already."""
    refused: list[KeptRun]
    """Runs that could not be changed, each with the reason."""
    missing: int
    """Runs that do not exist any more."""
