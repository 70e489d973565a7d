"""Tests of what-if for all presets: numbers by hand, and gradients per token against autograd."""

import numpy as np
import pytest
import torch

from backend.config import knobs
from backend.config.merge import resolve
from tests.presets import METHOD_PRESETS
from worker.objective.policy_loss import policy_loss
from worker.objective.token_choice import split_updates
from worker.training import what_if

LENGTHS = (2, 4, 3, 3)


def draw_values(lengths):
    """Return random values of completions whose policies differ by some tenths, to reach bounds."""
    rng = np.random.default_rng(7)
    shape = (len(lengths), max(lengths))
    old_logprobs = -rng.gamma(1.0, 1.0, shape)
    value_by_name = {
        "policy_logprob": old_logprobs + rng.normal(0, 0.3, shape),
        "old_logprob": old_logprobs,
        "logprob": old_logprobs + rng.normal(0, 0.05, shape),
        "reference_logprob": old_logprobs + rng.normal(0, 0.2, shape),
        "policy_entropy": rng.random(shape),
        "entropy": rng.random(shape),
        "advantage": rng.normal(size=shape),
        "router_shift": rng.random(shape) * 0.1,
        "mask": np.arange(max(lengths)) < np.array(lengths)[:, None],
    }
    return {name: torch.tensor(np.asarray(values, np.float32)) for name, values in value_by_name.items()}


def make_request(objective, lengths, size):
    own_objective = objective.model_dump(mode="json")
    return {
        "run_objective": own_objective,
        "objective": own_objective,
        "group_index": [index // size for index in range(len(lengths))],
        "group_size": size,
        "rewards": [float(index % 2) for index in range(len(lengths))],
        "advantages": [0.0] * len(lengths),
        "correct": [bool(index % 2) for index in range(len(lengths))],
        "max_new_tokens": 8,
        "loss_share": 1.0,
        "token_share": 1.0,
    }


@pytest.mark.parametrize("preset", METHOD_PRESETS)
def test_gradients_match_a_backward_pass_token_by_token(preset):
    objective = resolve({"preset": preset}).objective
    lengths = (5, 9, 7, 3, 8, 8, 1, 6)
    request, values = make_request(objective, lengths, 4), draw_values(lengths)
    if not isinstance(objective.advantage, knobs.Critic | knobs.OptimalTokenBaseline):
        request["advantages"] = values.pop("advantage")[:, 0].tolist()
    weighed = what_if._loss(objective, what_if._batch(objective, objective, request, values), request, values)

    batch = what_if._batch(objective, objective, request, values)
    policy = values["policy_logprob"].clone().requires_grad_()
    for update in split_updates(batch, objective.token_weight):
        weights = what_if._weights(objective, batch, request)
        policy_loss(policy, update, objective, weights, entropy=values["policy_entropy"]).loss.backward()
    assert torch.isfinite(policy.grad).all()
    assert policy.grad.abs().sum() > 0
    torch.testing.assert_close(weighed.contributions["gradient"], policy.grad, rtol=1e-5, atol=1e-8)
    assert not policy.grad[values["mask"] == 0].any()


@pytest.mark.parametrize(
    ("aggregation", "weight", "lowest", "highest"),
    [
        ("token_mean", "1 / Σ|o| = 1 / 12", 1 / 12, 1 / 12),
        ("seq_mean_token_mean", "1 / (B |o_i|) = 1 / (4 |o_i|)", 1 / 16, 1 / 8),
        ("prompt_mean", "1 / (P Σ_j |o_j|) = 1 / (2 Σ_j |o_j|), j in the group of i", 1 / 12, 1 / 12),
        ("seq_mean_token_sum", "1 / B = 1 / 4", 1 / 4, 1 / 4),
        ("seq_mean_token_sum_norm", "1 / (B L_max) = 1 / (4 · 8)", 1 / 32, 1 / 32),
    ],
)
def test_the_numbers_of_a_formula_match_a_count_by_hand(aggregation, weight, lowest, highest):
    objective = resolve({"objective": {"aggregation": {"type": aggregation}}}).objective
    values = draw_values(LENGTHS)
    del values["advantage"]
    values["old_logprob"] = values["policy_logprob"] - torch.tensor(
        [[0.9, 0, 0, 0], [-0.9, 0.9, 0, 0], [0.9, 0.9, 0, 0], [0, 0, 0, 0]]
    )
    request = make_request(objective, LENGTHS, 2) | {"advantages": [1.0, -1.0, 3.0, 1.0]}
    reply = what_if.compute_answer(request, values)
    assert reply["weight"] == weight
    numbers = reply["numbers"]
    assert (numbers["weight_lowest"], numbers["weight_highest"]) == pytest.approx((lowest, highest))
    counts = ("completions", "prompts", "tokens", "shortest", "longest")
    assert [numbers[name] for name in counts] == [4, 2, 12, 2, 4]
    spread = ("advantage_mean", "advantage_std", "advantage_lowest", "advantage_highest")
    assert [numbers[name] for name in spread] == pytest.approx([1.0, 2**0.5, -1.0, 3.0])
    assert [numbers[f"clipped_{bound}"] for bound in ("below", "above", "dual")] == [1, 3, 0]
