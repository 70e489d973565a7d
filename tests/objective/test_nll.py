"""The NLL loss on correct completions. In fixture F, the correct completions y1 and y2 have five tokens in
total.
"""

import pytest
import torch

from backend.config import knobs
from backend.config.objective import Objective
from tests.objective import fixture_f as f
from worker.objective.batch import PolicyBatch
from worker.objective.policy_loss import denominators, policy_loss

VAPO_OBJECTIVE = Objective(nll=knobs.PositiveNll(coef=0.1), aggregation=knobs.TokenMean())


def run_nll_only(**changes):
    """Return the loss and gradient of the NLL term alone, because all advantages are 0."""
    return f.run(VAPO_OBJECTIVE, advantages=torch.zeros(4), **changes)


def test_the_term_is_the_mean_over_correct_tokens_times_its_coefficient():
    result, minus_gradient = run_nll_only()
    assert result.loss.item() == pytest.approx(0.1 * 0.7700, abs=6e-5)
    assert result.metrics.values()["loss/nll"] == pytest.approx(0.0770, abs=6e-5)
    assert minus_gradient.tolist() == pytest.approx([0.1 / 5] * 5 + [0] * 5)


def test_the_term_is_added_to_the_policy_loss():
    with_nll, without_nll = f.run(VAPO_OBJECTIVE)[0], f.run(VAPO_OBJECTIVE.with_(nll=knobs.NoNll()))[0]
    assert (with_nll.loss - without_nll.loss).item() == pytest.approx(0.0770, abs=6e-5)
    assert "loss/nll" not in without_nll.metrics.values()


def test_without_a_correct_completion_the_nll_term_is_zero():
    result, minus_gradient = run_nll_only(correct=torch.zeros(4, dtype=torch.bool))
    assert result.loss.item() == 0
    assert minus_gradient.tolist() == [0] * 10


def test_masked_tokens_are_not_imitated():
    mask = f.MASK.clone()
    mask[1] = False
    assert run_nll_only(mask=mask)[0].loss.item() == pytest.approx(0.1 * (0.2 + 1.1) / 2)


def test_a_batch_without_correctness_is_refused():
    batch: PolicyBatch = f.batch(VAPO_OBJECTIVE, correct=None)
    weights = denominators(batch.mask, batch.group_index, VAPO_OBJECTIVE, max_new_tokens=4)
    with pytest.raises(ValueError, match="needs which completions are correct"):
        policy_loss(f.NEW_LOGPROBS, batch, VAPO_OBJECTIVE, weights)
