"""Test that no checker gives model text to an evaluator, in this version of reasoning_gym or the next.

The test reads the source: it finds every function that a checker reaches inside the library, and requires
every other call to be on a list of harmless names."""

import ast
import builtins
import functools
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

from worker.rewards.reasoning_gym.checkers import CHECKERS
from worker.rewards.reasoning_gym.entries import library

LIBRARY = ("reasoning_gym.", "worker.rewards.reasoning_gym.")

HARMLESS_BUILTINS = {
    *(
        "ValueError",
        "abs",
        "all",
        "any",
        "bool",
        "complex",
        "dict",
        "enumerate",
        "filter",
        "float",
        "frozenset",
        "int",
    ),
    *(
        "isinstance",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "ord",
        "chr",
        "print",
        "range",
        "repr",
    ),
    *(
        "reversed",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "type",
        "zip",
        "hasattr",
        "super",
        "KeyError",
    ),
    *(
        "TypeError",
        "IndexError",
        "RuntimeError",
        "AttributeError",
        "Exception",
        "divmod",
        "pow",
        "bin",
        "hex",
        "oct",
    ),
}
HARMLESS_CALLS = {
    *(
        "json.loads",
        "json.dumps",
        "copy.deepcopy",
        "copy.copy",
        "itertools.product",
        "itertools.permutations",
    ),
    *(
        "math.exp",
        "math.prod",
        "math.gcd",
        "math.isclose",
        "math.sqrt",
        "math.floor",
        "math.ceil",
        "math.log",
    ),
    *(
        "re.findall",
        "re.fullmatch",
        "re.match",
        "re.search",
        "re.split",
        "re.sub",
        "re.compile",
        "re.finditer",
    ),
    *("collections.deque", "collections.defaultdict", "collections.Counter", "decimal.Decimal"),
    *("fractions.Fraction", "numpy.allclose", "numpy.array", "numpy.isclose", "numpy.round", "numpy.float32"),
    *("numpy.zeros", "numpy.abs", "numpy.array_equal", "numpy.where", "numpy.any"),
    *("sympy.diff", "sympy.simplify", "sympy.Symbol"),  # of objects that our parser made
    "numpy.loadtxt",  # of a list of lines; a file name would be a text
    *(
        "sympy.Integer",
        "sympy.Float",
        "sympy.factorial",
        "sympy.factorial2",
    ),  # of digits that our tokens hold
    *("numpy.absolute", "zss.Node", "zss.simple_distance"),  # numbers; trees of JSON values
    "magiccube.cube.Cube",  # a table of moves; an unknown one is refused
}
TASKS_USING_THE_LIBRARY = {"complex_arithmetic", "number_sorting"}
"""Tasks whose checker here calls the library's checker."""
FORBIDDEN_METHODS = {
    *("eval", "exec", "system", "popen", "parse_expr", "sympify", "lambdify", "load_module", "import_module"),
    *("format", "format_map", "__import__", "literal_eval", "run", "Popen", "check_output", "urlopen"),
}
SAFE_EVALUATIONS = {
    ("number_sorting.NumberSortingDataset.score_answer", "eval(entry['answer'])"): (
        "the expected answer where it is no JSON; our checker makes it JSON first"
    ),
}
"""Evaluations (function, call) that remain, with the reason why no model text reaches them."""


class Call(NamedTuple):
    """A call that a checker can reach."""

    location: str
    code: str
    reason: str


def tasks() -> dict[str, Any]:
    library()
    from reasoning_gym.factory import DATASETS

    return {name: cls for name, (cls, _) in sorted(DATASETS.items()) if name != "composite"}


def roots(task: str, cls: Any) -> list[Any]:
    """Return the functions that receive the answer first."""
    if task not in CHECKERS:
        return [cls.score_answer]
    return [CHECKERS[task], cls.score_answer] if task in TASKS_USING_THE_LIBRARY else [CHECKERS[task]]


