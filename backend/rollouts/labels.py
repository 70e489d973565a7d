"""Labels that people give to completions.

Each label is a separate row, so changes to different labels never conflict. A change names the version that
it is based on, and is refused if the label has changed since.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from backend.base.documented import Documented
from backend.base.errors import Conflict, NotFound
from backend.http.paging import iso_time
from backend.runs.schemas import Body
from backend.storage.completions import find_completion
from backend.storage.engine import insert_into
from backend.storage.models import RolloutGroup, RolloutLabel

MAX_LABEL_CHARACTERS = 40
MAX_NOTE_CHARACTERS = 2_000
MAX_LABELS = 50
"""Maximum number of labels of one completion."""


def _strip(text: str) -> str:
    return " ".join(text.split())


Label = Annotated[
    str, Field(min_length=1, max_length=MAX_LABEL_CHARACTERS, pattern=r"\S"), AfterValidator(_strip)
]


class LabelRequest(Body):
    """A label with the reason for it."""

    label: Label
    note: Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS)] = ""
    version: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Version of the label that is being changed; 0 if the completion does not have the label yet."""


class LabelItem(Documented):
    """A label of a completion."""

    label: str
    note: str
    role: str
    """Role that last changed the label: `operator` or `import`."""
    version: int
    changed_at: str


class LabelList(Documented):
    """The labels of a completion."""

    items: list[LabelItem]


class LabelCount(Documented):
    """A label and the number of completions that have it."""

    label: str
    completions: int


class LabelCounts(Documented):
    """The labels that are in use, most frequent first."""

    items: list[LabelCount]
    next: None


class LabelConflict(Conflict):
    """The label was changed or removed after it was shown."""

    def __init__(self, label: str, row: RolloutLabel | None) -> None:
        state = (
            f"{row.role} wrote version {row.version} at {iso_time(row.changed_at)}"
            if row
            else "it was removed"
        )
        super().__init__(f"the label {label!r} has changed meanwhile: {state}; look at it and save again")


def put_label(session: Session, rollout_id: str, request: LabelRequest, role: str) -> list[dict[str, Any]]:
    """Add a label or change its note, and return the labels of the completion; raise NotFound or Conflict."""
    group = _find_group(session, rollout_id)
    if request.version:
        conditions = _label_conditions(rollout_id, request.label, request.version)
        changes = {"note": request.note, "role": role, "version": RolloutLabel.version + 1}
        statement = update(RolloutLabel).where(*conditions).values(changes).returning(RolloutLabel.version)
    else:
        count = select(func.count()).where(RolloutLabel.rollout_id == rollout_id)
        if (session.scalar(count) or 0) >= MAX_LABELS:
            raise Conflict(f"a completion has at most {MAX_LABELS} labels: remove one first")
        ids_of_row = {"rollout_id": rollout_id, "group_id": group.id, "run_id": group.run_id}
        row = {**ids_of_row, "label": request.label, "note": request.note, "role": role}
        insert = insert_into(session, RolloutLabel).values(**row)
        statement = insert.on_conflict_do_nothing().returning(RolloutLabel.version)
    if session.scalar(statement) is None:
        raise LabelConflict(request.label, _row(session, rollout_id, request.label))
    return load_labels(session, [rollout_id])[rollout_id]


def remove_label(session: Session, rollout_id: str, label: str, version: int) -> list[dict[str, Any]]:
    """Remove a label and return the remaining labels of the completion; raise NotFound or Conflict."""
    _find_group(session, rollout_id)
    deletion = (
        delete(RolloutLabel)
        .where(*_label_conditions(rollout_id, label, version))
        .returning(RolloutLabel.version)
    )
    if session.scalar(deletion) is None:
        raise LabelConflict(label, _row(session, rollout_id, label))
    return load_labels(session, [rollout_id]).get(rollout_id, [])


def load_labels(session: Session, rollouts: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the labels of each completion that has any, sorted by label, as `LabelItem`."""
    query = select(RolloutLabel).where(RolloutLabel.rollout_id.in_(rollouts))
    by_rollout: dict[str, list[dict[str, Any]]] = {}
    for row in session.scalars(query.order_by(RolloutLabel.rollout_id, RolloutLabel.label)):
        fields = {name: getattr(row, name) for name in ("label", "note", "role", "version")}
        by_rollout.setdefault(row.rollout_id, []).append({**fields, "changed_at": iso_time(row.changed_at)})
    return by_rollout


def count_labels(session: Session, runs: Sequence[str]) -> list[dict[str, Any]]:
    """Return the labels in the given runs with their frequencies, as `LabelCount`."""
    count = func.count()
    query = (
        select(RolloutLabel.label, count.label("completions"))
        .where(RolloutLabel.run_id.in_(runs))
        .group_by(RolloutLabel.label)
        .order_by(count.desc(), RolloutLabel.label)
    )
    return [row._asdict() for row in session.execute(query.limit(200))]


def _label_conditions(rollout_id: str, label: str, version: int) -> list[Any]:
    is_label = [RolloutLabel.rollout_id == rollout_id, RolloutLabel.label == label]
    return [*is_label, RolloutLabel.version == version]


def _row(session: Session, rollout_id: str, label: str) -> RolloutLabel | None:
    session.expire_all()
    return session.get(RolloutLabel, (rollout_id, label))


def _find_group(session: Session, rollout_id: str) -> RolloutGroup:
    completion = find_completion(session, rollout_id)
    group = session.get(RolloutGroup, completion.group_id) if completion else None
    if group is None:
        raise NotFound(f"there is no completion {rollout_id!r}")
    return group
