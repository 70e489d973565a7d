"""Tests that constructions which often cause security holes are absent."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.rewards import programs

ROOT = Path(__file__).parents[2]
PYTHON_FILES = sorted(
    path for folder in ("backend", "worker", "migrations") for path in (ROOT / folder).rglob("*.py")
)
PAGE_FILES = sorted(
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
PROGRAM_RUNNER = ROOT / "worker" / "rewards" / "programs.py"
"""The only file whose purpose is to execute code from data, which must stay inside the sandbox."""

PICKLE_READER = ROOT / "backend" / "exchange" / "imports" / "torch_operations.py"
"""The only file that reads pickles, in the sandbox, with an unpickler that refuses class names."""

HTML_SINK_PATTERN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write"
    r"|\beval\(|new Function\b|javascript:"
)
COMMENT_PATTERN = re.compile(r"\s*(//|\*|/\*)")


def dotted(node: ast.expr) -> str:
    """Return a dotted name such as `torch.load`, or an empty text if the expression is not a plain name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func)


def list_imports(tree: ast.AST) -> Iterator[str]:
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


@pytest.fixture(scope="module")
def trees():
    """Syntax trees of all Python files of the product."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in PYTHON_FILES}


def test_nothing_loads_or_executes_code_from_data(trees):
    for path, tree in trees.items():
        modules = {name.partition(".")[0] for name in list_imports(tree)} & CODE_LOADING_MODULES
        assert modules == ({"pickle"} if path == PICKLE_READER else set()), path
        allowed_calls = {"exec", "compile"} if path == PROGRAM_RUNNER else set()
        assert not set(calls(tree)) & (CODE_RUNNING_BUILTINS | CODE_LOADING_CALLS) - allowed_calls, path


def test_the_only_unpickler_resolves_names_itself(trees):
    tree = trees[PICKLE_READER]
    used_names = {dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used_names if name.startswith("pickle.")} == {"pickle.Unpickler"}
    [unpickler] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "_Plain"]
    assert [ast.unparse(base) for base in unpickler.bases] == ["pickle.Unpickler"]
    assert "find_class" in {node.name for node in unpickler.body if isinstance(node, ast.FunctionDef)}
    assert "super" not in set(calls(unpickler))


def test_program_execution_is_served_by_the_sandbox_and_forked():
    assert set(programs.OPERATIONS) == {"run", "interpret", "call", "examine"}
    assert all(operation.is_forked for operation in programs.OPERATIONS.values())
    tree = ast.parse((PROGRAM_RUNNER.parent / "code.py").read_text(encoding="utf-8"))
    operations = [
        {alias.name for alias in node.names}
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "worker.rewards.programs"
    ]
    assert operations == [{"encode_value", "read_ended"}]


def test_there_is_no_shell_and_no_remote_code(trees):
    for path, tree in trees.items():
        assert not any(map(is_true, keywords(tree, "shell"))), path
        assert not any(map(is_true, keywords(tree, "trust_remote_code"))), path


def test_no_page_converts_text_to_html():
    for path in PAGE_FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [
            line for line in lines if HTML_SINK_PATTERN.search(line) and not COMMENT_PATTERN.match(line)
        ] == [], path


def test_the_page_has_no_inline_script():
    page = (ROOT / "frontend" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"\son\w+=", page)
