"""Tests of the command `runs`."""

import pytest

from backend.runs.command import HEAD
from backend.service.cli import main
from backend.storage.engine import open_engine, open_sessions
from tests.factories import make_run


@pytest.fixture
def list_runs(sqlite_url, monkeypatch, capsys):
    """A function that lists the runs of a database with two, and returns exit code, lines and errors."""
    engine = open_engine(sqlite_url)
    summary = {"step": 1, "last": {"reward/mean": 0.25, "eval/accuracy": "NaN"}, "best": {}}
    with open_sessions(engine).begin() as session:
        make_run(session, name="calm\x1b[31m", variant="dapo", summary=summary)
        make_run(session, name="brave")
    engine.dispose()
    monkeypatch.setenv("DATABASE_URL", sqlite_url)

    def run(*arguments):
        code = main(["runs", *arguments])
        output, error_output = capsys.readouterr()
        return code, output.splitlines(), error_output

    return run


def test_matching_runs_are_listed_with_their_count(list_runs):
    code, (head, row, total), _ = list_runs("--query", "reward/mean > .2")
    assert code == 0
    assert head.split() == list(HEAD)
    assert row.split()[:8] == ["calm\\u001b[31m", "dapo", "0", "queued", "0/150", "-", "0.25", "NaN"]
    assert total == "1 of 1 run"
    assert list_runs("--limit", "1", "--sort", "name")[1][-1] == "1 of 2 runs"
    assert list_runs("--trash")[1][-1] == "0 of 0 runs"


def test_a_caret_marks_the_position_of_an_error(list_runs):
    code, lines, err = list_runs("--query", "brave and acuracy > 1")
    assert (code, lines) == (1, [])
    first, query, caret = err.splitlines()
    assert "did you mean eval/accuracy" in first
    assert query[caret.index("^") :] == "acuracy > 1"
    long_query = f"{'a ' * 60} or seed > \x1b"
    _, query, caret = list_runs("--query", long_query)[2].splitlines()
    assert caret.index("^") == query.index("> ") + 2
