"""Routers of the API: every route opens, uses and closes its database session in one thread."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from enum import Enum
from functools import wraps
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from backend.http.problem_details import ERRORS


class Route(APIRoute):
    """A route that enters what its function depends on, and leaves it, in the thread that runs the function.

    The function gets what the context managers among its dependencies yield. FastAPI's dependencies with
    `yield` change the thread before and after the function, which takes longer than a short query.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _entering(endpoint), **options)


class Router(APIRouter):
    """Routes of one part of the service, which answer errors alike."""

    def __init__(self, *, prefix: str = "", tags: list[str | Enum]) -> None:
        super().__init__(prefix=prefix, tags=tags, responses=ERRORS, route_class=Route)


def _entering(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    def answer(**given: Any) -> Any:
        with ExitStack() as stack:
            for name, value in given.items():
                if isinstance(value, AbstractContextManager):
                    given[name] = stack.enter_context(value)
            return endpoint(**given)

    return answer
