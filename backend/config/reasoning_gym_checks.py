"""Check the types and values of a reasoning_gym task's parameters without importing the library."""

import json
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from backend.config.reasoning_gym_tasks import Parameter, Rule, Task

MAX_INTEGER = 2**53
"""Maximum size of integers that every JSON parser reads exactly."""

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FLIPPED_OPERATORS = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

TYPE_WORDING = {
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "text": "text",
    "texts": "a list of texts",
    "numbers": "a list of numbers",
    "pairs": "a list of pairs of numbers",
}


def parameter_errors(name: str, task: Task, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (parameter, reason) for each parameter that is unknown, has a wrong type or breaks a rule."""
    type_errors = [(key, reason) for key in config if (reason := _type_error(name, task, key, config[key]))]
    invalid_keys = {key for key, _ in type_errors}
    return [
        *type_errors,
        *_broken_rules(name, task, {key: config[key] for key in config if key not in invalid_keys}),
    ]


def _type_error(name: str, task: Task, key: str, value: Any) -> str:
    if (parameter := task.parameters.get(key)) is None:
        return f"{name} takes {', '.join(task.parameters) or 'no parameter'}"
    if _fits(value, parameter.type):
        return ""
    return f"expected {_expected_text(parameter)}, got {_excerpt(value)}"


def _fits(value: Any, kind: str) -> bool:
    if kind.endswith("?"):
        return value is None or _fits(value, kind[:-1])
    match kind:
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER
        case "number":
            return isinstance(value, float) or _fits(value, "int")
        case "text":
            return isinstance(value, str)
        case "texts" | "numbers":
            return isinstance(value, list) and all(_fits(element, kind[:-1]) for element in value)
        case "pairs":
            return isinstance(value, list) and all(
                _fits(element, "numbers") and len(element) == 2 for element in value
            )
        case _:
            return value in kind.split("|")


def _expected_text(parameter: Parameter) -> str:
    kind = parameter.type.removesuffix("?")
    type_text = TYPE_WORDING.get(kind) or f"one of {', '.join(kind.split('|'))}"
    default = "" if parameter.default is None else f" (default {json.dumps(parameter.default)})"
    return f"{type_text}{' or null' if parameter.type.endswith('?') else ''}{default}"


def _broken_rules(name: str, task: Task, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield at most one broken rule per parameter. Missing parameters have the defaults of the library."""
    values = {key: parameter.default for key, parameter in task.parameters.items()} | dict(config)
    reported_parameters: set[str] = set()
    for rule in task.rules:
        left_value, right_value = (
            _value(operand, values) for operand in (rule.left_operand, rule.right_operand)
        )
        parameter_key = rule.left_operand if rule.left_operand in config else rule.right_operand
        if (
            parameter_key in config
            and parameter_key not in reported_parameters
            and None not in (left_value, right_value)
            and not COMPARISONS[rule.operator](left_value, right_value)
        ):
            reported_parameters.add(parameter_key)
            expected, actual = _rule_text(parameter_key, rule), _describe_values(parameter_key, rule, values)
            yield parameter_key, f"{name} expects {expected}, got {actual}"


def _value(operand: str, values: Mapping[str, Any]) -> Any:
    return values[operand] if operand in values else float(operand)


def _rule_text(parameter: str, rule: Rule) -> str:
    if parameter == rule.left_operand:
        return " ".join(rule)
    return f"{rule.right_operand} {FLIPPED_OPERATORS[rule.operator]} {rule.left_operand}"


def _describe_values(parameter: str, rule: Rule, values: Mapping[str, Any]) -> str:
    other_side = rule.right_operand if parameter == rule.left_operand else rule.left_operand
    beside = f" and {other_side} = {_excerpt(values[other_side])}" if other_side in values else ""
    return f"{_excerpt(values[parameter])}{beside}"


def _excerpt(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
