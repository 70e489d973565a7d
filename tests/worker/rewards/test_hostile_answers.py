"""Tests of hostile answers: no checker may open files, start processes, execute code or change later
grades.

GRPOLAB_ANSWERS=all also runs the tests under `strace`, which sees what the interpreter does not report."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.base.locations import CODE_ROOT
from backend.config.boxed import last_boxed
from backend.config.reasoning_gym_tasks import TASKS
from tests.worker.rewards.hostile_answers import ALL_ANSWERS
from tests.worker.rewards.hostile_runner import BEGIN, END
from worker.rewards.answers import quick_verdict
from worker.rewards.formats import lenient_answer
from worker.rewards.reasoning_gym.checkers import INTEGRALS, NUMBERS
from worker.rewards.reasoning_gym.expressions import NotExpression, read_expression
from worker.rewards.reasoning_gym.literals import NotLiteral, read_literal
from worker.rewards.spelling import (
    convert_decimals,
    for_algebra,
    normalise_formula,
    normalise_words,
    strip_label_and_unit,
)

REWARD_SUBJECTS = ("mathematics", "answers", "formats", "flags", "language")
MAX_KILLED = 4
"""Maximum number of answers per task that are killed at their limit, where the library does not terminate."""

CALL_PATTERN = re.compile(r"^\d* *([a-z_0-9]+)\(")


def runner(*names: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "tests.worker.rewards.hostile_runner", *names]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CODE_ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def reports(folder: Path, *names: str, under: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    result = subprocess.run(
        [*under, *runner(*names)], capture_output=True, cwd=folder, env=environment(), text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return {report.pop("subject"): report for report in map(json.loads, result.stdout.splitlines())}


@pytest.mark.nightly
def test_hostile_answers_open_nothing_start_nothing_and_change_no_grade(tmp_path):
    report_by_name = reports(tmp_path)
    assert set(report_by_name) == {*REWARD_SUBJECTS, *TASKS}
    assert {name: report["events"] for name, report in report_by_name.items() if report["events"]} == {}
    assert {name for name, report in report_by_name.items() if report["changed"] or report["files"]} == set()
    killed_by_task = {
        name: report["killed"]
        for name, report in report_by_name.items()
        if len(report["killed"]) > MAX_KILLED
    }
    assert set(killed_by_task) <= {"mathematics"}
    assert all(report["judged"] >= 40 for report in report_by_name.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.environ.get("GRPOLAB_ANSWERS") != "all", reason="with GRPOLAB_ANSWERS=all")
def test_hostile_answers_make_no_system_call_of_files_processes_or_sockets(tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    traces, folder = tmp_path / "traces", tmp_path / "empty"
    traces.mkdir()
    folder.mkdir()
    reports(
        folder, under=("strace", "-ff", "-qq", "-e", "trace=%file,%process,%network", "-o", str(traces / "t"))
    )
    trace_texts = [path.read_text() for path in traces.iterdir() if f'"{BEGIN}"' in path.read_text()]
    assert len(trace_texts) >= len(TASKS)
    calls = [
        line for text in trace_texts for line in text.partition(BEGIN)[2].partition(END)[0].splitlines()[1:]
    ]
    unexpected_calls = {match[1] for line in calls if (match := CALL_PATTERN.match(line))} - {
        "exit_group",
        "access",
        "faccessat2",
    }
    assert unexpected_calls == set()


@pytest.mark.parametrize(
    ("read", "refusal"),
    [
        (read_literal, (NotLiteral,)),
        (lambda text: read_expression(text, NUMBERS), (NotExpression, ArithmeticError)),
        (lambda text: read_expression(text, INTEGRALS), (NotExpression, ArithmeticError)),
        (lambda text: quick_verdict(text, text), ()),
    ],
    ids=["literal", "number", "integral", "verdict"],
)
def test_an_unreadable_hostile_answer_raises_only_its_own_error(read, refusal):
    for answer in ALL_ANSWERS:
        with suppress(*refusal):
            read(answer)


FORMULAS = st.lists(
    st.sampled_from(
        [
            *(
                "\\frac",
                "\\sqrt",
                "\\text",
                "\\left(",
                "\\right)",
                "\\boxed",
                "{",
                "}",
                "(",
                ")",
                "[",
                "]",
                "^",
                "_",
            ),
            *(
                "1",
                "2",
                "٣",
                "²",
                "⁻",
                ".",
                ",",
                "e",
                "E",
                "x",
                "-",
                "−",
                "+",
                "*",
                "/",
                "!",
                "%",
                "$",
                " ",
                "\n",
                "\\",
            ),
            *(
                "\0",
                "\ud800",
                "a.",
                "(C)",
                "1 1/2",
                "|",
                "<|",
                "|>",
                "=",
                "<",
                "'",
                '"',
                "__class__",
                "é",
                "0",
                "00",
            ),
        ]
    ),
    max_size=30,
).map("".join)


@given(FORMULAS, FORMULAS)
def test_no_pair_of_texts_makes_the_trainer_raise(expected, answer):
    assert quick_verdict(expected, answer) in (True, False, None)
    assert (
        quick_verdict(expected, expected) is not False or not normalise_formula(expected) or "_" in expected
    )
    for reader in (
        normalise_formula,
        normalise_words,
        strip_label_and_unit,
        for_algebra,
        convert_decimals,
        last_boxed,
        lenient_answer,
    ):
        reader(answer)


@given(st.one_of(FORMULAS, st.text(alphabet="0123456789+-*/^!().,xeE π\n", max_size=40)))
def test_the_grammar_produces_only_sympy_objects(text):
    try:
        expression = read_expression(text, INTEGRALS)
    except (NotExpression, ArithmeticError):
        return
    assert type(expression).__module__.startswith("sympy.")
    assert {type(atom).__module__.split(".")[0] for atom in expression.atoms()} <= {"sympy"}
