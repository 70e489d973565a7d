"""The objective can be read: every function says what it computes, every choice is covered."""

import ast
from pathlib import Path

import pytest

OBJECTIVE = sorted((Path(__file__).parents[2] / "worker" / "objective").glob("*.py"))


def named(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", OBJECTIVE, ids=named)
def test_every_public_function_says_what_it_returns(path):
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    public = [function for function in functions if not function.name.startswith("_")]
    assert [function.name for function in public if not ast.get_docstring(function)] == []


@pytest.mark.parametrize("path", OBJECTIVE, ids=named)
def test_a_new_member_of_a_knob_cannot_be_forgotten(path):
    """mypy proves `assert_never`: a member without a `case` does not pass the checks."""
    matches = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Match)]
    last = [ast.unparse(match.cases[-1]) for match in matches]
    assert [case for case in last if not case.startswith("case _:\n    assert_never(")] == []