def violations(root: Any, cls: type | None) -> Iterator[Call]:
    """Yield calls that are neither of the library's functions nor harmless."""
    unvisited, visited = [root], set()
    while unvisited:
        function = inspect.unwrap(unvisited.pop())
        if function in visited or not inspect.isfunction(function):
            continue
        visited.add(function)
        location = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if not isinstance(node, ast.Call):
                continue
            target = resolve_node(node.func, function, cls)
            if is_own(target):
                unvisited += methods(target) if inspect.isclass(target) else [target]
            elif target is None:
                unvisited += same_name(node.func, function, cls)
            if (reason := complaint(node, target)) and (location, ast.unparse(node)) not in SAFE_EVALUATIONS:
                yield Call(location, ast.unparse(node), reason)


def resolve_node(node: ast.expr, function: Any, cls: type | None) -> Any:
    """Return the object that a name stands for, or None if only execution can tell."""
    if isinstance(node, ast.Name):
        if node.id in function.__code__.co_varnames:
            return None
        return {**vars(builtins), **function.__globals__}.get(node.id)
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return getattr(cls, node.attr, None)
        owner = resolve_node(node.value, function, cls)
        return getattr(owner, node.attr, None) if inspect.ismodule(owner) or inspect.isclass(owner) else None
    return None


def is_own(target: Any) -> bool:
    module = getattr(inspect.unwrap(target) if callable(target) else target, "__module__", None) or ""
    return (inspect.isclass(target) or inspect.isroutine(target)) and module.startswith(LIBRARY)


def methods(cls: type) -> list[Any]:
    attributes = [inspect.getattr_static(cls, name) for name in dir(cls)]
    unwrapped = [
        getattr(attribute, "__func__", getattr(attribute, "fget", attribute)) for attribute in attributes
    ]
    return [
        method for method in unwrapped if inspect.isfunction(method) and method.__module__.startswith(LIBRARY)
    ]


def same_name(node: ast.expr, function: Any, cls: type | None) -> list[Any]:
    """Return methods of the imported library classes to which a call on an unknown object could refer."""
    name = node.attr if isinstance(node, ast.Attribute) else ""
    classes = [
        member for member in function.__globals__.values() if inspect.isclass(member) and is_own(member)
    ]
    return [
        method
        for owner in {*classes, *([cls] if cls else [])}
        for method in methods(owner)
        if method.__name__ == name
    ]


def complaint(node: ast.Call, target: Any) -> str:
    """Return why a checker may not make the call, or an empty text if it may."""
    name = getattr(node.func, "attr", "")
    if target is None or is_own(target):
        is_constant = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)
        return "" if is_constant or name not in FORBIDDEN_METHODS else f"a method named {name}"
    if getattr(builtins, getattr(target, "__name__", ""), None) is target:
        return "" if target.__name__ in HARMLESS_BUILTINS else f"the builtin {target.__name__}"
    if isinstance(target, functools.partial) or not hasattr(target, "__qualname__"):
        return "" if type(target).__module__ in ("re", "numpy") else f"an object of {type(target)}"
    module = (target.__module__ or "").split(".")
    short_name = f"{module[0].lstrip('_')}.{target.__qualname__}"
    owner = f"{target.__module__}.{target.__qualname__}"
    plain_names = {short_name, owner, getattr(target, "__objclass__", type).__name__ + f".{name}"}
    is_method_of_plain = inspect.ismethoddescriptor(target) or (module[0] == "builtins")
    return (
        ""
        if plain_names & HARMLESS_CALLS or (is_method_of_plain and name not in FORBIDDEN_METHODS)
        else f"{owner} is not on the list"
    )


def test_no_checker_gives_an_answer_to_an_evaluator():
    calls = [
        (task, call)
        for task, cls in tasks().items()
        for root in roots(task, cls)
        for call in violations(root, cls if root is cls.score_answer else None)
    ]
    assert not calls
