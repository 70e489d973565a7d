"""Tests of updates of the reference policy."""

import pytest
import torch

from backend.base.settings import Settings
from backend.config import knobs
from backend.config.sections import OptimizerConfig, PolicyConfig
from worker.policy.model import frozen_copy, load_policy
from worker.policy.optimizer import PolicyOptimizer
from worker.training.reference import ReferenceChanged, ReferenceUpdates


@pytest.fixture
def policy():
    return load_policy(PolicyConfig(), Settings())


def updates_after_move(policy, knob):
    """Return the updates of a reference that the policy has already left by one optimizer step."""
    reference = frozen_copy(policy)
    optimizer = PolicyOptimizer(policy.model, OptimizerConfig(lr=0.1), steps=10)
    for weight in policy.model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step(1)
    return ReferenceUpdates(knob, policy, reference, optimizer)


def weights(policy):
    return torch.cat([weight.detach().flatten() for weight in policy.model.parameters()])


def test_every_n_steps_the_policy_becomes_the_reference(policy):
    updates = updates_after_move(policy, knobs.EveryN(n=3))
    assert [bool(updates.after_step(step)) for step in (1, 2)] == [False, False]
    assert not torch.equal(weights(updates.reference), weights(policy))
    assert updates.after_step(3) == "reference replaced by the policy"
    assert torch.equal(weights(updates.reference), weights(policy))
    assert updates.optimizer.tensors()  # the moments were kept


def test_the_reference_is_a_copy_that_later_updates_do_not_change(policy):
    updates = updates_after_move(policy, knobs.EveryN(n=1))
    updates.after_step(1)
    weights_before = weights(updates.reference)
    for weight in policy.model.parameters():
        weight.grad = torch.ones_like(weight)
    updates.optimizer.step(2)
    assert torch.equal(weights(updates.reference), weights_before)
    assert not any(weight.requires_grad for weight in updates.reference.model.parameters())


def test_stagnation_is_counted_in_evaluations_and_reset_after_a_replacement(policy):
    updates = updates_after_move(policy, knobs.OnStagnation(patience=2))
    messages = []
    for step, accuracy in enumerate([0.1, 0.3, None, 0.3, 0.2, 0.25, None, 0.2, 0.24]):
        updates.record_accuracy(accuracy)
        messages.append(updates.after_step(step))
    assert [step for step, text in enumerate(messages) if text] == [4, 8]
    assert "after 2 evaluations without a better accuracy than 0.3" in messages[4]
    assert "than 0.25" in messages[8]  # 0.25 improves on the 0.2 of the replacement
    assert updates.optimizer.tensors() == {}


def test_the_reference_moves_a_fraction_of_the_way(policy):
    updates = updates_after_move(policy, knobs.EmaReference(alpha=0.6, n=2))
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.fill_(1.0)
        for weight in updates.reference.model.parameters():
            weight.fill_(0.0)
    assert updates.after_step(1) == ""
    assert updates.after_step(2) == "reference moved 0.6 of the way to the policy"
    assert weights(updates.reference).unique().tolist() == pytest.approx([0.6])


def test_an_unmoved_reference_must_be_the_one_the_run_began_with(policy):
    first_updates = updates_after_move(policy, knobs.FixedReference())
    values = first_updates.values()
    assert first_updates.parts["reference"] is first_updates
    assert first_updates.tensors() == {}  # 64 digits, not a copy of the weights
    later_updates = updates_after_move(
        policy, knobs.FixedReference()
    )  # the policy's weights have changed in the meantime
    with pytest.raises(ReferenceChanged, match="not the one this run began with"):
        later_updates.restore(values, {})
    first_updates.restore(values, {})


def test_a_moved_reference_is_restored_from_the_checkpoint(policy):
    first_updates = updates_after_move(policy, knobs.EveryN(n=1))
    first_updates.after_step(1)
    values, tensors = (
        first_updates.values(),
        {name: weight.clone() for name, weight in first_updates.tensors().items()},
    )
    restored_updates = updates_after_move(policy, knobs.EveryN(n=1))
    restored_updates.restore(values, tensors)
    assert weights(restored_updates.reference).equal(weights(first_updates.reference))
    assert ReferenceUpdates(knobs.FixedReference(), policy, None, first_updates.optimizer).parts == {}
