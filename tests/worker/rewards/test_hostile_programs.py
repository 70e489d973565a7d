"""Tests that hostile programs cannot escape, change another grade or pass their tests.

Each attack is tried once here; `make hostile` tries each in every shape and with every form of test."""

import os
import socket
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from backend.base.locations import CODE_ROOT
from backend.base.sandbox.layers import missing_layers
from backend.config.served_rewards import CodeReward
from tests.worker.rewards.hostile_programs import ATTACKS, Hostile, hostile_programs
from worker.prompt import Prompt
from worker.rewards.code import CodeGrader

IS_FULL = os.environ.get("GRPOLAB_PROGRAMS") == "all"
CODE_REWARD = CodeReward(timeout_seconds=1, memory_mb=512)
HIDDEN_RESULT = "7f3a91c2-expected"
"""The expected result. A program that passes must have read it, since it cannot be computed."""

CHECKED_EVERY = 20
"""Number of hostile programs between two rounds of honest ones."""

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3600 if IS_FULL else 300),
    pytest.mark.skipif(bool(missing_layers()), reason="a layer of the sandbox is missing here"),
]


def row(tests) -> Prompt:
    return Prompt("p", "?", "", "file", columns={"tests": tests})


OUTPUT_ROW = row([{"input": "3\n", "output": HIDDEN_RESULT}])
CALL_ROW = row({"fn_name": "f", "inputs": [[3]], "outputs": [HIDDEN_RESULT]})
ASSERT_ROW = row([f"assert f(3) == {HIDDEN_RESULT!r}"])
HONEST_PAIRS = [
    (row([{"input": "3\n", "output": "9"}]), "print(int(input()) ** 2)", 1.0),
    (row([{"input": "3\n", "output": "9"}]), "print(int(input()) ** 3)", 0.0),
    (row({"fn_name": "f", "inputs": [[3]], "outputs": [9]}), "def f(x): return x * x", 1.0),
    (row(["assert f(3) == 9"]), "def f(x): return x * x", 1.0),
    (row(["assert f(3) == 9"]), "def f(x): return x", 0.0),
]


def pair_with_tests(programs: list[Hostile]) -> list[tuple[str, Prompt, str]]:
    """Return each program with its test, either with all forms of test or with one form in turn."""
    pairs = []
    for number, program_forms in enumerate(programs):
        forms = (
            (OUTPUT_ROW, program_forms.script),
            (CALL_ROW, program_forms.function),
            (ASSERT_ROW, program_forms.function),
        )
        selected_forms = forms if IS_FULL else [forms[number % len(forms)]]
        pairs += [(program_forms.name, prompt, program) for prompt, program in selected_forms]
    return pairs


@pytest.fixture
def listener():
    """A service on this machine that no program may reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        yield server


def sources() -> dict[Path, tuple[int, int]]:
    files = [path for name in ("backend", "worker") for path in (CODE_ROOT / name).rglob("*.py")]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def has_no_program_left(pid: int | None) -> bool:
    """Return whether bubblewrap and the forking process are soon without other children."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if pid is None or len(psutil.Process(pid).children(recursive=True)) <= 2:
            return True
        time.sleep(0.05)
    return False


def test_no_hostile_program_escapes_passes_or_changes_another_grade(tmp_path, listener):
    secret = tmp_path / "secret"
    secret.write_text(HIDDEN_RESULT)
    programs = list(hostile_programs(secret=str(secret), port=listener.getsockname()[1]))
    hostile_pairs = pair_with_tests(programs if IS_FULL else programs[: len(ATTACKS)])
    names_before, code = {path.name for path in Path("/tmp").iterdir()}, sources()
    with closing(CodeGrader(2)) as grader:
        passed, changed_rounds = [], 0
        for start in range(0, len(hostile_pairs), CHECKED_EVERY):
            batch = hostile_pairs[start : start + CHECKED_EVERY]
            mixed_pairs = [(prompt, program) for _, prompt, program in batch]
            mixed_pairs[1:1] = [(prompt, program) for prompt, program, _ in HONEST_PAIRS]
            scores = grader.scores(CODE_REWARD, mixed_pairs)
            honest_scores = scores[1 : 1 + len(HONEST_PAIRS)]
            changed_rounds += honest_scores != [score for _, _, score in HONEST_PAIRS]
            hostile_scores = scores[:1] + scores[1 + len(HONEST_PAIRS) :]
            passed += [name for (name, _, _), score in zip(batch, hostile_scores, strict=True) if score]
        assert all(has_no_program_left(bench.runner.pid) for bench in grader._benches)
    print(
        f"\n{len(hostile_pairs)} hostile programs: {len(passed)} passed, "
        f"{changed_rounds} rounds changed other grades"
    )
    assert (passed, changed_rounds) == ([], 0)
    assert secret.read_text() == HIDDEN_RESULT
    assert "escaped" not in {path.name for path in Path("/tmp").iterdir()} - names_before
    assert sources() == code
    with pytest.raises(TimeoutError):
        listener.accept()
