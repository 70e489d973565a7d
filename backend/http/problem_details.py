"""Error responses in a single format: RFC 9457 problem details."""

import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from backend.base.errors import FieldError, GrpoLabError, InvalidRequest
from backend.base.logs import request_id
from backend.base.redaction import redact_document, secret_errors
from backend.base.wording import plain_message
from backend.http.auth.permissions import permitted_methods, required_access
from backend.http.frontend import is_navigation, page_response
from backend.storage.faults import Fault, database_fault, disk_fault

logger = logging.getLogger(__name__)

REMEDIES = {
    "away": "try again",
    "busy": "try again",
    "full": "nothing was changed; free some space and try again",
    "read_only": "nothing was changed; make it writable and try again",
    "broken": "nothing was changed; check the disk and try again",
    "damaged": "nothing was changed",
}
"""Suggestion for the user, by kind of fault."""

UNCERTAIN = "check whether the change was stored before you try again"
"""Suggestion if the connection may have failed after the commit."""

MEDIA_TYPE = "application/problem+json"
MAX_SHOWN_CHARACTERS = 80

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {
                    "path": {"type": "string"},
                    "message": {"type": "string"},
                    "position": {"type": "integer"},
                },
            },
        },
    },
}

ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "Any error", "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA}}}
}
"""Error responses that every route declares."""


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: Iterable[FieldError] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """Return an error response with problem details."""
    content: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if error_items := [
        {name: value for name, value in error._asdict().items() if value is not None} for error in errors
    ]:
        content["errors"] = error_items
    if current_request_id := request_id():
        content["request_id"] = current_request_id
    return Response(
        orjson.dumps(_replace_surrogates(redact_document(content))),
        status,
        headers=headers,
        media_type=MEDIA_TYPE,
    )


def _replace_surrogates(document: Any) -> Any:
    """Return a document without lone surrogates, which may occur in a client's text but not in UTF-8."""
    if isinstance(document, str):
        return document.encode("utf-8", "replace").decode()
    if isinstance(document, dict):
        return {key: _replace_surrogates(value) for key, value in document.items()}
    return [_replace_surrogates(value) for value in document] if isinstance(document, list) else document


def error_response(scope: Scope, error: Exception) -> Response:
    """Return the response to an error outside the application, to which its handlers do not apply."""
    if isinstance(error, GrpoLabError):
        return _handle_grpolab_error(Request(scope), error)
    if isinstance(error, HTTPException):
        return _handle_http_error(Request(scope), error)
    logger.error("cannot use the state directory", exc_info=error)
    detail = "the service cannot use its state directory at the moment; see the service's log"
    return problem(503, "Unavailable", detail, headers={"Retry-After": "5"})


def add_error_handlers(app: FastAPI) -> None:
    """Add handlers that give all error responses of this application the same format."""
    app.add_exception_handler(GrpoLabError, _handle_grpolab_error)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(SQLAlchemyError, _handle_database_error)
    app.add_exception_handler(OSError, _handle_disk_error)
    app.add_exception_handler(Exception, _handle_unexpected_error)


def _handle_grpolab_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, GrpoLabError)  # noqa: S101 - registered for this class
    errors = error.errors if isinstance(error, InvalidRequest) else ()
    headers = {"Retry-After": str(error.retry_seconds)} if error.retry_seconds else None
    return problem(error.status, error.title, error.detail, errors=errors, headers=headers)


def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    title = HTTPStatus(error.status_code).phrase
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND and detail == title:
        if required_access(request.method, request.scope["path"]) is None and is_navigation(request):
            return page_response(HTTPStatus.NOT_FOUND)
        detail = f"there is nothing at {request.scope['path']}"
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(permitted_methods(request.scope["path"]))
        detail = f"{request.method} is not possible at {request.scope['path']}"
    return problem(error.status_code, title, detail, headers=headers)


def _handle_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    errors = [_field_error(item) for item in error.errors()]
    detail = "; ".join(f"{field_error.path}: {field_error.message}" for field_error in errors)
    return problem(422, "Invalid request", detail, errors=errors)


def _field_error(item: dict[str, Any]) -> FieldError:
    """Return Pydantic's message with the input, shortened because it may be long, NaN or not JSON."""
    location, *segments = (str(segment) for segment in item["loc"])
    path = ".".join(segments) or location
    if item["type"] == "unstorable":
        return FieldError(item["ctx"]["path"] or path, item["ctx"]["reason"])
    message = plain_message(str(item["msg"]))
    if item["type"] == "missing":
        return FieldError(path, "is required")
    if item["type"] == "extra_forbidden":
        return FieldError(path, "there is no such field")
    if isinstance(item.get("input"), str | int | float | bool) and not any(secret_errors(str(item["input"]))):
        input_text = repr(item["input"])
        message += (
            f", got {input_text if len(input_text) <= MAX_SHOWN_CHARACTERS else input_text[:77] + '...'}"
        )
    return FieldError(path, message)


def _handle_database_error(request: Request, error: Exception) -> Response:
    settings = request.app.state.lab.settings
    fault = database_fault(error, settings.effective_database_url)
    return (
        _handle_unexpected_error(request, error) if fault is None else fault_response(request, fault, error)
    )


def _handle_disk_error(request: Request, error: Exception) -> Response:
    fault = disk_fault(error, request.app.state.lab.settings.state)
    return (
        _handle_unexpected_error(request, error) if fault is None else fault_response(request, fault, error)
    )


def fault_response(request: Request, fault: Fault, error: BaseException) -> Response:
    """Return the response to a fault of database or disk: 507 if the disk is full, else 503."""
    logger.warning("%s: %s", fault.sentence, str(error).partition("\n")[0])
    status = HTTPStatus.INSUFFICIENT_STORAGE if fault.kind == "full" else HTTPStatus.SERVICE_UNAVAILABLE
    is_uncertain = fault.kind == "away" and request.method not in ("GET", "HEAD")
    detail = f"{fault.sentence}: {UNCERTAIN if is_uncertain else REMEDIES[fault.kind]}"
    return problem(status, status.phrase, detail, headers={"Retry-After": "2"})


def _handle_unexpected_error(_request: Request, error: Exception) -> Response:
    return problem(500, "Internal error", "an unexpected error; see the service's log")
