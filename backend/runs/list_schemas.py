"""Schemas of lists of runs and of actions on many runs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from backend.base.documented import Documented
from backend.runs.bulk import MAX_RUNS, Action
from backend.runs.schemas import Body, KeptRun


class RunIds(Documented):
    """Ids of the runs of a list."""

    ids: list[str]


class QueryField(Documented):
    """A field that a query can use."""

    name: str
    type: Literal["text", "number", "date", "tags", "config", "metric"]
    values: list[str]
    """Possible values of the field, or the values in stored runs; empty if any value is allowed."""


class QueryFieldPage(Documented):
    """All fields that a query can use."""

    items: list[QueryField]
    next: None


class RunValue(Documented):
    """A value that some runs of a list have in a field."""

    value: str
    """Value to filter by: the id of an experiment, or the label itself."""
    label: str
    runs: int
    """Number of runs with this value."""


class RunValuePage(Documented):
    """The values of a field, most frequent first."""

    items: list[RunValue]
    next: None


class ActionRequest(Body):
    """An action on many runs."""

    action: Action
    tag: Annotated[str, Field(max_length=64)] = ""
    """Tag to add or remove, for `tag` and `untag`."""
    ids: Annotated[list[Annotated[str, Field(max_length=26)]], Field(max_length=MAX_RUNS)] | None = None
    """Ids of the runs; null if the query selects them."""
    query: Annotated[str, Field(min_length=1)] | None = None
    archived: bool = False
    """Whether the query searches archived runs."""
    deleted: bool = False
    """Whether the query searches runs in the trash."""

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
    """Number of runs that the action was requested for."""
    changed: list[str]
    """Ids of the runs that the action changed; the other runs were already in that state."""
    refused: list[KeptRun]
    """Runs that could not be changed, with the reasons."""
    missing: int
    """Number of runs that no longer exist."""
