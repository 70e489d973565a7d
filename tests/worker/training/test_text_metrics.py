"""Tests of the structure, repetition and script of completions, by hand."""

import numpy as np
import pytest

from backend.rollouts.text_metrics import structure
from worker.prompt import Prompt
from worker.rollout.collector import CollectedGroups
from worker.training.step_metrics import group_metrics
from worker.training.text_metrics import text_metrics
from worker.types import Completion, Group


def group(*texts, prompt="1+1=?", correctness=(), rewards=(), truncated=()):
    completions = tuple(
        Completion(
            np.arange(3),
            text,
            ("x",) * 3,
            "length" if number in truncated else "stop",
            np.zeros(3, np.float32),
            np.zeros(3, np.float32),
        )
        for number, text in enumerate(texts)
    )
    question = Prompt(prompt, prompt, "2", "sums", "math", index=0)
    return Group(question, completions, rewards or (0.0,) * len(texts), correctness=correctness)


@pytest.mark.parametrize(
    ("text", "truncated", "state"),
    [
        (r"<think>1+1</think>\boxed{2}", False, "ok"),
        (r"\boxed{2}", False, "ok"),
        ("<think>1+1</think>2", False, "answerless"),
        (r"\boxed{2", False, "answerless"),
        ("", False, "answerless"),
        ("<think>1+1+", True, "answerless"),
        ("<think>1+1+", False, "broken"),
        (r"</think><think>\boxed{2}", False, "broken"),
        (r"1+1</think>\boxed{2}", False, "broken"),
        (r"1+1</think>\boxed{2}", True, "broken"),
        (r"<think>1</think><think>2</think>\boxed{2}", False, "polluted"),
        (r"<think><think>1</think></think>\boxed{2}", False, "polluted"),
    ],
)
def test_the_structure_of_a_completion_is_recognised(text, truncated, state):
    assert structure(text, is_truncated=truncated) == state


def test_the_states_of_a_step_add_up_to_one():
    metrics = text_metrics([group(r"\boxed{2}", "2", "<think>", "<think>", truncated={3})])
    shares = {
        name.rpartition("_")[2]: metric_value for name, metric_value in metrics.items() if "structure" in name
    }
    assert shares == {"ok": 0.25, "answerless": 0.5, "polluted": 0.0, "broken": 0.25}


def test_a_loop_is_repetitive_and_compresses_well():
    loop = text_metrics([group("abc" * 400)])
    plain_metrics = text_metrics([group("The sum of one and one is two, as a short addition shows at once.")])
    assert loop["text/repetition"] == pytest.approx(1 - 3 / 505)
    assert plain_metrics["text/repetition"] == 0
    assert loop["text/compression"] < 0.03
    assert plain_metrics["text/compression"] > 0.8


def test_the_reward_of_wrong_completions_is_unearned():
    groups = [
        group("a", "b", "c", correctness=(1.0, 0.0, None), rewards=(2.0, 1.0, 5.0)),
        group("a", "b", "c", correctness=(0.0, 0.0, 1.0), rewards=(-3.0, None, 1.0)),
    ]
    metrics = group_metrics(CollectedGroups(groups=groups, trained=[0, 1]))
    assert metrics["reward/unearned_share"] == 0.25  # 1 of 2 + 1 + 1
    metrics_without_wrong = group_metrics(
        CollectedGroups(groups=[group("a", correctness=(0.0,), rewards=(0.0,))], trained=[0])
    )
    assert "reward/unearned_share" not in metrics_without_wrong


def test_a_tag_opened_by_the_template_belongs_to_the_completion():
    groups = [group(r"work</think>\boxed{2}")]
    assert text_metrics(groups, opens_think=True)["text/structure_ok"] == 1
    assert text_metrics(groups)["text/structure_broken"] == 1
