"""Tests of the grader against pairs that people judged, with a list of the known errors."""

import pytest

from backend.config.rewards import CorrectnessReward
from tests.worker.rewards.graded_pairs import DECIDED, HELD_OUT, PAIRS, Pair
from worker.prompt import Prompt
from worker.rewards.answers import asks_for_order
from worker.rewards.correctness import Checkers, Grader

WRONG_ON_PAIRS = {Pair("-1", "i^2", is_right=True)}
WRONG_ON_HELD_OUT = {
    Pair(r"\ln(ab)", r"\ln(a)+\ln(b)", is_right=True),
    Pair("A", "Option A", is_right=True),
}


def find_misjudged(pairs: list[Pair], *, question: str = "?") -> set[Pair]:
    checkers = Checkers(1)
    questions = [
        (
            Prompt(id="p", text=question, answer=pair.expected, problem="file:a.jsonl"),
            rf"\boxed{{{pair.answer}}}",
        )
        for pair in pairs
    ]
    try:
        grades = Grader(CorrectnessReward(timeout_seconds=20), checkers).grades(questions)
    finally:
        checkers.close()
    return {pair for pair, grade in zip(pairs, grades, strict=True) if grade.is_correct is not pair.is_right}


@pytest.mark.parametrize(
    ("pairs", "wrong"),
    [(PAIRS, WRONG_ON_PAIRS), (HELD_OUT, WRONG_ON_HELD_OUT), (DECIDED, set())],
    ids=["tuned on", "held out", "decided"],
)
def test_the_grader_agrees_with_people_except_for_the_listed_pairs(pairs, wrong):
    assert find_misjudged(pairs) == wrong


def test_a_list_must_have_the_order_that_the_question_asks_for():
    pairs = [
        Pair("A, B", "A, B", is_right=True),
        Pair("A, B", "B, A", is_right=False),
        Pair("1, 2.5, 3", r"1, \frac{5}{2}, 3", is_right=True),
        Pair("1, 2.5, 3", r"\frac{5}{2}, 1, 3", is_right=False),
    ]
    assert find_misjudged(pairs, question="Give them in increasing order.") == set()


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        ("List the numbers from least to greatest.", True),
        ("Arrange the letters in alphabetical order.", True),
        ("Find all ordered pairs, in any order.", False),
        ("In order to win, which two numbers does she need?", False),
    ],
)
def test_the_requested_order_is_read_from_the_question(question, is_asked):
    assert asks_for_order(question) is is_asked
