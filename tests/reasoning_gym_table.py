"""The table of tasks in backend/config/reasoning_gym_tasks.py, generated from the installed reasoning_gym.

Run it to regenerate the table: python -m tests.reasoning_gym_table
"""

import ast
import dataclasses
import inspect
import json
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

from worker.rewards.reasoning_gym.entries import library

RUN_PARAMETERS = ("seed", "size")
"""Parameters that a run sets itself."""

WORD_BY_TYPE = {
    "typing.Optional[int]": "int?",
    "typing.Optional[str]": "text?",
    "typing.Optional[list[str]]": "texts?",
    "list[str]": "texts",
    "tuple": "texts",
    "tuple[str]": "texts",
    "tuple[str, ...]": "texts",
    "typing.Sequence[str]": "texts",
    "list[float]": "numbers",
    "list[tuple[float, float]]": "pairs",
}
SIGN_BY_COMPARISON: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def config_classes() -> dict[str, Any]:
    """Return the config class of each task except `composite` by name."""
    library()
    from reasoning_gym.factory import DATASETS

    return {name: config for name, (_, config) in sorted(DATASETS.items()) if name != "composite"}


def parameters(config: Any) -> dict[str, str]:
    """Return the default of each JSON parameter if it is a single value, else a word for its type."""
    word_by_name = {
        field.name: _written(field)
        for field in dataclasses.fields(config)
        if field.name not in RUN_PARAMETERS
    }
    return {name: word for name, word in word_by_name.items() if word and "file" not in name}


def _written(field: Any) -> str:
    if typing.get_origin(field.type) is typing.Literal:
        return "|".join(typing.get_args(field.type))
    if field.type in (int, float, bool) and field.default is not None:
        return json.dumps(field.type(field.default))
    if field.type is str:
        return "text"
    is_plain = isinstance(field.type, type) and not typing.get_args(field.type)
    return WORD_BY_TYPE.get(field.type.__name__ if is_plain else repr(field.type), "")


def rules(config: Any) -> list[str]:
    """Return the comparisons that the task's `validate` asserts, between parameters and with numbers."""
    if not hasattr(config, "validate"):
        return []
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(config.validate))).body
    assert isinstance(function, ast.FunctionDef)
    tests = [line.test for line in function.body if isinstance(line, ast.Assert)]
    parameter_types = parameters(config)
    return list(dict.fromkeys(rule for test in tests for rule in _comparisons(test, parameter_types)))


def _comparisons(test: ast.expr, parameter_types: dict[str, str]) -> Iterator[str]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for operand in test.values:
            yield from _comparisons(operand, parameter_types)
    elif isinstance(test, ast.Compare):
        operands = [_side(expression, parameter_types) for expression in (test.left, *test.comparators)]
        for left_side, operator, right_side in zip(operands, test.ops, operands[1:], strict=False):
            if left_side and right_side and type(operator) in SIGN_BY_COMPARISON:
                yield f"{left_side}{SIGN_BY_COMPARISON[type(operator)]}{right_side}"


def _side(side: ast.expr, parameter_types: dict[str, str]) -> str:
    """Return a parameter or a number, or an empty text for anything else."""
    text = ast.unparse(side).removeprefix("self.")
    return text if text in parameter_types or text.lstrip("-").replace(".", "", 1).isdigit() else ""


def table() -> str:
    """Return the text of the table."""
    lines = []
    for name, config in config_classes().items():
        entries = [f"{key}={default}" for key, default in parameters(config).items()]
        entry = f"{name}: {' '.join(entries)}" + (
            f" ; {' '.join(known_rules)}" if (known_rules := rules(config)) else ""
        )
        lines += textwrap.wrap(entry, 108, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
