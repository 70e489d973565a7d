"""The row of an ended run without points."""

from typing import Any

from backend.storage.engine import new_id


def run_row(number: int, name: str, steps: int) -> dict[str, Any]:
    """Return the row of an ended run."""
    shared_columns: dict[str, Any] = {
        "variant": "",
        "config": {},
        "config_hash": "",
        "summary": {},
        "tags": [],
    }
    return shared_columns | {
        "id": new_id(),
        "name": name,
        "seed": number,
        "steps": steps,
        "last_step": steps,
        "status": "finished",
        "attempt": 1,
    }
