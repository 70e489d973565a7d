"""Idempotency keys: a repeated request with the same key creates nothing new.

The key is stored in the row that the request created, an experiment or a run, and deleted with it.
"""

import hashlib
import json
from typing import Annotated, Any

from fastapi import Depends, Header
from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from backend.base.errors import Conflict
from backend.base.redaction import refuse_secrets
from backend.storage.models import Experiment, Run


class KeyTaken(Conflict):
    """The Idempotency-Key was used for another request."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the Idempotency-Key {key!r} was already used for a different request: choose a new one"
        )


def _read_key(
    idempotency_key: Annotated[
        str,
        Header(
            max_length=200,
            pattern=r"^[\x21-\x7e]*$",
            description="Identifies this request: repeated with the same key and body it creates nothing.",
        ),
    ] = "",
) -> str:
    refuse_secrets(idempotency_key, "Idempotency-Key")
    return idempotency_key


Key = Annotated[str, Depends(_read_key)]
"""The Idempotency-Key of a request; empty if it has none."""


def request_digest(document: Any) -> str:
    """Return a digest that distinguishes a request from others with the same key."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def find_previous(session: Session, key: str, digest: str) -> str | None:
    """Return the id of the row that this request created earlier; raise KeyTaken if another request used the
    key.
    """
    if not key:
        return None
    tables = (Experiment, Run)
    query = union_all(*(select(t.id, t.request_hash).where(t.idempotency_key == key) for t in tables))
    id_by_digest = {row.request_hash: str(row.id) for row in session.execute(query)}
    if id_by_digest and digest not in id_by_digest:
        raise KeyTaken(key)
    return id_by_digest.get(digest)
