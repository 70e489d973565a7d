"""Operations that run programs of completions and tests of datasets, each in a separate sandboxed process.

A program never sees the expected results. Its output, and the values that its functions return, are checked
outside. Values are sent as plain data (numbers, text, lists, tuples, sets, dicts) in JSON.
"""

import ast
import builtins
import io
import json
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from backend.base.sandbox.operation import Operation, Request

MODULES = ("solution", "main", "submission")
"""Names of modules from which tests import the program's functions."""


class CallNeeded(BaseException):
    """Raised if a test calls a function of the program whose value is not known yet."""


def run_program(request: Request) -> int:
    """Run a program on this process's standard input and output, and return its exit code."""
    return _run_as_script(lambda: _execute(request["program"], "__main__"), prints_error=False)


def interpret(request: Request) -> int:
    """Run a program like `run_program`, and also print the value of its last expression, or its error."""
    return _run_as_script(lambda: _execute_cell(request["program"]), prints_error=True)


def _run_as_script(execute: Callable[[], object], *, prints_error: bool) -> int:
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.argv = ["program.py"]
    code = 0
    try:
        execute()
    except SystemExit as error:
        code = error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises
        if prints_error:
            print(f"{type(error).__name__}: {error}")  # noqa: T201 - the answer to the policy
        code = 1
    sys.stdout.flush()
    return code


def call_function(request: Request) -> dict[str, Any]:
    """Return {"value": ...} of a function of the program, or {"raised": "ValueError"}."""
    sys.stdin, sys.argv = io.StringIO(), ["program.py"]
    namespace = _execute(request["program"], "__program__")
    function = _function(namespace, request["function"])
    arguments = [decode_value(value) for value in request["arguments"]]
    keyword_arguments = {name: decode_value(value) for name, value in request["named"].items()}
    try:
        value = function(*arguments, **keyword_arguments)
    except Exception as error:  # noqa: BLE001 - A test may expect an exception.
        return {"raised": type(error).__name__}
    return {"value": encode_value(value)}


def examine(request: Request) -> dict[str, Any]:
    """Return {"passed": ...} for a test, or {"call": ...} with a call of the program that it needs first.

    Names that the test does not define are functions of the program. A test that calls none of them fails.
    """
    outcomes = {_key(call): outcome for call, outcome in request["known"]}
    needed_calls: list[dict[str, Any]] = []
    used_names: list[str] = []

    def stub(name: str) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            call = {
                "function": name,
                "arguments": [encode_value(value) for value in arguments],
                "named": {key: encode_value(value) for key, value in named.items()},
            }
            used_names.append(name)
            if _key(call) not in outcomes:
                needed_calls.append(call)
                raise CallNeeded
            return _outcome(outcomes[_key(call)])

        return called

    for module in MODULES:
        sys.modules[module] = _make_module(module, stub)
    tree = ast.parse(request["test"])
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(dir(builtins))
    namespace: dict[str, Any] = {name: stub(name) for name in names} | {"__name__": "__test__"}
    try:
        exec(compile(tree, "<test>", "exec"), namespace)  # noqa: S102 - that is what this process is for
        for name, function in list(namespace.items()):
            if name.startswith("test") and name not in used_names and isinstance(function, type(stub)):
                _run_if_test(function, stub)
        has_passed = bool(used_names)
    except CallNeeded:
        has_passed = False
    except Exception:  # noqa: BLE001 - an assertion, or whatever the test raises
        has_passed = False
    return {"call": needed_calls[0]} if needed_calls else {"passed": has_passed}


def _run_if_test(function: Any, stub: Any) -> None:
    """Call a function that the test has defined, like pytest, unless it is a stub."""
    is_stub = function.__qualname__.startswith(stub.__qualname__)
    if not is_stub and not function.__code__.co_argcount:
        function()


def _make_module(name: str, stub: Callable[[str], Any]) -> ModuleType:
    module = ModuleType(name)
    module.__getattr__ = stub  # type: ignore[method-assign]
    return module


def _outcome(outcome: Mapping[str, Any]) -> Any:
    if "raised" in outcome:
        raise _exception(str(outcome["raised"]))
    return decode_value(outcome["value"])


def _exception(name: str) -> Exception:
    """Create an exception of the class that the program raised, if it is a built-in class."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind()
    return Exception(name)


def _execute(program: str, name: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(program, "<completion>", "exec"), namespace)  # noqa: S102 - that is what this process is for
    return namespace


def _execute_cell(program: str) -> None:
    """Execute a program, and print its last expression unless it is None, as interactive Python does."""
    namespace = {"__name__": "__main__"}
    tree = ast.parse(program)
    last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
    exec(compile(tree, "<completion>", "exec"), namespace)  # noqa: S102 - as above
    exec(compile(ast.Interactive(last), "<completion>", "single"), namespace)  # noqa: S102 - as above


def _function(namespace: Mapping[str, Any], name: str) -> Any:
    """Return a function of the program, or a method of its class `Solution`."""
    if name in namespace:
        return namespace[name]
    return getattr(namespace["Solution"](), name)


CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}


def encode_value(value: Any) -> Any:
    """Convert plain data to JSON. Raise TypeError for anything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        name = next(name for kind, name in CONTAINERS.items() if isinstance(value, kind))
        return {name: [encode_value(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode_value(key), encode_value(item)] for key, item in value.items()]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    for name in ("item", "tolist"):  # methods of numpy values
        if hasattr(value, name) and (name == "tolist" or getattr(value, "size", 0) == 1):
            return encode_value(getattr(value, name)())
    raise TypeError(f"expected plain data, got {type(value).__name__}")


def decode_value(value: Any) -> Any:
    """Decode the data that `encode_value` wrote. Raise ValueError or TypeError for anything else."""
    if not isinstance(value, dict):
        return value
    [(kind, items)] = value.items()
    match kind:
        case "dict":
            return {decode_value(key): decode_value(item) for key, item in items}
        case "bytes":
            return bytes.fromhex(items)
        case "complex":
            return complex(*items)
    makes: dict[str, Any] = {name: make for make, name in CONTAINERS.items()}
    if kind not in makes:
        raise ValueError(f"no such kind of data: {kind!r:.20}")
    return makes[kind]([decode_value(item) for item in items])


def read_ended(reply: Any) -> tuple[str, int]:
    """Return the output and exit code of a sandboxed program. Raise ValueError for anything else."""
    match reply:
        case {"output": str(output), "code": int(code)}:
            return output, code
    raise ValueError("expected output and exit code")


def _key(call: Mapping[str, Any]) -> str:
    return json.dumps(call, sort_keys=True)


OPERATIONS = {
    "run": Operation(run_program, is_program=True),
    "interpret": Operation(interpret, is_program=True),
    "call": Operation(call_function),
    "examine": Operation(examine),
}
