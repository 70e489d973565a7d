"""Routers of the API: every route opens, uses and closes its database session in one thread.

The guard has parsed the body of a request, which is then validated in a thread, too.
"""

import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from enum import Enum
from functools import wraps
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from backend.http.bodies import NO_DOCUMENT
from backend.http.problem_details import ERRORS

MAX_ERRORS = 200
"""Maximum number of errors that are reported for a body."""


class Route(APIRoute):
    """A route that enters and exits its context managers in the thread that runs its function.

    The function receives the values that the context managers among its dependencies yield. FastAPI's
    dependencies with `yield` switch threads before and after the function, which takes longer than a short
    query.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _enter_contexts(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler with a validated body, because it would validate in the event loop."""
        handle, field = super().get_route_handler(), self.body_field
        model: Any = field.field_info.annotation if field else None
        adapter: TypeAdapter[Any] | None = TypeAdapter(model) if field else None

        async def handle_parsed(request: Request) -> Response:
            state = request.scope.get("state", {})
            if "document" not in state:
                return await handle(request)
            document = state.pop("document")
            if adapter is not None and document is not NO_DOCUMENT:
                document = await anyio.to_thread.run_sync(_validate, adapter, document)
            return await handle(_ParsedRequest(document, request))

        return handle_parsed


def _validate(adapter: TypeAdapter[Any], document: Any) -> Any:
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        raise RequestValidationError(_errors(error)) from None


def _errors(error: ValidationError) -> list[dict[str, Any]]:
    """Return the errors in FastAPI's format, or only their number if there are many."""
    if (count := error.error_count()) > MAX_ERRORS:
        reason = f"has {count:,} mistakes; more than {MAX_ERRORS} are not listed: check how it is made"
        return [{"type": "too_many", "loc": ("body",), "msg": reason}]
    items = error.errors(include_url=False)
    return [{**item, "loc": ("body", *item["loc"])} for item in items]


class _ParsedRequest(Request):
    """A request whose body is a validated document, so that validating it again takes no time."""

    def __init__(self, document: Any, request: Request) -> None:
        super().__init__(request.scope, request.receive)
        self._document = document

    async def body(self) -> bytes:
        """Return a non-empty placeholder if there is a document, so that FastAPI calls `json`."""
        return b"" if self._document is NO_DOCUMENT else b"null"

    async def json(self) -> Any:
        """Return the validated document."""
        return self._document


class Router(APIRouter):
    """Routes of a part of the service, with common error responses."""

    def __init__(self, *, prefix: str = "", tags: list[str | Enum]) -> None:
        super().__init__(prefix=prefix, tags=tags, responses=ERRORS, route_class=Route)


def _enter_contexts(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    def answer(**arguments: Any) -> Any:
        with ExitStack() as stack:
            for name, value in arguments.items():
                if isinstance(value, AbstractContextManager):
                    arguments[name] = stack.enter_context(value)
            return endpoint(**arguments)

    return answer
