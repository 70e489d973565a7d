"""A stored completion, and its public id, which follows from that of its group and its place in it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from backend.base.text import clean_text
from backend.storage.engine import CROCKFORD

DIGITS = 10
"""Of an id, at its end: the number of a group within its step, to which the position is added."""

ID = re.compile(f"[{CROCKFORD}]{{26}}")

PAIRS = [first + second for first in CROCKFORD for second in CROCKFORD]
"""Ten bits as two characters."""

_VALUE = {pair: value for value, pair in enumerate(PAIRS)}


class Completion(NamedTuple):
    """One completion with its rewards and its advantage."""

    group_id: str
    position: int
    """Place within the group, 0..G-1."""
    text: str
    """As the policy wrote it: lone surrogates and NUL are kept."""
    reward: float | None
    """Total reward; None when the completion could not be scored, or where it is not finite."""
    advantage: float | None
    tokens: int
    finish_reason: str
    correct: bool | None
    rewards: Mapping[str, Any]
    """Each reward term, before its weight."""
    flags: Sequence[str] = ()
    turns: Sequence[Mapping[str, Any]] = ()
    """Calls of tools and their answers: see backend.rollouts.turns."""
    non_finite: Mapping[str, Any] | None = None
    """`reward` or `advantage` that is NaN, an infinity or -0.0, by name."""

    @property
    def id(self) -> str:
        """The public id."""
        return id_at(self.group_id, self.position)

    @property
    def clean_text(self) -> str:
        """The text as it is searched and shown to programs: without NUL and lone surrogates."""
        is_clean = self.text.isascii() and "\0" not in self.text
        return self.text if is_clean else clean_text(self.text)

    def spelled(self, name: str) -> float | str | None:
        """`reward` or `advantage` as JSON has it."""
        number: float | str | None = (self.non_finite or {}).get(name, getattr(self, name))
        return number


def id_at(group_id: str, position: int) -> str:
    """The id of a group's completion; at position 0 the group's own."""
    return group_id[:-DIGITS] + base32(number_of(group_id) + position, DIGITS // 2) if position else group_id


def number_of(each_id: str) -> int:
    """The number at the end of an id."""
    value = 0
    for offset in range(len(each_id) - DIGITS, len(each_id), 2):
        value = value << 10 | _VALUE[each_id[offset : offset + 2]]
    return value


def base32(number: int, pairs: int) -> str:
    """The last bits of a number as so many pairs of characters."""
    return "".join([PAIRS[number >> shift & 1023] for shift in range(10 * (pairs - 1), -1, -10)])
