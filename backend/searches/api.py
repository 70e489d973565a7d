"""Routes of searches."""

from fastapi import APIRouter

from backend.db.engine import reading
from backend.http.dependencies import LabOf, ReadSession
from backend.http.problem_details import ERRORS
from backend.http.responses import Json
from backend.searches.advance import stop_search
from backend.searches.schemas import SearchItem
from backend.searches.show import shown_search

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"], responses=ERRORS)


@router.get("/{experiment_id}/search", response_model=SearchItem)
def show(experiment_id: str, session: ReadSession) -> Json:
    """The search of an experiment: its configurations, the best so far, and the final comparison."""
    return Json(shown_search(session, experiment_id))


@router.post("/{experiment_id}/search/stop", response_model=SearchItem)
def stop(experiment_id: str, lab: LabOf) -> Json:
    """Try no further configuration, and stop the runs of the search that go on."""
    with lab.sessions.begin() as session:
        stop_search(session, experiment_id)
    with reading(lab.sessions) as session:
        return Json(shown_search(session, experiment_id))
