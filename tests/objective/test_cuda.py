"""Test that a GPU gives the same numbers as the CPU."""

import pytest
import torch

from backend.config.merge import resolve
from backend.config.presets import PRESETS
from tests.objective import fixture_f as f
from worker.objective.policy_loss import denominators, policy_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]


@pytest.mark.parametrize("preset", PRESETS)
def test_loss_gradient_and_metrics_match_the_cpu(preset):
    objective = resolve({"preset": preset}).objective
    expected, minus_gradient = f.run(objective, entropy=f.ENTROPY)
    batch = f.batch(objective).to("cuda")
    weights = denominators(batch.mask, batch.group_index, objective, max_new_tokens=4, correct=batch.correct)
    new_logprobs = f.NEW_LOGPROBS.cuda().requires_grad_()
    result = policy_loss(new_logprobs, batch, objective, weights, entropy=f.ENTROPY.cuda())
    result.loss.backward()
    assert result.loss.item() == pytest.approx(expected.loss.item(), rel=1e-10)
    torch.testing.assert_close(-new_logprobs.grad.cpu()[f.MASK], minus_gradient, rtol=1e-10, atol=1e-12)
    assert result.metrics.values() == pytest.approx(expected.metrics.values(), rel=1e-6)
