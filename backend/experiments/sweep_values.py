"""Parse the values of a swept knob, which are a text or a list.

    1e-4, 3e-4, 1e-3        the listed values
    1e-5..1e-3 log 5        five values at equal ratios, including both ends
    0..1 lin 5              five values at equal distances
    2..16 step 2            from 2 in steps of 2
    1..4                    every whole number, if the knob takes whole numbers
    1e-5..1e-3 log, 0..1    any value of a range, only for random sweeps, and not with other values

Numbers of a range are computed exactly and on demand: a range of a billion values is counted, but not listed.
"""

import math
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import orjson

MAX_LISTED = 500
"""Maximum number of values that are listed; larger ranges are only counted."""

_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})(?:\s+(log|lin|step)(?:\s+({_NUMBER}))?)?")
_WORDS = {"true": True, "false": False}
SIGNIFICANT_DIGITS = 6
"""Significant digits of the values within a range that is wide enough for them."""
NARROW_SHARE = Fraction(1, 100)
"""Width of a range, as a share of its larger end, below which values are not rounded."""
MAX_NUMBER = 1e100
WHOLE_NUMBER_LIMIT = 2**63
"""Smallest integer that does not fit in the largest database columns."""
MAX_COUNTED = 2**53


@dataclass(frozen=True, slots=True)
class Range:
    """A range of numbers; a `count` of 0 means any number in it."""

    low: Fraction
    high: Fraction
    count: int
    is_log: bool
    is_whole: bool
    step: Fraction = Fraction(0)
    """Distance between two values; 0 if the values are distributed between both ends."""

    def value(self, share: float, index: int = 0) -> Any:
        """Return the value at a share of the way from low to high, or at an index of a stepped range."""
        if self.step:
            return _number(self.low + index * self.step, is_whole=self.is_whole)
        if share in (0.0, 1.0):
            return _number(self.high if share else self.low, is_whole=self.is_whole)
        low, high = float(self.low), float(self.high)
        if self.is_log:
            number = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            number = float(self.low + Fraction(share) * (self.high - self.low))
        if self.is_whole:
            return round(number)
        is_wide = self.high - self.low >= NARROW_SHARE * max(abs(self.low), abs(self.high))
        return min(high, max(low, float(f"{number:.{SIGNIFICANT_DIGITS}g}") if is_wide else number))

    def value_at(self, index: int) -> Any:
        """Return the value at an index, starting at 0."""
        return self.value(index / (self.count - 1) if self.count > 1 else 0.0, index)

    def find_position(self, number: Any) -> float | int | None:
        """Return the position of a number as a share of the range or as an index; None if outside."""
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return None
        low, high = float(self.low), float(self.high)
        if not low <= number <= high:
            return None
        if self.step:
            return round((Fraction(number) - self.low) / self.step)
        if high == low:
            share = 0.0
        elif self.is_log:
            share = (math.log(number) - math.log(low)) / (math.log(high) - math.log(low))
        else:
            share = (number - low) / (high - low)
        share = min(1.0, max(0.0, share))
        return round(share * (self.count - 1)) if self.count else share

    def draw(self, rng: random.Random) -> Any:
        """Return a random value; all have equal probability."""
        return self.value_at(int(rng.random() * self.count)) if self.count else self.value(rng.random())


@dataclass(frozen=True, slots=True)
class Axis:
    """The distinct values of a knob: a list, or a range that is too long to be listed."""

    listed_values: tuple[Any, ...] = ()
    range: Range | None = None

    @property
    def count(self) -> int:
        """Number of values; 0 for a continuous range."""
        return len(self.listed_values) if self.range is None else self.range.count

    def draw(self, rng: random.Random) -> Any:
        """Return a random value."""
        return (
            self.listed_values[int(rng.random() * len(self.listed_values))]
            if self.range is None
            else self.range.draw(rng)
        )


