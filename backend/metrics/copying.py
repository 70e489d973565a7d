"""Write many points to Postgres with COPY in the binary format, which numpy builds without a Python loop."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

MIN_COPIED_POINTS = 1_000
"""Minimum number of points for COPY. Fewer points are written with a single statement."""

COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER = b"\xff\xff"

ROW_DTYPE = np.dtype(
    [
        ("fields", ">i2"),
        *(("key_size", ">i4"), ("key", ">i4")),
        *(("step_size", ">i4"), ("step", ">i4")),
        *(("kind_size", ">i4"), ("kind", ">i2")),
        *(("value_size", ">i4"), ("value", ">f8")),
    ]
)
"""Layout of a row: the number of fields, and each field after its size."""

CREATE_TABLE = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS new_metric "
    "(key_id integer, step integer, kind smallint, value double precision) ON COMMIT DELETE ROWS"
)

COPY_STATEMENT = "COPY new_metric (key_id, step, kind, value) FROM STDIN (FORMAT binary)"

MERGE_STATEMENT = """
INSERT INTO metric (run_id, key_id, step, attempt, kind, value)
SELECT %s, key_id, step, %s, kind, CASE WHEN kind IN (1, 2, 3) THEN NULL ELSE value END FROM new_metric
ORDER BY key_id, step
ON CONFLICT (run_id, key_id, step, attempt) DO UPDATE SET kind = excluded.kind, value = excluded.value
"""


def copy_points(
    session: Session,
    run_id: str,
    attempt: int,
    columns: tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]],
) -> None:
    """Store points of an attempt, given as columns of keys, steps, kinds and values with unique (key, step).

    Raises SQLAlchemy errors, like any other statement.
    """
    keys, steps, kinds, values = columns
    rows = np.empty(len(keys), ROW_DTYPE)
    rows["fields"] = 4
    for name, column in (("key", keys), ("step", steps), ("kind", kinds), ("value", values)):
        rows[f"{name}_size"] = ROW_DTYPE[name].itemsize
        rows[name] = column
    rows["value"] += 0.0  # turns -0.0 into 0.0, because the kind stores the sign
    driver: Any = session.connection().connection.driver_connection
    dialect: Any = session.get_bind().dialect
    try:
        with driver.cursor() as cursor:
            cursor.execute(CREATE_TABLE)
            with cursor.copy(COPY_STATEMENT) as copy:
                copy.write(COPY_HEADER + rows.tobytes() + COPY_TRAILER)
            cursor.execute(MERGE_STATEMENT, (run_id, attempt))
            cursor.execute("DELETE FROM new_metric")
    except dialect.dbapi.Error as error:
        raise DBAPIError.instance(
            COPY_STATEMENT, None, error, dialect.dbapi.Error, dialect=dialect
        ) from error
