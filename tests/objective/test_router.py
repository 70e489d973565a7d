"""Tests of the router shift against values computed by hand: one token, two layers, two old experts each."""

import pytest
import torch

from worker.objective.batch import PolicyBatch
from worker.objective.router import add_router_shift, changed_frac, log_gamma, router_metrics

OLD_LOGPROBS = torch.tensor([[[[0.5, 0.3], [0.4, 0.4]]]]).log()  # (B, T, L, K)
NEW_LOGPROBS = torch.tensor([[[[0.1, 0.6, 0.2], [0.4, 0.3, 0.3]]]]).log()  # (B, T, L, E)
EXPERTS = torch.tensor([[[[1, 2], [0, 1]]]])


def batch(**fields):
    return PolicyBatch(
        mask=torch.ones(1, 1, dtype=torch.bool),
        advantages=torch.ones(1),
        group_index=torch.tensor([0]),
        **fields,
    )


def test_gamma_is_the_mean_over_layers_of_the_mean_over_old_experts():
    """The layers have mean shifts of 0.2939 and 0.1438, whose mean is 0.2189, so gamma is exp(-0.2189)."""
    first, second = (
        -log_gamma(NEW_LOGPROBS[:, :, [layer]], OLD_LOGPROBS[:, :, [layer]], EXPERTS[:, :, [layer]])
        for layer in (0, 1)
    )
    assert first.item() == pytest.approx(0.2939, abs=6e-5)
    assert second.item() == pytest.approx(0.1438, abs=6e-5)
    assert log_gamma(NEW_LOGPROBS, OLD_LOGPROBS, EXPERTS).item() == pytest.approx(-0.2189, abs=6e-5)
    assert log_gamma(NEW_LOGPROBS, OLD_LOGPROBS, EXPERTS).exp().item() == pytest.approx(0.8034, abs=6e-5)


def test_gamma_has_no_gradient():
    new_logprobs = NEW_LOGPROBS.clone().requires_grad_()
    assert not log_gamma(new_logprobs, OLD_LOGPROBS, EXPERTS).requires_grad


def test_the_share_of_old_experts_no_longer_chosen():
    old_experts = torch.tensor([[[[0, 1], [2, 3]]]])
    assert changed_frac(torch.tensor([[[[1, 0], [3, 2]]]]), old_experts).item() == 0
    assert changed_frac(torch.tensor([[[[1, 2], [3, 2]]]]), old_experts).item() == 0.25
    assert changed_frac(torch.tensor([[[[2, 3], [0, 1]]]]), old_experts).item() == 1


def test_a_dense_policy_has_no_shift():
    assert add_router_shift(batch(), None).router_shift is None
    assert router_metrics(batch(), None).values() == {}


def test_the_weights_at_the_start_of_a_step_have_gamma_one():
    shift = add_router_shift(batch(), NEW_LOGPROBS).router_shift
    assert shift is not None
    assert shift.item() == 0


def test_the_shift_of_a_batch_is_measured_on_its_old_experts():
    shifted_batch = add_router_shift(
        batch(old_experts=EXPERTS, old_router_logprobs=OLD_LOGPROBS), NEW_LOGPROBS
    )
    assert shifted_batch.router_shift is not None
    assert shifted_batch.router_shift.exp().item() == pytest.approx(0.8034, abs=6e-5)
    assert router_metrics(shifted_batch, torch.tensor([[[[1, 2], [0, 2]]]])).values() == {
        "router/expert_change_frac": 0.25
    }
