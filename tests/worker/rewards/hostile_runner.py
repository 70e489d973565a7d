"""Let every checker judge the hostile answers and report the effects: `python -m` this module.

Each subject (a reasoning_gym task or one of the built-in rewards) is judged in a fork of a warm parent
under an audit hook. An answer that exceeds its time limit ends the fork, as it ends the checking process
in a run, and the next fork continues after it. The output is one line of JSON per subject."""

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import walk_packages
from random import Random
from typing import Any, NamedTuple

from backend.config.boxed import last_boxed
from backend.config.reasoning_gym_tasks import TASKS
from backend.rollouts.script import script_consistent, script_share
from tests.worker.rewards.hostile_answers import ALL_ANSWERS, SHORT_ANSWERS
from worker.rewards.answers import MAX_ANSWER_CHARS, is_mathematical, quick_verdict
from worker.rewards.flags import completion_flags
from worker.rewards.formats import boxed_format, lenient_answer, think_format
from worker.rewards.reasoning_gym.entries import entry_at, library, score_at

LIMIT_SECONDS = 0.5
"""Processor time for an answer, so that a busy machine changes nothing."""
LONG_LIMIT_SECONDS = 10.0
"""Processor time for an answer of one megabyte that is read in one pass; no model writes this much."""
BLOCKED_SECONDS = 120.0
"""Time limit for an answer that uses no processor time."""
CHECKED_EVERY = 25
"""Number of hostile answers between two honest ones."""
BEGIN, END = "/hostile-answers-begin", "/hostile-answers-end"
"""Files that do not exist, which delimit the checked answers in a trace of system calls."""

_MONOMIALS = re.compile(
    rb"def monomial_[a-z]+\((?:A|B|k|, )+\):\n(?:[abr][0-9]+|[ABk]|if|else|return|None|[ \n(),=+*<>:0-]|-)*"
)
"""Code that sympy generates for monomials of a number of variables, without text from an answer."""

HARMLESS_EVENTS = (
    "object.__",
    "sys._getframe",
    "signal.",
    "time.",
    "cpython.",
    "gc.",
    "builtins.id",
    "code.__new__",
)
EXPECTED = (
    "x+1",
    r"\frac{1}{2}",
    r"\{1,2\}",
    "Paris",
    "(1,2)",
    r"\begin{pmatrix}1\\2\end{pmatrix}",
    "x<3",
    "2+3i",
)
HONEST_PAIRS = (
    *zip(EXPECTED, EXPECTED, strict=True),
    ("x+1", "1+x"),
    ("x+1", "x"),
    ("7", "3+4"),
    ("8", "2^3"),
)


PIECES = (
    *(
        "\\frac{1}{2}",
        "\\sqrt",
        "\\text{a.b}",
        "\\left(",
        "\\right)",
        "\\boxed{",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "^",
    ),
    *(
        "1",
        "2.5",
        "3,000",
        "x",
        "e",
        "i",
        "-",
        "+",
        "*",
        "/",
        "!",
        "%",
        "$",
        " ",
        "=",
        "<",
        "_",
        "\\cdot ",
        "\\in ",
    ),
    *(
        "__import__('os')",
        ".__class__",
        "\\operatorname{eval}",
        "\\sin ",
        "\\log_",
        "A_{n \\times m}",
        "\\pi",
        ",",
    ),
    *(
        "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
        "\\int_0^1 x dx",
        "\\{1,2\\}",
        "\\infty",
        "eval(1)",
        "\\mathrm{d}",
    ),
)


class Subject(NamedTuple):
    """A judge with the answers that it judges."""

    judge: Callable[[str], Any]
    answers: tuple[str, ...]
    honest: tuple[str, ...]


def task_subject(task: str) -> Subject:
    """Return the scoring function of a task at one of its entries."""
    entry = entry_at(task, {}, 7, 1)
    return Subject(
        lambda answer: score_at(task, {}, 7, 1, answer=answer), SHORT_ANSWERS, (str(entry["answer"]), "0")
    )


def reward_subjects() -> dict[str, Subject]:
    """Return the built-in rewards. Those that the trainer evaluates itself also get the long answers."""
    from worker.rewards.mathematics import is_equal

    _import_all(
        "sympy.concrete", "sympy.integrals", "sympy.series", "sympy.sets", "sympy.simplify", "sympy.solvers"
    )

    def mathematics(answer: str) -> list[bool]:
        if answer.startswith("honest:"):
            return [
                is_equal(expected=expected, answer=boxed_answers) for expected, boxed_answers in HONEST_PAIRS
            ]
        return [is_equal(expected="x+1", answer=answer), is_equal(expected=answer, answer="3")]

    boxed_answers = (
        *ALL_ANSWERS,
        *(f"so \\boxed{{{text}}}" for text in (*SHORT_ANSWERS, "{" * 1_000_000, "\\" * 1_000_000)),
    )
    honest_texts = (r"<think>x</think>\boxed{x+1}", "so 5")
    return {
        "mathematics": Subject(mathematics, (*SHORT_ANSWERS, *_formulas(200)), ("honest:",)),
        "answers": Subject(_verdicts, ALL_ANSWERS, ("1/2", "x+1", "(C)")),
        "formats": Subject(_forms, boxed_answers, honest_texts),
        "flags": Subject(_flags, boxed_answers, honest_texts),
        "language": Subject(
            lambda text: (script_share("why?", text), script_consistent(text, "why?")),
            boxed_answers,
            honest_texts,
        ),
    }


