"""Tests of every preset against its implementation with loops, to 1e-10 in float64."""

import random
from dataclasses import replace

import pytest
import torch

from backend.config import knobs
from backend.config.merge import resolve
from backend.config.presets import PRESETS
from tests.reference.losses import LOSS_BY_KNOB, LOSS_BY_PRESET, Completion, greedy_reward
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import (
    estimate_advantages,
    estimate_against_tokens,
    estimate_token_advantages,
    whiten,
)
from worker.objective.gae import last_token_rewards
from worker.objective.multi_reward import RewardTerms
from worker.objective.policy_loss import accepted_completions, denominators, kl_reward_penalty, policy_loss
from worker.objective.token_choice import choose_covariant_tokens, choose_entropic_tokens, split_updates
from worker.training.controllers import EntropyControl, KlControl

MAX_NEW_TOKENS = 9
GROUP_SIZE = 4


def make_groups(seed, *, prompts=3):
    rng = random.Random(seed)
    groups = []
    for prompt in range(prompts):
        group = []
        for _ in range(GROUP_SIZE):
            length = rng.randint(1, MAX_NEW_TOKENS)
            old_logprobs = [-rng.expovariate(1.0) - 0.01 for _ in range(length)]
            nearby_logprobs = [
                [min(lp + rng.gauss(0, spread), -0.001) for lp in old_logprobs] for spread in (0.4, 0.3, 0.5)
            ]
            new_logprobs = [
                torch.tensor(lp, dtype=torch.float64, requires_grad=True) for lp in nearby_logprobs[0]
            ]
            reward = 1.0 if prompt == 0 and seed % 2 else rng.choice([0.0, 0.5, 1.0])
            terms = (reward, rng.choice([0.0, 1.0]))
            gamma = tuple(rng.uniform(0.6, 1.0) for _ in range(length))
            entropy, values = ([rng.random() for _ in range(length)] for _ in range(2))
            group.append(
                Completion(
                    reward,
                    new_logprobs,
                    old_logprobs,
                    nearby_logprobs[1],
                    nearby_logprobs[2],
                    entropy,
                    values,
                    terms,
                    gamma,
                )
            )
        groups.append(group)
    return groups


def pad_rows(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [float("nan")] * (width - len(row)) for row in rows], dtype=torch.float64)


def reward_terms(groups, weights):
    """Return the first terms of every completion, with the weights of the preset."""
    values = torch.tensor(
        [[[c.terms[k] for c in group] for group in groups] for k in range(min(2, len(weights)))],
        dtype=torch.float64,
    )
    factors = torch.tensor(weights[:2], dtype=torch.float64).unsqueeze(1).expand(-1, len(groups))
    return RewardTerms(values, torch.ones_like(values, dtype=torch.bool), factors)


def production_loss(groups, config):
    objective = config.objective
    rows = [completion for group in groups for completion in group]
    rewards = torch.tensor([[c.reward for c in group] for group in groups], dtype=torch.float64)
    new_logprobs = pad_rows([[lp.item() for lp in c.new_logprobs] for c in rows]).requires_grad_()
    batch = PolicyBatch(
        mask=~new_logprobs.detach().isnan(),
        advantages=torch.zeros(len(rows)),
        group_index=torch.arange(len(groups)).repeat_interleave(GROUP_SIZE),
        correct=torch.tensor([c.reward >= 1 for c in rows]),
        old_logprobs=pad_rows([c.old_logprobs for c in rows]),
        sampler_logprobs=pad_rows([c.sampler for c in rows]),
        reference_logprobs=pad_rows([c.reference for c in rows]) if objective.needs_reference else None,
    )
    values = pad_rows([c.values for c in rows])
    terms = reward_terms(groups, [term.weight for term in config.rewards])
    energies = pad_rows([c.entropy for c in rows])
    greedy_rewards = torch.tensor([greedy_reward(group) for group in groups], dtype=torch.float64)
    batch = replace(
        batch,
        advantages=production_advantages(batch, rewards, values, terms, objective, greedy_rewards, energies),
        router_shift=pad_rows([list(c.gamma) for c in rows]).log(),
    )
    domains = ["math" if number else "easy" for number in range(len(groups)) for _ in range(GROUP_SIZE)]
    entropy = pad_rows([c.entropy for c in rows])
    batch = choose_entropic_tokens(
        replace(
            batch,
            kl_coef=KlControl(objective).coefficients(domains),
            entropy_coef=EntropyControl(objective).weights(entropy, batch.mask),
        ),
        entropy,
        objective.token_weight,
    )
    for whitening_scope in ("step", "minibatch"):
        batch = whiten(batch, objective.advantage, scope=whitening_scope)
    batch = choose_covariant_tokens(batch, objective.surrogate, torch.Generator().manual_seed(0))
    weights = denominators(
        batch.mask,
        batch.group_index,
        objective,
        max_new_tokens=MAX_NEW_TOKENS,
        correct=batch.correct,
        is_accepted=accepted_completions(batch, objective),
    )
    updates = split_updates(batch, objective.token_weight)
    loss = sum(policy_loss(new_logprobs, rows, objective, weights, entropy=entropy).loss for rows in updates)
    loss.backward()
    return loss.detach(), new_logprobs.grad[batch.mask]


