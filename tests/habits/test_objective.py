"""Test that every choice of the objective is covered."""

import ast
from pathlib import Path

OBJECTIVE_SOURCES = sorted((Path(__file__).parents[2] / "worker" / "objective").glob("*.py"))


def test_a_new_member_of_a_knob_cannot_be_forgotten():
    """mypy proves `assert_never`, so a member without a `case` does not pass the checks."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in OBJECTIVE_SOURCES]
    matches = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Match)]
    last_cases = [ast.unparse(match.cases[-1]) for match in matches]
    assert last_cases
    assert [case for case in last_cases if not case.startswith("case _:\n    assert_never(")] == []
