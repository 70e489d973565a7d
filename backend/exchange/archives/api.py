"""HTTP route of archives."""

import threading

from starlette.responses import StreamingResponse

from backend.base.errors import Unavailable
from backend.exchange.archives.save import archive_run
from backend.http.dependencies import LabOf
from backend.http.routing import Router
from backend.http.timeout import take_time
from backend.storage.engine import open_read_session
from backend.storage.run_lookup import require_run

router = Router(prefix="/api/v1/runs", tags=["runs"])

ARCHIVE_SECONDS = 300.0
"""Time limit for creating an archive, in seconds."""

_one_at_a_time = threading.Lock()


@router.get("/{run_id}/archive", response_class=StreamingResponse)
def archive(run_id: str, lab: LabOf, *, checkpoints: bool = False) -> StreamingResponse:
    """Download a run as a tar file that another installation can import, with or without its checkpoints.

    It contains the config, metrics, rollouts with their tokens, and events; docs/export.md lists its files.
    If data could not be read, the header `Archive-Missing` contains the number of problems, and the manifest
    describes them.
    """
    with open_read_session(lab.sessions) as session:
        require_run(session, run_id)
    take_time(ARCHIVE_SECONDS)
    with _one_at_a_time:
        try:
            content, missing_data = archive_run(lab.sessions, lab.settings, run_id, checkpoints=checkpoints)
        except OSError as error:
            raise Unavailable(
                f"the archive cannot be written to {lab.settings.state}: {error.strerror}"
            ) from None
    headers = {"Content-Disposition": f"attachment; filename=run-{run_id}.tar"}
    if missing_data:
        headers["Archive-Missing"] = str(len(missing_data))
    return StreamingResponse(content, media_type="application/x-tar", headers=headers)
