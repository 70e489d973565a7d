"""Tests of the critic on the tiny policy."""

import copy

import pytest
import torch

from backend.config.merge import resolve
from worker.objective.batch import PolicyBatch
from worker.policy.critic import CriticModel, Fitted, ValueBatch, token_values, with_value_head
from worker.policy.model import load_policy
from worker.policy.token_batch import token_batch
from worker.training.critic_step import CriticStep

CONFIG = {
    "objective": {"advantage": {"type": "critic"}, "value": {"clip": 0, "lr_factor": 10}},
    "evaluation": {"every": 0},
}


@pytest.fixture(scope="module")
def policy(module_settings):
    return load_policy(resolve({}).policy, module_settings)


@pytest.fixture(scope="module")
def module_settings(tmp_path_factory):
    from backend.base.settings import Settings

    return Settings(state_dir=tmp_path_factory.mktemp("state"))


@pytest.fixture
def tokens(policy):
    prompts = [policy.encode("1+2=?", room=8)] * 2 + [policy.encode("12+7=?", room=8)] * 2
    return token_batch(prompts, [[5, 6, 7], [5, 6, 8, 9], [6], [7, 5, 6, 7, 8]], pad_id=policy.pad_id)


def make_critic(policy, **changes) -> CriticModel:
    return CriticModel(policy.model, resolve({**CONFIG, **changes}))


def with_nonzero_head(model):
    """Return the critic with a value head that predicts nonzero values."""
    torch.nn.init.normal_(model.get_output_embeddings().weight, generator=torch.Generator().manual_seed(1))
    return model


def test_a_new_critic_predicts_zero_and_leaves_the_policy_unchanged(policy, tokens):
    weights_before = copy.deepcopy(policy.model.state_dict())
    critic = make_critic(policy)
    assert critic.predict(tokens).abs().max() == 0
    critic.fit(make_batch(critic, tokens), [torch.arange(4)], Fitted(), step=1)
    assert critic.predict(tokens).abs().max() > 0
    assert all(
        torch.equal(weights_before[name], weight) for name, weight in policy.model.state_dict().items()
    )


def make_batch(critic, tokens):
    returns = torch.linspace(0, 1, 5).expand(4, 5)
    return ValueBatch(tokens, tokens.mask, critic.predict(tokens), returns)


def test_a_value_depends_only_on_the_text_before_its_token(policy, tokens):
    """The first two completions differ from the third token on, so only the value after it differs."""
    values = token_values(with_nonzero_head(with_value_head(policy.model)), tokens)
    assert values[0, :3].tolist() == values[1, :3].tolist()
    assert values[0, 0] != values[2, 0]
    assert (values[~tokens.mask] == 0).all()


def test_the_critic_fits_its_targets(policy, tokens):
    critic = make_critic(policy)
    fitted = Fitted()
    batch = make_batch(critic, tokens)
    critic.fit(batch, [torch.arange(4)] * 40, fitted, step=1)
    error = (critic.predict(tokens) - batch.returns)[tokens.mask]
    assert error.abs().max() < 0.1
    assert len(fitted.norms) == 40


def estimate(policy, tokens, *, step, **value):
    config = resolve({"objective": {"advantage": {"type": "critic", "lambda_critic": 0}, "value": value}})
    critic_step = CriticStep.from_config(policy, config)
    with_nonzero_head(critic_step.critic.model)
    batch = PolicyBatch(
        mask=tokens.mask,
        advantages=torch.zeros(4),
        group_index=torch.tensor([0, 0, 1, 1]),
        scored=torch.tensor([True, True, True, False]),
    )
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    return critic_step.judge(tokens, batch, rewards, torch.zeros(tokens.mask.shape), step=step)


def test_advantages_are_whitened_over_the_tokens_with_a_reward(policy, tokens):
    estimates = estimate(policy, tokens, step=1)
    trained_advantages = estimates.advantages[:3][tokens.mask[:3]]
    assert trained_advantages.mean().item() == pytest.approx(0, abs=1e-6)
    assert trained_advantages.std().item() == pytest.approx(1, abs=1e-6)
    assert (estimates.advantages[3] == 0).all()
    assert not estimates.values.mask[3].any()


def test_a_pretraining_critic_learns_the_observed_rewards(policy, tokens):
    """lambda_critic 0 would teach it to predict its next value, but pretraining uses the reward."""
    pretraining = estimate(policy, tokens, step=3, pretrain_steps=3).values.returns
    assert pretraining[0, :3].tolist() == pytest.approx([1, 1, 1], abs=1e-6)
    assert pretraining[1, :4].tolist() == pytest.approx([0, 0, 0, 0], abs=1e-6)
    later_values = estimate(policy, tokens, step=4, pretrain_steps=3).values
    assert later_values.returns[0, :2].tolist() == pytest.approx(
        later_values.old_values[0, 1:3].tolist(), abs=1e-6
    )
