"""Tests of the safe replacements for reasoning_gym's checkers that evaluate answers, with equal scores."""

import hashlib
import inspect
import os
from random import Random

import pytest

from tests.worker.rewards.honest_answers import answers
from worker.rewards.reasoning_gym.checkers import CHECKERS, INTEGRALS, NUMBERS
from worker.rewards.reasoning_gym.entries import entry_at, library, score_at
from worker.rewards.reasoning_gym.expressions import NotExpression, read_expression
from worker.rewards.reasoning_gym.literals import NotLiteral, read_literal

IS_FULL = os.environ.get("GRPOLAB_ANSWERS") == "all"
"""Whether a thousand answers are judged even if each takes a tenth of a second."""

SLOW_TASKS = {"simple_integration", "intermediate_integration"}

DIGEST_BY_TASK = {
    "bitwise_arithmetic": "afa1108a699e5be4",
    "binary_matrix": "684dbf2d84230e88",
    "complex_arithmetic": "210549e636793b51",
    "countdown": "5af9a9d9c2e1db11",
    "intermediate_integration": "8e765c309e3eb03c",
    "n_queens": "3fa1d84163aa9dce",
    "number_sorting": "3f7732ea4cbf05a9",
    "polynomial_multiplication": "5d0893d7e0fabb2e",
    "puzzle24": "85c06b47c043171a",
    "simple_integration": "25c67a197cbef4e2",
    "spiral_matrix": "452a5077ba3503da",
    "string_insertion": "4dad1d9da02dd4d6",
}
"""Shortened SHA-256 digest of each library checker that we replace."""


@pytest.mark.parametrize("task", sorted(CHECKERS))
def test_a_changed_library_checker_must_be_reviewed_again(task):
    source = inspect.getsource(type(library().create_dataset(task, seed=0, size=1)).score_answer)
    assert hashlib.sha256(source.encode()).hexdigest()[:16] == DIGEST_BY_TASK[task], (
        f"reasoning_gym's checker of {task} changed: read it, mirror it in checkers.py, then renew this hash"
    )


@pytest.mark.nightly
@pytest.mark.parametrize("task", sorted(CHECKERS))
def test_replaced_checkers_score_honest_answers_as_the_library_does(task):
    count = 100 if task in SLOW_TASKS and not IS_FULL else 1000
    answer_count, scores = 0, set()
    for seed in range(100):
        dataset = library().create_dataset(task, seed=seed, size=5)
        for entry in dataset:
            for answer in answers(task, entry, Random(answer_count)):
                expected = dataset.score_answer(answer, entry)
                assert CHECKERS[task](dataset, answer, entry) == expected, answer
                answer_count += 1
                scores.add(expected)
        if answer_count >= count:
            break
    assert answer_count >= count
    assert 1.0 in scores
    assert min(scores) < 0.1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, 2]", [1, 2]),
        ("1, 2", (1, 2)),
        ("(1)", 1),
        ("(1,)", (1,)),
        ("[['Q', '_'], []]", [["Q", "_"], []]),
        ("'a' \"b\"", "ab"),
        ("[-1, +2.5, 1e3, None, True]", [-1, 2.5, 1000.0, None, True]),
        (r"'\n\\'", "\n\\"),
    ],
)
def test_literals_have_the_same_value_as_in_python(text, value):
    assert read_literal(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "x", "[1 2]", "[1", "1]", "01", "f'a'", "{1}", "1+1", "[x for x in 'a']", "list('a')", "'\\x41'"],
)
def test_anything_but_a_literal_is_refused(text):
    with pytest.raises(NotLiteral):
        read_literal(text)


@pytest.mark.parametrize("text", ["[" * 1000, "9" * 301, "[" * 21 + "]" * 21, "1," * 20_000])
def test_literals_are_bounded(text):
    with pytest.raises(NotLiteral):
        read_literal(text)


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "(10**1000)**1000",
        "10**(10**3)**2",
        "201!",
        "9" * 301,
        "1e9999",
        "1e999**1e999",
        "9.9**9.9**9.9",
        "(" * 61 + "1" + ")" * 61,
        "1" + "**1" * 61,
        "1+" * 3000 + "1",
    ],
)
def test_arithmetic_is_bounded(text):
    with pytest.raises(NotExpression):
        read_expression(text, NUMBERS)


@pytest.mark.parametrize(
    "text",
    [
        "x.y",
        "x[0]",
        "'x'",
        "lambda: 1",
        "x := 1",
        "print(1)",
        "__import__",
        "_x",
        "x__y",
        "getattr(x, x)",
        "S",
        "eval",
    ],
)
def test_only_arithmetic_and_the_functions_of_the_task_are_accepted(text):
    with pytest.raises(NotExpression):
        read_expression(text, INTEGRALS)


@pytest.mark.parametrize(
    ("task", "config", "answer"),
    [
        ("complex_arithmetic", {}, "nan"),
        ("complex_arithmetic", {}, "NaN + 1i"),
        ("number_sorting", {"min_numbers": 3, "max_numbers": 3}, "[NaN, NaN, NaN]"),
    ],
)
def test_a_text_that_is_not_a_number_does_not_answer_a_number_task(task, config, answer):
    assert score_at(task, config, 0, 0, answer=answer) == 0


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("puzzle24", "8*3*1*1"),
        ("puzzle24", "8*3 # 1 1"),
        ("countdown", "{target}e0 + 0e0*({sum})"),
        ("countdown", "({target}e0 # {sum}\n)"),
    ],
)
def test_numbers_that_were_not_given_solve_no_puzzle(task, answer):
    """The library gives each of these answers full marks."""
    entry = entry_at(task, {}, 0, 0)
    numbers = entry["metadata"]["numbers"]
    text = answer.format(target=entry["metadata"].get("target"), sum="+".join(map(str, numbers)))
    assert library().create_dataset(task, seed=0, size=1).score_answer(text, entry) == 1
    assert score_at(task, {}, 0, 0, answer=text) < 0.1
    assert score_at(task, {}, 0, 0, answer=entry["answer"] + ".") == 1
