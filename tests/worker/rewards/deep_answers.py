"""Sandbox operations for tests, one of which answers with a deeply nested value."""

from functools import reduce
from typing import Any

from backend.base.sandbox.operation import Operation, Request

LEVELS = 400


def _deep(_request: Request) -> dict[str, Any]:
    start: dict[str, Any] = {}
    return reduce(lambda value, _: {"a": value}, range(LEVELS), start)


OPERATIONS = {"deep": Operation(_deep), "flat": Operation(lambda _request: {"a": 1})}
