"""Operations: the kinds of request that a sandboxed process answers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Request = Mapping[str, Any]


def _do_nothing(_request: Request) -> None:
    return None


class Operation(NamedTuple):
    """One kind of request. A module that the sandbox serves defines `OPERATIONS`, a mapping of names to
    operations.
    """

    answer: Callable[[Request], Any]
    """Computes the answer, which must be JSON."""

    prepare: Callable[[Request], None] = _do_nothing
    """Called in the warm parent before each answer, for imports and caches. It must not read hostile text."""

    is_forked: bool = True
    """Whether `answer` reads hostile text and therefore runs in a fork; else it runs in the warm parent."""

    is_program: bool = False
    """Whether `answer` runs a program, which reads the request's `stdin`, prints, and returns an exit code.

    The value is {"output": "...", "code": 0}; printing is the only way in which the program can answer.
    """
