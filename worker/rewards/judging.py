"""Operations that judge completions and generate questions, each in a sandboxed process.

They do not import torch, and they import other libraries only when a request needs them.
"""

import contextlib
import importlib
from functools import cache

from backend.base.sandbox.operation import Operation, Request


@cache
def warm_mathematics() -> None:
    """Import math-verify and sympy and fill their caches, so that forks do not have to."""
    from worker.rewards.mathematics import is_equal

    for expected, answer in WARM_UP_PAIRS:
        is_equal(expected=expected, answer=answer)


WARM_UP_PAIRS = (
    (r"\frac{x+1}{2}", "(1+x)/2"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\{1,2\}", r"\{2, 1\}"),
    ("(1,2]", "(1, 2)"),
    ("x=3", "3"),
    ("0.5", r"50\%"),
    ("(a+b)^2", "a^2+2ab+b^2"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"),
    (r"x \in (-\infty, 2] \cup [3, \infty)", r"(-\infty,2]\cup[3,\infty)"),
    (r"2 < x \le 5", "(2,5]"),
    ("3+4i", "4i+3"),
    ("12*x+35", "35+x*12"),
    (r"\frac{12}{35}", "12/35 + 0"),
    (r"-\frac{3\sqrt{5}}{2}", r"-\frac{3}{2}\sqrt{5}"),
    (r"\pi r^2", r"r^2\pi"),
    ("2^{10}-1", "1023"),
    (r"\log_2(8)", "3.0"),
    (r"x = \frac{-b \pm 2}{4}", "x=1"),
    ("(3, -4)", "(3,-4.5)"),
    (r"x^2+\sin(\pi)", "x^2 + e^{0}"),
)
"""Pairs of answers whose comparison runs most of the code that comparisons need."""


def equal_mathematics(request: Request) -> bool:
    """Return whether `found` is mathematically equal to `expected`, by math-verify."""
    from worker.rewards.mathematics import is_equal

    return is_equal(
        expected=request["expected"], answer=request["found"], is_ordered=request.get("is_ordered", False)
    )


def import_gym(_request: Request) -> None:
    """Import the reasoning_gym library."""
    importlib.import_module("worker.rewards.reasoning_gym.entries").library()


def make_gym_entry(request: Request) -> None:
    """Create the entry for an answer, which is cached for later answers."""
    from worker.rewards.reasoning_gym.entries import entry_at

    import_gym(request)
    with contextlib.suppress(Exception):  # `gym_score` raises the same error and reports it
        entry_at(request["task"], request["config"], request["seed"], request["offset"])


def gym_question(request: Request) -> dict[str, str]:
    """Return the question and the answer of a reasoning_gym task at a seed and an offset."""
    from worker.rewards.reasoning_gym.entries import entry_at

    entry = entry_at(request["task"], request["config"], request["seed"], request["offset"])
    return {"question": entry["question"], "answer": str(entry["answer"] or "")}


def gym_score(request: Request) -> float:
    """Return the score of an answer by the task's scorer, 0..1."""
    from worker.rewards.reasoning_gym.entries import score_at

    position = request["task"], request["config"], request["seed"], request["offset"]
    return score_at(*position, answer=request["found"])


OPERATIONS = {
    "equal": Operation(equal_mathematics, prepare=lambda _request: warm_mathematics()),
    "gym_question": Operation(gym_question, prepare=import_gym, is_forked=False),
    "gym_score": Operation(gym_score, prepare=make_gym_entry),
}
