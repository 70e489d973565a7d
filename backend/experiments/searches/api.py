"""HTTP routes of searches."""

from typing import Annotated

from fastapi import Query

from backend.experiments.searches.advance import stop_search
from backend.experiments.searches.schemas import SearchItem, SearchList
from backend.experiments.searches.show import search_json
from backend.experiments.searches.store import is_search
from backend.http.dependencies import LabOf, ReadSession
from backend.http.responses import Json
from backend.http.routing import Router
from backend.storage.engine import open_read_session

router = Router(prefix="/api/v1/searches", tags=["searches"])


@router.get("", response_model=SearchList)
def list_of_experiment(session: ReadSession, experiment: Annotated[str, Query(max_length=200)]) -> Json:
    """Return the search of an experiment, with its configurations, best value and final comparison."""
    items = [search_json(session, experiment)] if is_search(session, experiment) else []
    return Json({"items": items})


@router.post("/{experiment_id}/stop", response_model=SearchItem)
def stop(experiment_id: str, lab: LabOf) -> Json:
    """Stop a search and its unfinished runs; no additional configurations are tried."""
    with lab.sessions.begin() as session:
        stop_search(session, experiment_id)
    with open_read_session(lab.sessions) as session:
        return Json(search_json(session, experiment_id))
