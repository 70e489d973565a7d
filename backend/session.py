"""Who asks: pages show only what that role can do."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from backend.answers import Json
from backend.permissions import Role
from backend.problem import ERRORS

router = APIRouter(prefix="/api/v1", tags=["session"], responses=ERRORS)


class Session(BaseModel):
    """As whom this client is logged in."""

    role: Role


@router.get("/session", response_model=Session)
def session(request: Request) -> Json:
    """The role that the token or the cookie gives: a viewer reads everything and changes nothing."""
    return Json({"role": request.state.role})
