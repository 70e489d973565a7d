"""Tests of grading the programs in completions by the tests of their rows."""

import json
from contextlib import closing

import pytest

from backend.base.sandbox import layers
from backend.base.sandbox.layers import SandboxIncomplete
from backend.config.rewards import CorrectnessReward, LanguageReward, PluginReward
from backend.config.served_rewards import CodeReward
from tests.worker.rewards.test_rewards import completion
from worker.prompt import Prompt
from worker.rewards.code import CodeGrader, last_program
from worker.rewards.code_tests import (
    is_same_output,
    is_same_value,
)
from worker.rewards.programs import encode_value
from worker.rewards.score import Scorer

ADD_PROGRAM = "def add(a, b):\n    return a + b"
ASSERTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]
READ_SUM = "import sys\nprint(sum(map(int, sys.stdin.read().split())))"


def row(tests, answer=""):
    return Prompt("p", "Write it.", answer, "file", columns={"tests": tests} if tests is not None else {})


@pytest.fixture(scope="module")
def grade():
    """A function that scores a program against tests."""
    with closing(CodeGrader(1)) as grader:

        def graded(program, tests, **fields):
            return grader.scores(CodeReward(**fields), [(row(tests), program)])[0]

        yield graded


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("a\n```python\nx = 1\n```\nb\n```py\ny = 2\n```\n```text\nout\n```", "y = 2\n"),
        ("```\nx\n```", "x\n"),
        ("<think>```python\nx\n```</think>\nprint(1)", "\nprint(1)"),
        ("print(1)", "print(1)"),
        ("```python\nunclosed", "```python\nunclosed"),
    ],
)
def test_the_last_python_block_is_the_program(text, program):
    assert last_program(text) == program


@pytest.mark.parametrize(
    ("printed", "expected", "is_same"),
    [
        ("1 2\n3\n", "1 2 \n3", True),
        ("0.33333333", "0.333333333", True),
        ("1", "1.0", True),
        ("1", "01", False),
        ("1 2", "1", False),
        ("nan", "1.5", False),
        ("", "", True),
    ],
)
def test_outputs_are_compared_by_their_words(printed, expected, is_same):
    assert is_same_output(printed, expected) is is_same


@pytest.mark.parametrize(
    ("value", "expected", "is_same"),
    [((1, 2), [1, 2], True), (3, [3], True), ({1: 2}, {"1": 2}, True), ([3], 3, False), ("3", 3, False)],
)
def test_values_are_compared_as_json(value, expected, is_same):
    assert is_same_value(encode_value(value), expected) is is_same


FORGED_VALUES = {
    "a complex number of 400 digits": '{"complex": [10**400, 0]}',
    "bytes that are none": '{"bytes": "x"}',
    "a deep list": "functools.reduce(lambda deep, _: [deep], range(400), 0)",
}


def test_forged_values_of_the_encoder_are_wrong(grade):
    tests = {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}
    for forgery, answer in FORGED_VALUES.items():
        forging = f"import functools, worker.rewards.programs as p\np.encode_value = lambda value: {answer}"
        program = f"{forging}\n{ADD_PROGRAM}"
        assert grade(program, tests) == 0, forgery
    assert grade(ADD_PROGRAM, tests) == 1


def test_standard_input_and_output_are_checked(grade):
    tests = {"inputs": ["1 2\n", "3\n4\n"], "outputs": ["3\n", "7\n"]}
    assert grade(READ_SUM, tests) == 1
    assert grade("print(3)", tests, credit="share") == 0.5
    assert grade("print(sum(map(int, open(0).read().split())))", tests) == 1
    assert grade("import os\nos.write(1, b'3\\n')\nos._exit(0)", {"inputs": [""], "outputs": ["3"]}) == 1
    assert (
        grade(
            "import threading\nt = threading.Thread(target=lambda: print(3))\nt.start()\nt.join()",
            {"inputs": [""], "outputs": ["3"]},
        )
        == 1
    )


def test_a_program_that_prints_the_right_answer_and_crashes_fails(grade):
    tests = {"inputs": [""], "outputs": ["3"]}
    assert grade("print(3)\n1 / 0", tests) == 0
    assert grade("print(3)\nexit(1)", tests) == 0
    assert grade("print(3)\nexit()", tests) == 1


