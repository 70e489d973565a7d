"""HTTP route of exports."""

from typing import Annotated

from fastapi import Query
from starlette.responses import StreamingResponse

from backend.base.errors import Conflict
from backend.exchange.exports.card import model_card
from backend.exchange.exports.facts import find_checkpoint, read_card_facts
from backend.exchange.exports.files import model_stream
from backend.http.dependencies import ReadSession, SettingsOf
from backend.http.routing import Router
from backend.runs.origin import has_run_config
from backend.storage.models import Run

router = Router(prefix="/api/v1/runs", tags=["runs"])


@router.get("/{run_id}/model", response_class=StreamingResponse)
def model(
    run_id: str,
    session: ReadSession,
    settings: SettingsOf,
    step: Annotated[int | None, Query(ge=0, lt=2**31, description="Without it the newest.")] = None,
) -> StreamingResponse:
    """Download the model of a checkpoint as a tar file for `from_pretrained`, with a model card.

    For a LoRA run it contains the adapter; `grpolab export` merges it into the base model.
    """
    checkpoint = find_checkpoint(session, run_id, step)
    if not has_run_config(session.get_one(Run, run_id)):
        raise Conflict("this run is another trainer's: it has no model here")
    card = model_card(read_card_facts(session, checkpoint), is_merged=False)
    content = model_stream(settings, checkpoint, card)
    name = f"attachment; filename=model-{run_id}-{checkpoint.path}.tar"
    return StreamingResponse(content, media_type="application/x-tar", headers={"Content-Disposition": name})
