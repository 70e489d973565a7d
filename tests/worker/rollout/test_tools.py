"""Tests of tools, which answer every call without raising, and of the containment of hostile programs."""

from contextlib import closing

import pytest

from backend.base.sandbox import layers
from backend.base.sandbox.layers import SandboxIncomplete
from backend.config.environments import ToolUse
from worker.prompt import Prompt
from worker.rollout.calculator import BadExpression, calculate
from worker.rollout.tools import Toolbox, ToolCall

ROW_PROMPT = Prompt("", "?", "", "", columns={"table": {"Paris": "2.1 million", "n": 7}})


@pytest.fixture(scope="module")
def toolbox():
    config = ToolUse(tools=("calculator", "lookup", "python"), timeout_seconds=20)
    with closing(Toolbox(config, processes=1)) as toolbox:
        yield toolbox


def answer(toolbox, tool, text):
    [tool_answer] = toolbox.answer([(ToolCall(tool, text), ROW_PROMPT)])
    return tool_answer.outcome, tool_answer.text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12*34", "408"),
        ("2^10 - 24", "1000"),
        ("7/2", "3.5"),
        ("1/3", "0.333333333333"),
        ("0.1+0.2", "0.3"),
        ("-(3 - 5) * 2", "4"),
        ("17 % 5 + 17 // 5", "5"),
        ("12 × 3 ÷ 4", "9"),
        ("99999999999999999999 + 1", "100000000000000000000"),
    ],
)
def test_the_calculator_is_exact(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "1/0", "9**9**9", "2**99999", "__import__('os')", "(lambda: 1)()", "x+1", "[1][0]",
        "1 if 1 else 2", "1e400", "(" * 150, "1" * 300, "2**0.5", "True+1", "'a'*3", "1,2", "0**-1", "\x00",
    ],
)  # fmt: skip
def test_the_calculator_refuses_invalid_or_too_large_arithmetic(expression):
    with pytest.raises(BadExpression):
        calculate(expression)


def test_python_returns_its_output_its_last_value_or_its_error(toolbox):
    assert answer(toolbox, "python", "print(6*7)") == ("ok", "42")
    assert answer(toolbox, "python", "x = 6\nx*7") == ("ok", "42")
    assert answer(toolbox, "python", "print(1)\n1/0") == ("failed", "1\nZeroDivisionError: division by zero")
    outcome, text = answer(toolbox, "python", "def")
    assert outcome == "failed"
    assert text.startswith("SyntaxError")


@pytest.mark.parametrize(
    ("program", "outcomes"),
    [
        pytest.param("while True: pass", {"timeout"}, id="loops"),
        pytest.param("import time; time.sleep(60)", {"timeout"}, id="hangs"),
        pytest.param("while True: print('x' * 10000)", {"killed"}, id="floods"),
        pytest.param("x = bytearray(10**10)", {"failed"}, id="eats memory"),
        pytest.param("import os; os.kill(os.getppid(), 9)", {"failed", "killed"}, id="kills its parent"),
        pytest.param("import os\nwhile True: os.fork()", {"failed", "killed"}, id="fork bomb"),
        pytest.param("open('/etc/passwd').read()", {"failed", "killed"}, id="reads a file"),
        pytest.param("open('/tmp/x', 'w').write('x')", {"failed", "killed"}, id="writes a file"),
        pytest.param(
            "import socket; socket.create_connection(('127.0.0.1', 80), 1)",
            {"failed", "killed"},
            id="network",
        ),
        pytest.param("import os; os._exit(0)", {"ok"}, id="leaves"),
    ],
)
def test_a_hostile_program_is_contained_and_the_next_one_runs(toolbox, monkeypatch, program, outcomes):
    with monkeypatch.context() as patch:
        if outcomes == {"timeout"}:
            patch.setattr(toolbox, "config", toolbox.config.model_copy(update={"timeout_seconds": 1}))
        outcome, text = answer(toolbox, "python", program)
    assert outcome in outcomes
    assert "root:" not in text
    assert answer(toolbox, "python", "print(6*7)") == ("ok", "42")


def test_a_machine_that_hides_no_files_executes_no_programs(monkeypatch):
    monkeypatch.setattr(layers, "program_refusal", lambda _settings: "nothing hides files")
    with (
        closing(Toolbox(ToolUse(tools=("python",)), processes=1)) as toolbox,
        pytest.raises(SandboxIncomplete, match="the tool python are refused: nothing hides files"),
    ):
        toolbox.check()
    with closing(Toolbox(ToolUse(tools=("calculator",)))) as toolbox:
        toolbox.check()
