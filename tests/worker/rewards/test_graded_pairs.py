"""The grader against pairs that people judged: what it still gets wrong is listed by name."""

import pytest

from backend.config.rewards import CorrectnessReward
from tests.worker.rewards.graded_pairs import HELD_OUT, PAIRS, Pair
from worker.prompt import Prompt
from worker.rewards.correctness import Checkers, Grader

WRONG_ON_PAIRS = {Pair("-1", "i^2", is_right=True)}
WRONG_ON_HELD_OUT = {
    Pair("6", r"6\\", is_right=True),
    Pair("15%", "0.15", is_right=False),
    Pair("12 cm^2", "12", is_right=True),
    Pair(r"\ln(ab)", r"\ln(a)+\ln(b)", is_right=True),
    Pair(r"\{a, b\}", r"\{b, a\}", is_right=True),
    Pair("A", "Option A", is_right=True),
}


def misjudged(pairs: list[Pair]) -> set[Pair]:
    checkers = Checkers(1)
    asked = [
        (Prompt(id="p", text="?", answer=pair.expected, problem="file:a.jsonl"), rf"\boxed{{{pair.found}}}")
        for pair in pairs
    ]
    try:
        grades = Grader(CorrectnessReward(timeout_seconds=20), checkers).grades(asked)
    finally:
        checkers.close()
    return {pair for pair, grade in zip(pairs, grades, strict=True) if grade.is_correct is not pair.is_right}


@pytest.mark.parametrize(
    ("pairs", "wrong"), [(PAIRS, WRONG_ON_PAIRS), (HELD_OUT, WRONG_ON_HELD_OUT)], ids=["tuned on", "held out"]
)
def test_the_grader_judges_as_people_do_but_for_what_is_listed(pairs, wrong):
    assert misjudged(pairs) == wrong


def test_the_sets_are_large_and_mixed_and_have_no_pair_twice():
    assert len({*PAIRS, *HELD_OUT}) == len(PAIRS) + len(HELD_OUT) >= 251 + 100
    assert sum(pair.is_right for pair in PAIRS) / len(PAIRS) < 0.7
