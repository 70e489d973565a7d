"""Tests of rewards: correctness, format, and text that attacks its judge."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from backend.base.errors import PluginFailed
from backend.base.locations import CODE_ROOT
from backend.config.boxed import last_boxed
from backend.config.rewards import (
    BoxedFormatReward,
    CorrectnessReward,
    PluginReward,
    ThinkFormatReward,
)
from backend.rollouts.repetition import distinct_gram_share
from backend.rollouts.script import script_consistent, script_share
from worker.prompt import Prompt
from worker.rewards.answers import quick_verdict
from worker.rewards.correctness import Checkers, Grader
from worker.rewards.flags import completion_flags
from worker.rewards.formats import boxed_format, lenient_answer, think_format
from worker.rewards.lengths import group_length_rewards
from worker.rewards.plugins import MAX_CONSECUTIVE_FAILURES
from worker.rewards.score import Scorer
from worker.types import Completion

HANGING_ANSWER = r"\boxed{9^{9^{9^9}}}"


def prompt(answer: str, *, problem: str = "file:a.jsonl", domain: str = "math", **columns: object) -> Prompt:
    return Prompt(id="p", text="?", answer=answer, problem=problem, domain=domain, columns=columns)


def completion(text: str) -> Completion:
    no_values = np.zeros(0, dtype=np.float32)
    return Completion(np.zeros(0, dtype=np.int64), text, (), "stop", no_values, no_values)


@pytest.fixture(scope="module")
def checkers():
    checkers = Checkers(1)
    yield checkers
    checkers.close()


def grade_answer(checkers: Checkers, answer: str, text: str, **term: object) -> float | None:
    term = {"timeout_seconds": 20, **term}
    [grade] = Grader(CorrectnessReward.model_validate(term), checkers).grades([(prompt(answer), text)])
    return grade.score


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{233}", "233"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1} and \boxed{2", None),
        (r"\boxed 5", "5"),
        (r"\boxed 2.", "2"),
        (r"\boxed -1,234/5 so", "-1,234/5"),
        (r"\boxed x$", "x"),
        (r"\boxed \frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxed\frac12", None),
        (r"\boxed{3} is what \boxed means", "3"),
        (r"\boxed 2x", None),
        (r"\boxed 2 + 3", None),
        (r"\boxed \frac{1}{2} \cdot 3", None),
        (r"\boxed x^2", None),
        (r"put it into \boxed a nice frame", None),
        (r"\boxed C.", "C"),
        (r"\boxed 3, 4", "3"),
        (r"\boxed{3}, not \boxed 5", "3"),
        (r"\boxed{\boxed 5}", r"\boxed 5"),
        ("the answer is 5", None),
        (r"\boxed{}", ""),
        ("", None),
        ("\\boxed{\\", None),
    ],
)
def test_the_answer_is_the_content_of_the_last_box(text, answer):
    assert last_boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{5} and 6", "5"),
        ("first 3, then 1,234", "1,234"),
        ("it is 3/4 or -2.5", "-2.5"),
        (" yes ", "yes"),
    ],
)
def test_without_a_box_the_lenient_reader_takes_the_last_number_or_the_whole_text(text, answer):
    assert lenient_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "book", "strict"),
    [
        ("<think>1+1=2</think>2", 1, 1),
        ("  <think>1+1=2</think>\n2", 1, 1),
        ("<think></think><think></think>", 1, 0),
        ("<think>1</think>", 1, 0),
        ("well <think>1</think>2", 1, 0),
        ("<think>1<think>2</think>3", 1, 0),
        ("</think><think>", 0, 0),
        ("</think><think></think>2", 0, 0),
        ("<think>1", 0, 0),
        ("1</think>2", 0, 0),
        ("2", 0, 0),
    ],
)
def test_think_format_in_the_lenient_and_in_the_strict_form(text, book, strict):
    assert (think_format(text, "book"), think_format(text, "strict")) == (book, strict)


@pytest.mark.parametrize(
    ("text", "book", "strict"),
    [
        ("work</think>7", 1, 1),
        ("work</think>", 1, 0),
        ("work", 0, 0),
        ("<think>work</think>7", 1, 0),
        ("</think>7", 1, 1),
    ],
)
def test_think_format_if_the_template_has_opened_the_tag(text, book, strict):
    by_form = [think_format(text, form, is_opened=True) for form in ("book", "strict")]
    assert by_form == [book, strict]


def test_boxed_format_needs_a_complete_nonempty_box():
    texts = (r"\boxed{1}", r"\boxed{}", r"\boxed{1", "1", r"\boxed 1")
    assert [boxed_format(text) for text in texts] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("233", "233"),
        ("233", "0233"),
        ("1234", "1,234"),
        ("1/2", r"\frac{1}{2}"),
        ("0.5", r"\dfrac12"),
        ("90", r"90^\circ"),
        ("5", "5."),
        ("yes", r"\text{Yes}"),
        ("3", "c. 3"),
        ("(1, 2)", r"\left(1,2\right)"),
        ("2x", "2 x"),
        ("50", r"50\%"),
        ("3/2", "3/2<|im_end|>"),
        ("3/2", "1 1/2"),
        ("2 3/4", "2.75"),
        ("1e3", "1000"),
        ("8", "2³"),
        (r"\text{(C)}", "C"),
        ("C", "C) Paris"),
        ("11_2", "11_{2}"),
        ("New York", r"\text{new  york}"),
    ],
)
def test_respelled_answers_are_equal_without_algebra(expected, answer):
    assert quick_verdict(expected, answer) is True


@pytest.mark.parametrize(
    ("expected", "answer", "score"),
    [
        ("x^2+1", "1+x^2", 1),
        (r"2\sqrt{2}", r"\sqrt{8}", 1),
        (r"\{1,2\}", r"\{2,1\}", 1),
        ("(1,2)", "(2,1)", 0),
        ("0.333333", "1/3", 1),
        ("10", r"10\text{ cm}", 1),
        ("3", "x=3", 1),
        ("5", "5+", 0),
        ("3", r"\frac{1}{0}", 0),
        ("Paris", "Rome", 0),
    ],
)
def test_mathematics_is_compared_by_meaning(checkers, expected, answer, score):
    assert grade_answer(checkers, expected, rf"\boxed{{{answer}}}") == score


def test_an_answer_that_hangs_algebra_is_killed_at_its_limit_and_the_next_is_scored(checkers):
    grade_answer(checkers, "x+1", r"\boxed{1+x}")
    timeouts_before = checkers.timeouts
    assert grade_answer(checkers, "3", HANGING_ANSWER, timeout_seconds=0.5) == 0
    assert checkers.timeouts == timeouts_before + 1
    assert grade_answer(checkers, "x+1", r"\boxed{1+x}") == 1


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300 + ")" * 300,
        "\\frac{" * 50,
        "1" * 1999,
        "\x00",
        "\ud800",
        "__import__('os').system('true')",
        "{" * 50,
    ],
)
def test_odd_text_is_wrong_and_harmless(checkers, text):
    assert grade_answer(checkers, "3", rf"\boxed{{{text}}}", timeout_seconds=0.5) == 0
    assert grade_answer(checkers, "x+1", r"\boxed{1+x}") == 1


def test_a_busy_sandbox_ends_with_its_killed_trainer():
    code = (
        "from backend.base.sandbox.process import Sandbox; s = Sandbox('worker.rewards.judging')\n"
        "s.run_operation('equal', expected='1', found='1+0', seconds=60)\n"
        "print(s.pid, flush=True)\n"
        "s.run_operation('equal', expected='3', found='9^{9^{9^9}}', seconds=600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=CODE_ROOT)
    sandbox = psutil.Process(int(parent.stdout.readline()))
    family = [sandbox, *sandbox.children(recursive=True)]
    time.sleep(0.2)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    _, alive_processes = psutil.wait_procs(family, timeout=60)
    assert not alive_processes


def test_a_sandbox_whose_plugin_started_a_thread_ends_with_its_trainer(tmp_path, monkeypatch):
    (tmp_path / "threading_rewards.py").write_text(
        "import threading, time\n"
        "from backend.base.sandbox.operation import Operation\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "OPERATIONS = {'one': Operation(lambda request: 1)}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = (
        "import os; from backend.base.sandbox.process import Sandbox; s = Sandbox('threading_rewards')\n"
        "s.run_operation('one', seconds=60)\n"
        "print(s.pid, flush=True); os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=CODE_ROOT) as trainer:
        pid = int(trainer.stdout.readline())
    processes = [psutil.Process(pid)] if psutil.pid_exists(pid) else []
    processes += [child for parent in processes for child in parent.children(recursive=True)]
    _, alive_processes = psutil.wait_procs(processes, timeout=60)
    for process in alive_processes:
        process.kill()
    assert not alive_processes


def test_reasoning_gym_answers_are_scored_by_their_task(checkers):
    position = {"task": "chain_sum", "config": {}, "seed": 5, "offset": 3}  # 484 + 229 + 297
    chain_sum_prompt = prompt("1010", problem="reasoning_gym:chain_sum", reasoning_gym=position)
    pairs = [(chain_sum_prompt, text) for text in (r"\boxed{1010}", r"\boxed{11}", "1010", r"\boxed{= 1010}")]
    scores = [grade.score for grade in Grader(CorrectnessReward(timeout_seconds=20), checkers).grades(pairs)]
    assert scores[:3] == [1, 0, 0]
    assert (
        0 < (scores[3] or 0) < 1
    )  # the library gives partial credit to an answer that contains the right one


FORGING_SOURCE = """
from backend.base.sandbox.operation import Operation

