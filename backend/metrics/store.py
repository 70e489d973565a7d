"""Write metric points to the database idempotently, so that a repeated step changes nothing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from backend.base.errors import Unavailable
from backend.metrics.block_codec import BlockDamaged
from backend.metrics.blocks import Stored
from backend.metrics.copying import MIN_COPIED_POINTS, copy_points
from backend.metrics.sealing import put_into_blocks, reopen, seal_curves
from backend.storage.engine import insert_into, is_postgres
from backend.storage.models import MetricKey
from backend.storage.numbers import number_kinds, to_stored

Row = tuple[str, int, int, int, int, float | None]
"""A row of the table `metric`: run_id, key_id, step, attempt, kind, value."""

NAME_PATTERN = re.compile(r"[\w./@-]{1,128}")

Floats = NDArray[np.float64]

_key_ids_by_engine: WeakKeyDictionary[Engine, dict[str, int]] = WeakKeyDictionary()
"""Committed ids of metric names by engine. They never change."""

NEW_KEYS_MARK = "has made metric keys"
"""Key in `session.info` after the session has inserted names, which may still be rolled back."""

_UPSERT_SQLITE = """
INSERT INTO metric (run_id, key_id, step, attempt, kind, value) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, key_id, step, attempt) DO UPDATE SET kind = excluded.kind, value = excluded.value
"""

_UPSERT_POSTGRES = text("""
INSERT INTO metric (run_id, key_id, step, attempt, kind, value)
SELECT :run, unnest(CAST(:keys AS integer[])), unnest(CAST(:steps AS integer[])), :attempt,
       unnest(CAST(:kinds AS smallint[])), unnest(CAST(:values AS double precision[]))
ON CONFLICT (run_id, key_id, step, attempt) DO UPDATE SET kind = excluded.kind, value = excluded.value
""")


def write_points(
    session: Session, run_id: str, attempt: int, steps: Iterable[tuple[int, Mapping[str, float]]]
) -> None:
    """Store the metrics of steps, in any order. Existing points are replaced.

    Raises Unavailable if a point belongs to a block that cannot be read. The block is not overwritten,
    because the error may be temporary, such as an intermittent disk error.
    """
    steps = list(steps)
    keys = key_ids(session, {name for _, metrics in steps for name in metrics})
    points = {(keys[name], step): float(value) for step, metrics in steps for name, value in metrics.items()}
    if not points:
        return
    sealed_step = reopen(session, run_id, attempt, [step for _, step in points])
    late_points = {key_step: value for key_step, value in points.items() if key_step[1] <= sealed_step}
    if late_points:
        try:
            put_into_blocks(session, run_id, attempt, _points_by_key(late_points, attempt))
        except BlockDamaged as error:
            raise Unavailable(f"nothing was stored: {error}; a backup may have its points") from None
    new_points = (
        points
        if not late_points
        else {key_step: value for key_step, value in points.items() if key_step not in late_points}
    )
    if is_postgres(session) and len(new_points) >= MIN_COPIED_POINTS:
        keys_steps, values = np.array(list(new_points)), np.array(list(new_points.values()))
        columns = (keys_steps[:, 0], keys_steps[:, 1], number_kinds(values), values)
        copy_points(session, run_id, attempt, columns)
    elif new_points:
        rows = [(run_id, key, step, attempt, *to_stored(value)) for (key, step), value in new_points.items()]
        _write_rows(session, run_id, attempt, rows)


def _write_rows(session: Session, run_id: str, attempt: int, rows: Sequence[Row]) -> None:
    if is_postgres(session):
        _write_postgres(session, run_id, attempt, rows)
    else:
        session.connection().exec_driver_sql(_UPSERT_SQLITE, rows)


def _points_by_key(points: Mapping[tuple[int, int], float], attempt: int) -> dict[int, Stored]:
    """Group points by metric key, in the order of steps."""
    by_key = {}
    for key, points_of_key in groupby(
        sorted(points.items(), key=lambda point: point[0]), lambda point: point[0][0]
    ):
        steps, values = zip(*((step, value) for (_, step), value in points_of_key), strict=True)
        by_key[key] = Stored(np.array(steps), np.full(len(steps), attempt), np.array(values))
    return by_key


def _write_postgres(session: Session, run_id: str, attempt: int, rows: Sequence[Row]) -> None:
    _, keys, steps, _, kinds, values = zip(*rows, strict=True)
    columns: dict[str, Any] = {
        "keys": list(keys),
        "steps": list(steps),
        "kinds": list(kinds),
        "values": list(values),
    }
    session.execute(_UPSERT_POSTGRES, {"run": run_id, "attempt": attempt, **columns})


def write_series(
    session: Session, run_id: str, attempt: int, series: Mapping[str, tuple[NDArray[np.int64], Floats]]
) -> None:
    """Store whole curves of an attempt that has ended and has no points yet.

    `series` maps metric names to (steps, values) in the order of steps.
    """
    keys = key_ids(session, series)
    seal_curves(
        session,
        run_id,
        attempt,
        {
            keys[name]: Stored(steps, np.broadcast_to(attempt, len(steps)), values)
            for name, (steps, values) in series.items()
            if len(steps)
        },
    )


def key_ids(session: Session, names: Iterable[str]) -> dict[str, int]:
    """Return the id of each metric name. New names are inserted. Raises ValueError for an invalid name."""
    known_ids = _key_ids_by_engine.setdefault(session.get_bind().engine, {})
    ids = {name: known_ids[name] for name in set(names) if name in known_ids}
    if missing_names := sorted(set(names) - ids.keys()):
        if invalid_names := [name for name in missing_names if not NAME_PATTERN.fullmatch(name)]:
            raise ValueError(
                f"a metric's name is 1 to 128 of A-Z, 0-9, _ . / @ -, got {invalid_names[0][:40]!r}"
            )
        stored_ids = find_keys(session, missing_names)
        if not session.info.get(NEW_KEYS_MARK):
            known_ids.update(stored_ids)
        ids |= stored_ids
        if new_names := [name for name in missing_names if name not in stored_ids]:
            ids |= _make_keys(session, new_names)
    return ids


def _make_keys(session: Session, names: Sequence[str]) -> dict[str, int]:
    # Not cached, because an id does not exist if its transaction is rolled back.
    session.info[NEW_KEYS_MARK] = True
    session.execute(
        insert_into(session, MetricKey).on_conflict_do_nothing(), [{"name": name} for name in names]
    )
    return find_keys(session, names)


def find_keys(session: Session, names: Iterable[str]) -> dict[str, int]:
    """Return the ids of the metric names that exist."""
    query = select(MetricKey.name, MetricKey.id).where(MetricKey.name.in_(list(names)))
    return {row.name: row.id for row in session.execute(query)}
