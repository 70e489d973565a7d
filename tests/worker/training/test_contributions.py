"""Tests that the contributions of the stored tokens add up to the logged loss of the step."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from backend.config.merge import resolve
from backend.config.presets.book import BOOK
from backend.rollouts.packing import Tokens, pack_tokens, unpack_tokens
from backend.rollouts.records import GroupRecord
from backend.rollouts.what_if import _pad_arrays
from tests.gate import first_in_gate
from tests.presets import METHOD_PRESETS
from worker.recording.records import StepRecord
from worker.training.what_if import compute_answer

AGGREGATIONS = (
    "seq_mean_token_mean",
    "token_mean",
    "prompt_mean",
    "seq_mean_token_sum",
    "seq_mean_token_sum_norm",
)
TERMS = ("policy", "kl", "entropy", "nll")


def trained_groups(record: StepRecord) -> list[GroupRecord]:
    return [group for group in record.groups if "policy_logprob" in group.completions[0].arrays]


def unpack_record(record: StepRecord) -> list[Tokens]:
    """Return the tokens of all completions of a step as they are restored from the database."""
    unpacked_groups = []
    for group in trained_groups(record):
        tokens = [
            Tokens(c.token_strings, np.asarray(c.token_ids, np.int32), c.arrays) for c in group.completions
        ]
        unpacked_groups += unpack_tokens(pack_tokens(tokens))
    return unpacked_groups


def assert_sums_match(record: StepRecord) -> None:
    """Compare the sums of `loss` and of each term with the logged numbers, to 1e-6 of their size."""
    tokens = unpack_record(record)
    for name, logged_value in (
        ("loss", record.metrics.get("loss/total")),
        *((f"loss_{term}", record.metrics.get(f"loss/{term}")) for term in TERMS),
    ):
        values = [completion.arrays[name] for completion in tokens if name in completion.arrays]
        if logged_value is None or not values:
            assert logged_value is None or name != "loss"
            continue
        all_values = np.concatenate(values).astype(np.float64)
        assert math.isclose(
            all_values.sum(), logged_value, rel_tol=0, abs_tol=1e-6 * max(np.abs(all_values).sum(), 1e-12)
        ), name


def config_of_preset(preset: str) -> dict[str, Any]:
    """Return a config in which every step has signal.

    Longer completions lose reward, and no group is filtered."""
    return {
        "preset": preset,
        "sampling": {"max_new_tokens": 24} | ({} if preset in BOOK else SMALL_SAMPLING),
        "evaluation": {"every": 2, "prompts": 2},
        "filters": {"groups": {"type": "none"}, "refill": {"type": "none"}, "upweight": False},
        "length": {
            "truncated": {"type": "keep"},
            "penalty": {"type": "soft_overlong", "cache_fraction": 0.95},
        },
    }


@pytest.mark.parametrize("preset", first_in_gate(6, METHOD_PRESETS))
def test_contributions_of_every_preset_add_up_and_what_if_agrees(train_steps, preset):
    """Check the contributions, then what-if on the run's own objective if a step makes one update."""
    single_update = {"epochs": 2 if preset == "ppo_kl" else 1, "minibatches": 1, "resample_each_epoch": False}
    changes = config_of_preset(preset) | {"updates": single_update, "steps": 1}
    trained_steps = [record for record in train_steps(changes) if "loss/total" in record.metrics]
    config = resolve(changes)
    assert trained_steps or config.objective.value.pretrain_steps
    for record in trained_steps:
        assert_sums_match(record)
        if config.objective.token_weight.type != "lopti" and config.updates.epochs == 1:
            assert_what_if_agrees(config, record)


def assert_what_if_agrees(config, record) -> None:
    tokens = unpack_record(record)
    completions = [completion for group in trained_groups(record) for completion in group.completions]
    arrays = [dict(completion.arrays) for completion in tokens]
    values = _pad_arrays(arrays, max(len(values_by_name["policy_logprob"]) for values_by_name in arrays))
    size = len(record.groups[0].completions)
    objective = config.objective.model_dump(mode="json")
    request = {
        "run_objective": objective,
        "objective": objective,
        "group_index": np.repeat(np.arange(len(trained_groups(record))), size).tolist(),
        "group_size": size,
        "rewards": [completion.reward for completion in completions],
        "advantages": [completion.advantage for completion in completions],
        "correct": [bool(completion.correct) for completion in completions],
        "max_new_tokens": config.sampling.max_new_tokens,
        "loss_share": 1.0,
        "token_share": 1.0,
    }
    reply = compute_answer(request, {name: torch.from_numpy(array) for name, array in values.items()})
    assert "problem" not in reply
    gross = float(sum(np.abs(values_by_name["loss"]).sum() for values_by_name in arrays))
    assert reply["loss"] == pytest.approx(record.metrics["loss/total"], abs=2e-6 * max(gross, 1e-9))
    gradient_size = float(sum(np.abs(values_by_name["gradient"]).sum() for values_by_name in arrays))
    assert sum(completion["gradient"] for completion in reply["completions"]) == pytest.approx(
        gradient_size, rel=2e-5, abs=1e-9
    )


SMALL_SAMPLING = {"prompts_per_step": 4, "group_size": 4}


@pytest.mark.parametrize("aggregation", first_in_gate(2, AGGREGATIONS))
def test_contributions_add_up_under_every_aggregation_and_several_updates(train_steps, aggregation):
    objective = {
        "aggregation": {"type": aggregation},
        "kl": {"type": "k3", "coef": 0.1},
        "entropy": {"type": "bonus", "coef": 0.01},
    }
    updates = {"epochs": 2, "minibatches": 2}
    for record in train_steps({"objective": objective, "updates": updates}):
        assert_sums_match(record)
        assert {"loss_policy", "loss_kl", "loss_entropy", "gradient"} <= set(
            record.groups[0].completions[0].arrays
        )
