"""HTTP route of the search in the help pages."""

from backend.base.documented import Documented
from backend.http.help import MAX_MATCHES, HelpMatch, Text, find_matches
from backend.http.responses import Json, Limit
from backend.http.routing import Router

router = Router(prefix="/api/v1/help", tags=["help"])


class HelpMatches(Documented):
    """Sections of help pages, best first."""

    items: list[HelpMatch]


@router.get("", response_model=HelpMatches)
def find(query: Text = "", limit: Limit = MAX_MATCHES) -> Json:
    """Search the help pages for sections that contain all words of the query, best first."""
    return Json({"items": [match.model_dump() for match in find_matches(query, limit)]})
