"""The kinds of request that a sandboxed process answers, called operations."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Request = Mapping[str, Any]


def _do_nothing(_request: Request) -> None:
    return None


class Operation(NamedTuple):
    """One kind of request.

    Each module that the sandbox serves defines `OPERATIONS`, a mapping of names to operations.
    """

    answer: Callable[[Request], Any]
    """Function that computes the answer, which must be serializable as JSON."""

    prepare: Callable[[Request], None] = _do_nothing
    """Function called in the warm parent before each request, for imports and caches.

    It must not read hostile text.
    """

    is_forked: bool = True
    """Whether `answer` reads hostile text and must run in a fork instead of the warm parent."""

    is_program: bool = False
    """Whether `answer` runs a program, which reads the request's `stdin`, prints, and returns an exit code.

    The value is {"output": "...", "code": 0}. Printing is the only way in which the program can answer.
    """