def test_function_calls_are_checked_and_also_class_solution(grade):
    tests = {"fn_name": "pair", "inputs": [[1, 2]], "outputs": [[1, 2]]}
    assert grade("def pair(a, b):\n    return a, b", tests) == 1
    assert grade("class Solution:\n    def pair(self, a, b):\n        return [a, b]", tests) == 1


@pytest.mark.parametrize(
    "test",
    [
        "from solution import add\n\ndef test_it():\n    assert add(1, 2) == 3",
        "def check(f):\n    assert f(1, 2) == 3\n    assert f('a', 'b') == 'ab'\ncheck(add)",
        "import math\nassert math.isclose(add(0.1, 0.2), 0.3)",
        "assert set(add([1, 2], [3])) == {1, 2, 3}",
        "try:\n    add(1, 'a')\n    assert False\nexcept TypeError:\n    pass",
        "assert [add(i, i) for i in range(5)] == [0, 2, 4, 6, 8]",
        "assert add({1: (2, {3})}.get(1), (None,)) == (2, {3}, None)",
        "assert add(b'a', b'b') == b'ab' and add(1j, 1) == 1 + 1j",
    ],
)
def test_tests_in_many_forms_call_the_program(grade, test):
    assert grade(ADD_PROGRAM, test) == 1
    assert grade("def add(a, b):\n    return None", test) == 0


@pytest.mark.parametrize(
    "test",
    [
        "x = 1\nassert x",
        "assert True",
        "try:\n    add(1, 2)\nexcept:\n    pass\nassert add",
        "syntax assert error(",
    ],
)
def test_a_trivial_test_does_not_pass_a_missing_function(grade, test):
    assert grade("", test) == 0
    assert grade("import os\nos._exit(0)", test) == 0


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "x = bytearray(10**10)",
        "while True: print('x' * 1000)",
    ],
)
def test_a_program_that_exceeds_its_limits_fails_only_its_test(grade, program):
    tests = {"inputs": [""], "outputs": ["3"]}
    assert grade(program, tests, timeout_seconds=1) == 0
    assert grade("print(3)", tests) == 1


def test_a_row_with_tests_is_graded_by_them_and_others_by_their_answer():
    terms = (CodeReward(credit="share"), LanguageReward(weight=0.5, only_when_correct=True))
    tested, answer_only, ungradable = row(json.dumps(ASSERTS)), row(None, "7"), row(None)
    texts = [f"```python\n{ADD_PROGRAM}\n```", "def add(a, b): return 3"]
    with closing(Scorer(terms, processes=1)) as scorer:
        groups = scorer.score(
            [tested, answer_only, ungradable],
            [[completion(text) for text in texts], [completion(r"\boxed{7}")], [completion("x")]],
        )
        assert scorer.correctness([tested], texts[:1]) == [1]
    assert [group.correctness for group in groups] == [(1, 0), (1,), (None,)]
    assert [group.terms["code"] for group in groups] == [(1, 0.5), (None,), (None,)]
    assert [group.rewards for group in groups] == [(1.5, 0.5), (None,), (None,)]


SECRET_PROGRAM = "\n".join(f"x{number} = 'secret of another program'" for number in range(500)) + "\nprint(3)"
MEMORY_SEARCH = """
import ctypes, re
library = ctypes.CDLL(None)
library.sbrk.restype = ctypes.c_void_p
size = 1 << 20
heap = ctypes.string_at(library.sbrk(0) - size, size)
print(len(re.findall(rb"x[0-9]+ = .secret", heap)))
"""


def test_a_program_finds_nothing_of_another_one_in_its_memory(grade):
    assert grade(SECRET_PROGRAM, {"inputs": [""], "outputs": ["3"]}) == 1
    assert grade(MEMORY_SEARCH, {"inputs": [""], "outputs": ["0"]}) == 1


@pytest.mark.parametrize("term", [CodeReward(), PluginReward(entry_point="any")], ids=["code", "plugin"])
def test_a_machine_that_hides_no_files_is_refused_before_sampling(monkeypatch, term):
    monkeypatch.setattr(layers, "program_refusal", lambda _settings: "nothing hides files")
    monkeypatch.setattr("worker.rewards.plugins._plugin_module", lambda _name: "json")
    with pytest.raises(SandboxIncomplete, match="python are refused: nothing hides files"):
        Scorer((term,))
    Scorer((CorrectnessReward(),)).close()
