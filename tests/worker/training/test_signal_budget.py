"""Tests of the signal budget, whose disjoint parts add up to a step's completions, tokens and seconds."""

from typing import Any

import numpy as np
import pytest
import torch

from backend.config.signal_budget import PARTS, UNITS, budget_metric
from tests.gate import first_in_gate
from tests.presets import METHOD_PRESETS
from tests.worker.training.test_contributions import config_of_preset
from worker.prompt import Prompt
from worker.rollout.collector import CollectedGroups
from worker.training.signal_budget import signal_budget
from worker.training.update_stats import TokenUse, UpdateStats, token_use
from worker.types import Completion, Group


def completion(length: int, finish_reason: Any = "stop") -> Completion:
    values = np.zeros(length, np.float32)
    return Completion(values.astype(np.int64), "x" * length, ("x",) * length, finish_reason, values, values)


def group(rewards: tuple[float | None, ...], *completions: Completion) -> Group:
    prompt = Prompt(id="p", text="1+1", answer="2", problem="sums", domain="math", index=0)
    correctness = tuple(None if reward is None else float(reward >= 1) for reward in rewards)
    return Group(prompt, completions, rewards, correctness=correctness)


def read_budget_parts(metrics: dict[str, float], unit: Any) -> dict[str, float]:
    return {use: metrics[budget_metric(use, unit)] for use in PARTS if metrics[budget_metric(use, unit)]}


def test_each_completion_is_in_the_first_part_that_fits():
    step = CollectedGroups(
        groups=[
            group(
                (1.0, 0.0, 1.0, 0.0), completion(10), completion(20), completion(30), completion(5, "length")
            ),
            group((1.0, 1.0), completion(4), completion(6)),  # trained, although equal
            group((0.0, 0.0), completion(7), completion(3, "length")),  # excluded because it is equal
            group((1.0, 0.0), completion(8), completion(2)),  # excluded by the accuracy filter
        ],
        trained=[0, 1],
        left_out={2: "equal", 3: "accuracy"},
        sample_seconds=3.0,
        score_seconds=1.0,
    )
    stats = UpdateStats(
        advantages=[[1.0, -1.0, 1.0, -1.0], [0.0, 0.0]],
        token_use=[
            [TokenUse(1, 2, 7), TokenUse(0, 20, 0), TokenUse(30, 0, 0), TokenUse(5, 0, 0)],
            [TokenUse(4, 0, 0), TokenUse(6, 0, 0)],
        ],
    )
    budget = signal_budget(step, stats, seconds=10.0)
    assert list(read_budget_parts(budget, "completions").values()) == [
        2,
        2,
        1,
        2,
        1,
        1,
        1,
    ]  # in the order of PARTS
    assert list(read_budget_parts(budget, "tokens").values()) == [8, 10, 7, 10, 31, 22, 7]
    # 4 s over 95 sampled tokens, 6 s over 75 trained tokens
    assert budget["time/signal/left_out"] == pytest.approx(4 * 10 / 95)
    assert budget["time/signal/useful"] == pytest.approx(4 * 7 / 95 + 6 * 7 / 75)
    assert budget["time/signal/truncated"] == pytest.approx(4 * 8 / 95 + 6 * 5 / 75)
    assert sum(read_budget_parts(budget, "seconds").values()) == pytest.approx(10, abs=1e-12)


def test_a_pooled_group_costs_no_sampling_and_an_unscored_completion_is_masked():
    step = CollectedGroups(
        groups=[
            group((None, 1.0, 0.0), completion(10), completion(10), completion(10)),
            group((1.0,), completion(30)),
        ],
        carried=[0],
        trained=[0],
        left_out={1: "waiting"},
        sample_seconds=4.0,
    )
    use = [TokenUse(10, 0, 0), TokenUse(0, 0, 10), TokenUse(0, 0, 10)]
    budget = signal_budget(step, UpdateStats(advantages=[[0.0, 1.0, -1.0]], token_use=[use]), seconds=10.0)
    assert read_budget_parts(budget, "completions") == {"masked": 1, "left_out": 1, "useful": 2}
    assert read_budget_parts(budget, "seconds") == pytest.approx({"masked": 2, "left_out": 4, "useful": 4})


def test_tokens_are_masked_clipped_or_useful():
    mask = torch.tensor([[True, True, True], [False, False, False]])
    per_token = {
        "policy_gradient": torch.tensor([[0.5, 0.0, 0.1], [1.0, 1.0, 0.0]]),
        "clipped": torch.tensor([[0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]),
    }
    assert token_use(per_token, mask, [3, 2], groups=1) == [[TokenUse(1, 1, 1), TokenUse(2, 0, 0)]]
    assert token_use({}, mask, [3, 2], groups=2) == [[TokenUse(3, 0, 0)], [TokenUse(2, 0, 0)]]
    not_a_number = {"policy_gradient": torch.full((2, 3), float("nan"))}
    assert token_use(not_a_number, mask, [3, 2], groups=2)[0] == [TokenUse(3, 0, 0)]


def assert_adds_up(metrics: Any, completions: int) -> None:
    sums = {unit: sum(metrics[budget_metric(use, unit)] for use in PARTS) for unit in UNITS}
    assert sums["completions"] == completions
    assert sums["seconds"] == pytest.approx(metrics["time/step_seconds"], abs=1e-9)
    if not metrics.get("sampling/carried_frac"):
        assert sums["tokens"] == pytest.approx(metrics["tokens/generated"], abs=0)


@pytest.mark.parametrize("preset", first_in_gate(4, METHOD_PRESETS))
def test_the_budget_of_every_preset_covers_the_whole_step(train_steps, preset):
    for record in train_steps(config_of_preset(preset) | {"steps": 2}):
        assert "policy_gradient" not in record.groups[0].completions[0].arrays
        if preset != "remax":  # tokens of greedy baselines belong to no completion
            assert_adds_up(
                record.metrics,
                sum(len(group.completions) for group in record.groups if group.kind == "train"),
            )