def _import_all(*packages: str) -> None:
    """Import what sympy imports lazily, so that the remaining imports are caused by answers."""
    for package in map(importlib.import_module, packages):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not {"tests", "benchmarks"} & set(module.name.split(".")):
                importlib.import_module(module.name)


def _formulas(count: int) -> list[str]:
    """Generate formulas from LaTeX grammar and Python code."""
    rng = Random(5)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 12))) for _ in range(count)]


def _verdicts(answer: str) -> list[Any]:
    answer_pairs = [(expected, answer) for expected in EXPECTED] + [
        (answer, boxed_answer) for boxed_answer in (*EXPECTED, answer, "1")
    ]
    return [quick_verdict(*pair) for pair in answer_pairs] + [
        len(answer) <= MAX_ANSWER_CHARS and is_mathematical(answer)
    ]


def _forms(text: str) -> list[Any]:
    answers = [last_boxed(text), lenient_answer(text)]
    return [*map(hash, answers), boxed_format(text), think_format(text, "book"), think_format(text, "strict")]


def _flags(text: str) -> list[str]:
    return [
        *completion_flags(
            text, prompt="", is_scored=True, is_truncated=False, is_correct=True, expects_think=True
        )
    ]


def main(names: list[str]) -> None:
    """Judge every answer for these subjects, or for all of them."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the library is not part of the report
    library()
    subjects = reward_subjects()
    for name in names or [*subjects, *sorted(TASKS)]:
        subject = subjects[name] if name in subjects else task_subject(name)
        replies.write(json.dumps({"subject": name, **report(subject)}) + "\n")
        replies.flush()


def report(subject: Subject) -> dict[str, Any]:
    """Return the effects of the hostile answers: events, changed grades and exceeded limits."""
    grades_before = [_grade_answer(subject, answer) for answer in subject.honest * 2]
    events: list[str] = []
    has_changed_grades, killed_answers, judged_count, start = False, [], 0, 0
    while start < len(subject.answers):
        for line in lines_of_fork(subject, start):
            judged_count += 1
            start = line["number"] + 1
            events += line["events"]
            has_changed_grades = has_changed_grades or (
                line["honest"] is not None and line["honest"] != json.loads(json.dumps(grades_before))
            )
        if start < len(subject.answers):  # the fork was ended during the next answer
            killed_answers.append(subject.answers[start][:60])
            start += 1
    names = sorted(set(events))
    return {
        "judged": judged_count,
        "killed": killed_answers,
        "events": names,
        "changed": has_changed_grades,
        "files": [*map(str, Path().iterdir())],
    }


def lines_of_fork(subject: Subject, start: int) -> Iterator[dict[str, Any]]:
    """Judge the answers from `start` on in a fork, and yield its report on each until it ends."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        _judge(subject, start, os.fdopen(write_end, "w"))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        yield from (json.loads(line) for line in lines)
    os.waitpid(child, 0)


def _judge(subject: Subject, start: int, output: Any) -> None:
    events: list[str] = []
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    sys.addaudithook(lambda event, args: _note(events, event, args))
    os.access(BEGIN, os.F_OK)
    for number in range(start, len(subject.answers)):
        is_long = len(subject.answers[number]) > MAX_ANSWER_CHARS
        signal.setitimer(signal.ITIMER_PROF, LONG_LIMIT_SECONDS if is_long else LIMIT_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, BLOCKED_SECONDS)
        _grade_answer(subject, subject.answers[number])
        is_last = number == len(subject.answers) - 1 or number % CHECKED_EVERY == 0
        signal.setitimer(signal.ITIMER_PROF, BLOCKED_SECONDS)
        honest_grades = [_grade_answer(subject, answer) for answer in subject.honest * 2] if is_last else None
        output.write(json.dumps({"number": number, "events": [*events], "honest": honest_grades}) + "\n")
        output.flush()
        events.clear()
    os.access(END, os.F_OK)


def _grade_answer(subject: Subject, answer: str) -> Any:
    try:
        return subject.judge(answer)
    except Exception as error:  # noqa: BLE001 - as in the checking process: the answer is wrong then
        return type(error).__name__


def _note(events: list[str], event: str, args: tuple[Any, ...]) -> None:
    if not event.startswith(HARMLESS_EVENTS) and not _is_of_monomials(event, args):
        events.append(f"{event} {args!r:.300}")


def _is_of_monomials(event: str, args: tuple[Any, ...]) -> bool:
    if event == "compile":
        return isinstance(args[0], bytes) and _MONOMIALS.fullmatch(args[0]) is not None
    is_string = event == "exec" and args[0].co_filename == "<string>"
    return is_string and len(args[0].co_names) == 1 and args[0].co_names[0].startswith("monomial_")


if __name__ == "__main__":
    main(sys.argv[1:])