OPERATIONS = {"equal": Operation(lambda request: eval(request["found"]))}
"""


@pytest.mark.parametrize("score", ["'right'", "float('nan')", "1e308", "-1", "[True]", "{}", "1 + 10**400"])
def test_a_value_that_is_not_a_score_is_wrong(score, tmp_path, monkeypatch):
    """Only an answer that controls the process of its checker can cause such a value."""
    (tmp_path / "forging.py").write_text(FORGING_SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("worker.rewards.correctness.JUDGING", "forging")
    with closing(Checkers(processes=1)) as forged_checkers:
        pairs = [(prompt("x+1"), f"\\boxed{{{text}}}") for text in (score, "True", "0.5")]
        grades = Grader(CorrectnessReward(timeout_seconds=20), forged_checkers).grades(pairs)
    assert [grade.score for grade in grades] == [0, 1, 0.5]


def test_flags_name_conspicuous_properties():
    flags = completion_flags(
        "<think>" * 20, prompt="", is_scored=True, is_truncated=True, is_correct=False, expects_think=True
    )
    assert flags == ("truncated", "wrong", "unparsed", "no_think", "repetitive")


def test_a_good_completion_has_no_flags():
    text = r"<think>85+60=145,145+88=233</think>\boxed{233}"
    assert (
        completion_flags(
            text, prompt="", is_scored=True, is_truncated=False, is_correct=True, expects_think=True
        )
        == ()
    )


@pytest.mark.parametrize(
    ("text", "is_repetitive"),
    [
        ("<think></think>" * 4, True),
        ("wait, " * 20, True),
        ("A sensible sentence that goes on for a while and then ends." + "no " * 200, True),
        ("ha" * 10, False),
        ("85+60=145,145+88=233,85+60+88=233", False),
        ("The quick brown fox jumps over the lazy dog while the cat looks on.", False),
    ],
)
def test_a_text_is_repetitive_if_its_end_repeats(text, is_repetitive):
    assert (distinct_gram_share(text) < 1 / 3) is is_repetitive


def score_texts(terms: Sequence[Any], prompts: list[Prompt], texts: list[list[str]]):
    scorer = Scorer(terms, processes=1)
    try:
        return scorer.score(prompts, [[completion(text) for text in row] for row in texts])
    finally:
        scorer.close()


SUM_PROMPT = prompt("5", problem="sums")
RIGHT, WRONG = r"<think>2+3=5</think>\boxed{5}", r"<think>2+3=6</think>\boxed{6}"


def test_the_reward_is_the_weighted_sum_of_its_terms():
    [group] = score_texts(
        [CorrectnessReward(), ThinkFormatReward(weight=0.25)],
        [SUM_PROMPT],
        [[RIGHT, WRONG, r"\boxed{5}", ""]],
    )
    assert group.rewards == (1.25, 0.25, 1, 0)
    assert group.terms == {"correctness": (1, 0, 1, 0), "think_format": (1, 1, 0, 0)}
    assert group.correctness == (1, 0, 1, 0)


def test_a_conditional_term_is_for_correct_completions_only():
    terms = [CorrectnessReward(), ThinkFormatReward(weight=0.5, only_when_correct=True)]
    [group] = score_texts(terms, [SUM_PROMPT], [[RIGHT, WRONG]])
    assert group.terms["think_format"] == (1, 0)
    assert group.rewards == (1.5, 0)


def test_without_a_required_format_nothing_counts():
    """As in Magistral, a completion in the wrong format gets 0 and is not graded."""
    terms = [
        CorrectnessReward(weight=0.9),
        ThinkFormatReward(weight=0.1, required=True),
        BoxedFormatReward(weight=0, required=True),
    ]
    texts = [RIGHT, WRONG, r"\boxed{5}", "<think>2+3=5</think> five"]
    [group] = score_texts(terms, [SUM_PROMPT], [texts])
    assert group.rewards == (1, 0.1, 0, 0)
    assert group.missed == (False, False, True, True)
    assert group.terms["correctness"] == (1, 0, 1, 0)
    assert group.counted["correctness"] == (1, 0, 0, 0)


def test_the_shortest_of_a_group_earns_most_and_wrong_answers_never_gain():
    assert group_length_rewards([10, 20, 30], [True, True, True]) == [0.5, 0, -0.5]
    assert group_length_rewards([10, 20, 30], [False, True, False]) == [0, 0, -0.5]
    assert group_length_rewards([7, 7], [True, False]) == [0, 0]
    assert group_length_rewards([1, 2], [None, True]) == [None, -0.5]


@pytest.mark.parametrize(
    ("asked", "text", "share", "consistent"),
    [
        ("What is two plus three?", r"<think>two and three</think> so \boxed{5}", 1, 1),
        ("What is two plus three?", "<think>два плюс три</think> five", 4 / 14, 0),
        ("Сколько будет два плюс три?", "<think>пусть x равно 2, α мало</think> пять", 1, 1),
        ("两个数", r"<think>设 x = 3</think> 答案 \boxed{5}", 1, 1),
        ("二つの数", "<think>ふたつ</think> かんたん", 1, 1),
        ("85+60=?", "<think>85+60=145</think> 145", 1, 1),
        ("85+60=?", "sum сумма", 5 / 8, 1),
        ("85+60=?", "", 1, 1),
        ("What is it?", "<think>это просто</think> it is five", 8 / 17, 0),
    ],
)
def test_a_completion_must_use_the_script_of_its_prompt(asked, text, share, consistent):
    assert script_share(asked, text) == pytest.approx(share)
    assert script_consistent(asked, text) == consistent


def test_a_term_of_a_domain_replaces_the_general_term():
    terms = [
        CorrectnessReward(),
        CorrectnessReward(weight=3, domain="code"),
        ThinkFormatReward(domain="code", weight=1),
    ]
    code = prompt("5", problem="sums", domain="code")
    first, second, third = score_texts(terms, [code, SUM_PROMPT, code], [[RIGHT], [RIGHT], [WRONG]])
    assert (first.rewards, second.rewards, third.rewards) == ((4,), (1,), (1,))
    assert list(second.terms) == ["correctness"]


PLUGIN_SOURCE = """
import os, time

