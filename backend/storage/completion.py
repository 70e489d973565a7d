"""A stored completion and its public id, which is computed from its group's id and its position."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from backend.base.text import clean_text
from backend.storage.engine import CROCKFORD_ALPHABET

NUMBER_DIGITS = 10
"""Number of characters at the end of an id that encode the group's number plus the position."""

ID_PATTERN = re.compile(f"[{CROCKFORD_ALPHABET}]{{26}}")

BASE32_PAIRS = [first + second for first in CROCKFORD_ALPHABET for second in CROCKFORD_ALPHABET]
"""The two characters that encode each value of ten bits."""

_VALUE_BY_PAIR = {pair: value for value, pair in enumerate(BASE32_PAIRS)}


class Completion(NamedTuple):
    """One completion with its rewards and its advantage."""

    group_id: str
    position: int
    """Position within the group, 0..G-1."""
    text: str
    """Text exactly as the policy wrote it, including lone surrogates and NUL."""
    reward: float | None
    """Total reward, or None if the completion could not be scored or the reward is not finite."""
    advantage: float | None
    tokens: int
    finish_reason: str
    correct: bool | None
    rewards: Mapping[str, Any]
    """Value of each reward term, before its weight is applied."""
    flags: Sequence[str] = ()
    turns: Sequence[Mapping[str, Any]] = ()
    """Tool calls and their answers. See backend.rollouts.turns."""
    non_finite: Mapping[str, Any] | None = None
    """The spelled value of `reward` or `advantage` if it is NaN, an infinity or -0.0, by field name."""

    @property
    def id(self) -> str:
        """The public id of the completion."""
        return public_id(self.group_id, self.position)

    @property
    def clean_text(self) -> str:
        """The text without NUL and lone surrogates, as searches and API clients see it."""
        is_clean = self.text.isascii() and "\0" not in self.text
        return self.text if is_clean else clean_text(self.text)

    def spell(self, name: str) -> float | str | None:
        """Return the field `reward` or `advantage` in its JSON form."""
        number: float | str | None = (self.non_finite or {}).get(name, getattr(self, name))
        return number


def public_id(group_id: str, position: int) -> str:
    """Return the id of a completion. The id at position 0 is the id of the group."""
    return (
        group_id[:-NUMBER_DIGITS] + base32(number_in_id(group_id) + position, NUMBER_DIGITS // 2)
        if position
        else group_id
    )


def number_in_id(item_id: str) -> int:
    """Return the number that the last NUMBER_DIGITS characters of an id encode."""
    value = 0
    for offset in range(len(item_id) - NUMBER_DIGITS, len(item_id), 2):
        value = value << 10 | _VALUE_BY_PAIR[item_id[offset : offset + 2]]
    return value


def base32(number: int, pairs: int) -> str:
    """Encode the lowest bits of a number as `pairs` pairs of characters."""
    return "".join([BASE32_PAIRS[number >> shift & 1023] for shift in range(10 * (pairs - 1), -1, -10)])