def production_advantages(batch, rewards, values, terms, objective, greedy_rewards, energies):
    penalty = kl_reward_penalty(batch, objective)
    if objective.critic is not None:
        token_rewards = last_token_rewards(rewards.flatten(), batch.mask) - penalty
        return estimate_token_advantages(token_rewards, values, batch.mask, objective.critic).advantages
    rewards = rewards - penalty.sum(dim=1).reshape(rewards.shape)
    is_scored = torch.ones_like(rewards, dtype=torch.bool)
    if isinstance(objective.advantage, knobs.OptimalTokenBaseline):
        return estimate_against_tokens(rewards, is_scored, batch.mask, energies)
    lengths = batch.mask.sum(dim=1).double().view(rewards.shape)
    estimate = estimate_advantages(
        rewards, is_scored, objective.advantage, terms=terms, lengths=lengths, greedy=greedy_rewards
    )
    return estimate.advantages.flatten()


def test_every_preset_has_a_reference():
    assert LOSS_BY_PRESET.keys() == PRESETS.keys()


@pytest.mark.parametrize("preset", PRESETS)
def test_value_and_gradient_match_the_loops(preset):
    for seed in range(2):
        assert_matches({"preset": preset}, LOSS_BY_PRESET[preset], make_groups(seed))


CHANGES_BY_LOSS = {
    "top_entropy": {"token_weight": {"type": "top_entropy", "q": 0.3}},
    "kl_by_domain": {"kl": {"type": "k2", "coef": {"math": 2.0, "easy": 0.5}}},
    "kl_to_old": {"kl": {"type": "k3", "to": "old", "coef": 0.7}},
    "masked_by_token": {
        "off_policy_mask": {"type": "opsm", "source": "old", "delta": 0.05},
        "token_weight": {"type": "ar", "alpha": 0.4},
        "aggregation": {"type": "token_mean"},
    },
    "rejected_by_k3": {
        "correction": {"type": "seq_k3", "threshold": 0.04},
        "aggregation": {"type": "token_mean"},
    },
    "adaptive_entropy": {"entropy": {"type": "adaptive", "target": 20, "coef": 0.25}},
}
PROBLEMS = [{"name": "sums", "domain": "math"}, {"name": "sums", "operands": 2, "domain": "easy"}]


@pytest.mark.parametrize("knob", LOSS_BY_KNOB)
def test_knobs_that_no_preset_uses_also_match_their_loops(knob):
    for seed in range(2):
        assert_matches(
            {"problems": PROBLEMS, "objective": CHANGES_BY_LOSS[knob]}, LOSS_BY_KNOB[knob], make_groups(seed)
        )


def assert_matches(changes, loop, groups):
    config = resolve(changes | {"sampling": {"max_new_tokens": MAX_NEW_TOKENS}})
    expected = loop(groups, MAX_NEW_TOKENS)
    leaves = [lp for group in groups for completion in group for lp in completion.new_logprobs]
    slopes = torch.autograd.grad(expected, leaves, allow_unused=True)
    loss, gradient = production_loss(groups, config)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-10, atol=1e-12)
    expected_gradient = torch.stack(
        [torch.zeros((), dtype=torch.float64) if s is None else s for s in slopes]
    )
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-12)