def brevity(prompt, text, *, limit=10):
    print("chatter on standard output")
    return float(len(text) <= limit)

def picky(prompt, text):
    return None if prompt.columns["level"] == "hard" else 1

def raising(prompt, text):
    raise KeyError("no such column")

def hanging(prompt, text):
    time.sleep(600)

def infinite(prompt, text):
    return float("inf")

def wordy(prompt, text):
    return "good"

def dying(prompt, text):
    os._exit(3)

def touchy(prompt, text):
    return 1 if text != "odd" else 1 / 0

def sleepy(prompt, text):
    return 1 if text != "odd" else time.sleep(600)

def vague(prompt, text):
    return 1 if text != "odd" else float("nan")

def vast(prompt, text):
    return 1 if text != "odd" else 10**400
"""


@pytest.fixture
def plugin_package(tmp_path: Path, monkeypatch):
    """A user's package with entry points, installed where trainer and child process find it."""
    (tmp_path / "demo_rewards.py").write_text(PLUGIN_SOURCE)
    info = tmp_path / "demo_rewards-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo_rewards\nVersion: 1.0\n")
    names = (
        "brevity",
        "picky",
        "raising",
        "hanging",
        "infinite",
        "wordy",
        "dying",
        "missing",
        "touchy",
        "sleepy",
        "vague",
        "vast",
    )
    points = "\n".join(f"{name} = demo_rewards:{name}" for name in names)
    (info / "entry_points.txt").write_text(f"[grpolab.rewards]\n{points}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raising", r"reward plugin 'raising' on prompt 'p': KeyError: 'no such column'"),
        ("hanging", r"reward plugin 'hanging' on prompt 'p': no answer within 0.5 seconds"),
        ("infinite", r"expected a finite number or None, got inf"),
        ("wordy", r"expected a finite number or None, got 'good'"),
        ("dying", r"ended with code 3"),
        ("missing", r"has no attribute 'missing'"),
        (
            "unknown",
            r"there is no entry point 'unknown' in the group grpolab.rewards; installed are: brevity, dying",
        ),
    ],
)
def test_a_reward_that_fails_repeatedly_ends_the_run_with_an_explanation(plugin_package, name, reason):
    seconds = 0.5 if name == "hanging" else 60
    with pytest.raises(PluginFailed, match=reason):
        score_texts(
            [PluginReward(entry_point=name, timeout_seconds=seconds)],
            [SUM_PROMPT],
            [[RIGHT] * MAX_CONSECUTIVE_FAILURES],
        )


@pytest.mark.parametrize("name", ["touchy", "sleepy", "vague", "vast"])
def test_a_reward_that_fails_occasionally_leaves_those_completions_unscored(plugin_package, name):
    seconds = 4 if name == "sleepy" else 60
    terms = (PluginReward(entry_point=name, timeout_seconds=seconds), CorrectnessReward())
    with closing(Scorer(terms, processes=1)) as scorer:
        [group] = scorer.score([SUM_PROMPT], [[completion(text) for text in (RIGHT, "odd", RIGHT, "odd")]])
        flags = scorer.flags(SUM_PROMPT, completion("odd"), 0.0, reward=group.rewards[1])
        failure = (scorer.failures, scorer.last_failure.partition(": ")[0])
    assert list(group.rewards) == [2, None, 2, None]
    assert failure == (2, f"reward plugin {name!r} on prompt 'p'")
    assert "unscored" in flags
