"""Docstrings say what a thing is: a noun phrase, or a verb for what a function does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    path for folder in ("backend", "worker", "migrations") for path in sorted((ROOT / folder).rglob("*.py"))
]
RIDDLE = re.compile(
    r"(What|How|Which|Where|When|Who|Whose|Why|By|That|Those|As|So|It|From|In|Of|For|At|Until|Only|Nobody|Out|Into)\b"
)
"""Words with which a docstring leaves out the thing that it is about."""


def named(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and docstring of the module, and of its public classes and functions."""
    yield "module", ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            yield node.name, ast.get_docstring(node) or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_begin_with_the_thing_that_they_are_about(path):
    found = named(ast.parse(path.read_text(encoding="utf-8")))
    assert [(name, text.partition("\n")[0]) for name, text in found if RIDDLE.match(text)] == []
