"""Parse the tests of a row from the formats of code datasets."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-6
"""Maximum relative difference at which two numbers with a decimal point count as equal."""


@dataclass(frozen=True, slots=True)
class OutputTest:
    """A test with standard input and the expected standard output."""

    stdin: str
    output: str


@dataclass(frozen=True, slots=True)
class CallTest:
    """A test with a function call and the expected value."""

    function: str
    arguments: tuple[Any, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class AssertTest:
    """A test with Python code that passes if it raises no error."""

    code: str


Test = OutputTest | CallTest | AssertTest


def read_tests(raw: Any) -> list[Test]:
    """Return the tests in a value of a dataset, which may be none.

    These formats are supported, also as JSON text: a list of assert statements, a list of {"input",
    "output"}, and {"inputs": [...], "outputs": [...]}, with "fn_name" if inputs are arguments of that
    function. Other text with an `assert` is one test.
    """
    if isinstance(raw, str):
        try:
            return read_tests(json.loads(raw)) if raw.lstrip()[:1] in ("[", "{") else _parse_assertions(raw)
        except (ValueError, RecursionError):
            return _parse_assertions(raw)
    if isinstance(raw, Mapping):
        return _parse_columns(raw)
    if isinstance(raw, Sequence) and not isinstance(raw, bytes):
        return [test for item in raw for test in _parse_item(item)]
    return []


def _parse_assertions(text: str) -> list[Test]:
    return [AssertTest(text)] if "assert" in text else []


def _parse_item(item: Any) -> list[Test]:
    if isinstance(item, str):
        return _parse_assertions(item)
    if isinstance(item, Mapping) and {"input", "output"} <= item.keys():
        return _make_pair(str(item.get("fn_name") or ""), item["input"], item["output"])
    return []


def _parse_columns(raw: Mapping[str, Any]) -> list[Test]:
    inputs, outputs = raw.get("inputs"), raw.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        return []
    name = str(raw.get("fn_name") or "")
    return [
        test
        for test_input, test_output in zip(inputs, outputs, strict=True)
        for test in _make_pair(name, test_input, test_output)
    ]


def _make_pair(name: str, test_input: Any, test_output: Any) -> list[Test]:
    if name:
        return [
            CallTest(name, tuple(test_input) if isinstance(test_input, list) else (test_input,), test_output)
        ]
    return [OutputTest(_join_lines(test_input), _join_lines(test_output))]


def _join_lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def is_same_output(output: str, expected: str) -> bool:
    """Return whether two outputs have the same words. Numbers with a decimal point may differ by rounding."""
    words, expected_words = output.split(), expected.split()
    return len(words) == len(expected_words) and all(map(_is_same_word, words, expected_words))


def _is_same_word(word: str, expected: str) -> bool:
    if word == expected:
        return True
    if "." not in word + expected or len(word) > 40:
        return False
    try:
        return math.isclose(float(word), float(expected), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except ValueError:
        return False


def is_same_value(value: Any, expected: Any) -> bool:
    """Return whether the `value` of a function, as `encode_value` wrote it, equals a row's JSON value.

    A tuple counts as a list. Some datasets wrap each result in a list with one item, and both forms are
    accepted. Raise ValueError if a value has no JSON form, such as a set, bytes or a complex number. The
    value is never decoded here, because its author may have chosen malicious numbers and hashes.
    """
    json_value = _to_json(value)
    return bool(json_value == expected) or (isinstance(expected, list) and expected == [json_value])


def _to_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, items)] = value.items()
    if kind in ("list", "tuple"):
        return [_to_json(item) for item in items]
    if kind == "dict":
        return {str(_to_json(key)): _to_json(item) for key, item in items}
    raise ValueError(f"expected a value of JSON, got {kind!r:.20}")
