"""Routes of pushed runs, and of the client that pushes them."""

import pathlib
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import FileResponse

from backend.exchange.push.schemas import Batch, PushResponse
from backend.exchange.push.store import Owner, push, read_push_state
from backend.http.dependencies import LabOf, ReadSession
from backend.http.responses import Json
from backend.http.routing import Router

CLIENT = pathlib.Path(__file__).parent / "client" / "grpolab.py"
"""The downloadable client for other trainers."""

router = Router(tags=["pushes"])

Key = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        description="Id of the run, chosen by the client; each writer has ids of its own.",
    ),
]


@router.get("/api/v1/pushes/{key}", response_model=PushResponse)
def show(key: Key, request: Request, session: ReadSession) -> Json:
    """State of a run that this token pushes, and whether it should stop."""
    return Json(read_push_state(session, Owner(request.state.writer, key)).model_dump())


@router.post("/api/v1/pushes/{key}", response_model=PushResponse)
def append(key: Key, request: Request, lab: LabOf, body: Batch) -> Json:
    """Store records of a run; the first batch creates the run.

    A batch may be repeated: stored records are skipped. `Content-Encoding: gzip` is accepted.
    """
    return Json(push(lab.sessions, Owner(request.state.writer, key), body).model_dump())


@router.get("/grpolab.py", include_in_schema=False)
def client() -> FileResponse:
    """The client in one file: `curl -O`."""
    return FileResponse(CLIENT, media_type="text/x-python", headers={"Cache-Control": "no-cache"})