def parse_axis(values: str | list[Any], base_value: Any) -> Axis:
    """Return the values of a knob; `base_value` is its value without the sweep, whose type determines how
    text is parsed.

    Raise ValueError with a sentence that names the invalid part.
    """
    if not isinstance(values, str):
        return Axis(unique_values(values))
    value_texts = [text.strip() for text in values.split(",") if text.strip()]
    if not value_texts:
        raise ValueError("enter at least one value")
    ranges = [_parse_range(text, base_value) for text in value_texts]
    for text, range_ in zip(value_texts, ranges, strict=True):
        if range_ is not None and range_.count > MAX_COUNTED:
            raise ValueError(f"'{text}' has {count_text(range_.count)} values, which are too many")
    first_range = ranges[0]
    if first_range is not None and len(value_texts) == 1 and not 0 < first_range.count <= MAX_LISTED:
        return Axis(range=first_range)
    for text, range_ in zip(value_texts, ranges, strict=True):
        if range_ is not None and not range_.count:
            raise ValueError(f"'{text}' has any number of values and must stand alone")
        if range_ is not None and range_.count > MAX_LISTED:
            raise ValueError(
                f"'{text}' has {count_text(range_.count)} values, at most {MAX_LISTED} can be listed"
            )
    return Axis(unique_values(_parse_values(value_texts, ranges, base_value)))


def _parse_values(value_texts: list[str], ranges: list[Range | None], base_value: Any) -> Iterator[Any]:
    for text, range_ in zip(value_texts, ranges, strict=True):
        if range_ is None:
            yield _parse_value(text, base_value)
        else:
            yield from (range_.value_at(index) for index in range(range_.count))


def _parse_range(text: str, base_value: Any) -> Range | None:
    """Return the range that a text describes; None if it is a single value."""
    if not (match := _RANGE.fullmatch(text)):
        if ".." in text and not isinstance(base_value, str):
            raise ValueError(f"'{text}' is not a range; write 1e-5..1e-3 log 5, 0..1 lin 5 or 2..16 step 2")
        return None
    low, high, scale, last = match.groups()
    start, end = _parse_fraction(low, text), _parse_fraction(high, text)
    if end < start:
        raise ValueError(f"'{text}' ends below its start")
    is_log = scale == "log"
    if is_log and start <= 0:
        raise ValueError(f"'{text}' must start above 0 for log")
    is_whole = _is_whole(base_value, low, high, scale)
    if is_whole and max(abs(start), abs(end)) >= WHOLE_NUMBER_LIMIT:
        raise ValueError(f"'{text}' has a number that is too large")
    if scale == "step" or (scale is None and is_whole):
        step = _parse_fraction(last, text) if last else Fraction(1)
        if step <= 0 or (scale == "step" and last is None):
            raise ValueError(f"'{text}' needs a step above 0")
        is_whole = is_whole and step.denominator == 1
        return Range(start, end, int((end - start) / step) + 1, is_log, is_whole, step)
    if last is None:
        return Range(start, end, 0, is_log, is_whole)
    count = _parse_fraction(last, text)
    if count.denominator != 1 or count < 2:
        raise ValueError(f"'{text}' needs a whole number of values, at least 2")
    return Range(start, end, int(count), is_log, is_whole)


def _is_whole(base_value: Any, low: str, high: str, scale: str | None) -> bool:
    """Return whether a range contains only whole numbers, like its knob, or if unknown, like its ends.

    The values between the ends of a `lin` or `log` range of an unknown knob can be any numbers.
    """
    if isinstance(base_value, (int, float)) and not isinstance(base_value, bool):
        return isinstance(base_value, int)
    if scale in ("lin", "log"):
        return False
    return low.lstrip("+-").isdigit() and high.lstrip("+-").isdigit()


def _parse_fraction(text: str, source: str) -> Fraction:
    number = float(text)
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"'{source}' has a number that is too large")
    return Fraction(repr(number))


def _number(value: Fraction, *, is_whole: bool) -> int | float:
    return int(value) if is_whole and value.denominator == 1 and abs(value) < MAX_COUNTED else float(value)


def _parse_value(text: str, base_value: Any) -> Any:
    if isinstance(base_value, str) or not re.fullmatch(_NUMBER, text):
        return text if isinstance(base_value, str) else _WORDS.get(text.lower(), text)
    number = _parse_fraction(text, text)
    return _number(number, is_whole=not isinstance(base_value, float))


def unique_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values without repetitions, in order; 1 and 1.0 are equal, but 1 and `true` are not."""
    by_key: dict[bytes, Any] = {}
    for value in values:
        by_key.setdefault(value_key(value), value)
    return tuple(by_key.values())


def value_key(value: Any) -> bytes:
    """Return bytes that are equal for equal values."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return orjson.dumps(int(value) if is_whole else value, option=orjson.OPT_SORT_KEYS)


def count_text(count: int) -> str:
    """Return a number for a sentence: in full, or as a power of ten."""
    return f"{count:,}" if count < 10**15 else f"about 10^{math.log10(count):.0f}"
