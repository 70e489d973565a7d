"""Constructions that turned into holes elsewhere are absent here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.rewards import programs

ROOT = Path(__file__).parents[2]
PYTHON = sorted(
    path for folder in ("backend", "worker", "migrations") for path in (ROOT / folder).rglob("*.py")
)
PAGES = sorted(
    path
    for pattern in ("*.js", "*.html")
    for path in (ROOT / "frontend").rglob(pattern)
    if not {"vendor", "node_modules"} & set(path.relative_to(ROOT).parts)
)

CODE_LOADING_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CODE_RUNNING_BUILTINS = {"eval", "exec", "compile", "__import__"}
CODE_LOADING_CALLS = {
    "torch.load",
    "torch.save",
    "yaml.load",
    "yaml.unsafe_load",
    "os.system",
    "os.popen",
    "numpy.load",
}
RUNS_PROGRAMS = ROOT / "worker" / "rewards" / "programs.py"
"""The one file whose purpose is to run code from data; the test below keeps it inside of the sandbox."""

TEXT_AS_HTML = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write"
    r"|\beval\(|new Function\b|javascript:"
)
COMMENT = re.compile(r"\s*(//|\*|/\*)")
JS_LINES = 400
JS_WIDTH = 120


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def keywords(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == name)


def is_true(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


@pytest.mark.parametrize("path", PYTHON, ids=named)
def test_nothing_loads_or_runs_code_from_data(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {name.partition(".")[0] for name in imported(tree)} & CODE_LOADING_MODULES
    allowed = {"exec", "compile"} if path == RUNS_PROGRAMS else set()
    assert not set(calls(tree)) & (CODE_RUNNING_BUILTINS | CODE_LOADING_CALLS) - allowed


def test_what_runs_programs_is_served_by_the_sandbox_and_forked():
    assert set(programs.OPERATIONS) == {"run", "interpret", "call", "examine"}
    assert all(operation.is_forked for operation in programs.OPERATIONS.values())
    tree = ast.parse((RUNS_PROGRAMS.parent / "code.py").read_text(encoding="utf-8"))
    taken = [
        {alias.name for alias in node.names}
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "worker.rewards.programs"
    ]
    assert taken == [{"encoded", "decoded"}]


@pytest.mark.parametrize("path", PYTHON, ids=named)
def test_no_shell_and_no_remote_code(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not any(map(is_true, keywords(tree, "shell")))
    assert not any(map(is_true, keywords(tree, "trust_remote_code")))


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_no_page_turns_text_into_html(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if TEXT_AS_HTML.search(line) and not COMMENT.match(line)] == []


@pytest.mark.parametrize("path", [path for path in PAGES if path.suffix == ".js"], ids=named)
def test_a_script_of_a_page_is_short(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= JS_LINES
    assert [line for line in lines if len(line) > JS_WIDTH] == []
