"""Operations: the work that a sandboxed process does on request."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Request = Mapping[str, Any]


def _nothing(_request: Request) -> None:
    return None


class Operation(NamedTuple):
    """One kind of work. A module that the sandbox serves holds a mapping `OPERATIONS` of names to these."""

    answer: Callable[[Request], Any]
    """The work itself; what it returns must be JSON."""

    prepare: Callable[[Request], None] = _nothing
    """Done by the warm parent before each answer: imports and caches. It must not look at hostile text."""

    is_forked: bool = True
    """Whether `answer` reads hostile text, and so has a process of its own; else the warm parent does it."""

    is_program: bool = False
    """Whether `answer` runs a program, which reads the request's `stdin`, prints, and returns an exit code.

    The value is {"output": "...", "code": 0}; the process has no other way to answer than to print.
    """
