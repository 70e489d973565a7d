"""Fixture F: one prompt with four completions of 2, 3, 1 and 4 tokens."""

import torch
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import (
    estimate_advantages,
    estimate_against_tokens,
    estimate_token_advantages,
    whiten,
)
from worker.objective.gae import last_token_rewards
from worker.objective.multi_reward import RewardTerms
from worker.objective.policy_loss import PolicyLoss, denominators, policy_loss
from worker.objective.token_choice import choose_covariant_tokens

REWARDS = [[1.0, 1.0, 0.0, 0.0]]
OLD_LOGPROBS = [[-0.5, -1.2], [-0.1, -2.0, -0.7], [-1.0], [-0.3, -0.9, -1.6, -0.2]]
DRIFT = [[0.30, 0.10], [-0.30, 0.50, 0.05], [-0.40], [0.30, -0.10, -0.25, 0.0]]
REFERENCE_LOGPROBS = [[-0.6, -1.0], [-0.1, -1.8, -0.9], [-1.2], [-0.4, -0.9, -1.5, -0.1]]
SAMPLER_LOGPROBS = [[-0.55, -1.2], [-0.1, -3.0, -0.7], [-0.4], [-0.3, -0.9, -1.6, -0.25]]
GARBAGE = float("nan")


def pad_rows(rows: list[list[float]], *, fill: float = GARBAGE) -> Tensor:
    return torch.tensor([row + [fill] * (4 - len(row)) for row in rows], dtype=torch.float64)


MASK = torch.tensor([[t < len(row) for t in range(4)] for row in OLD_LOGPROBS])
NEW_LOGPROBS = pad_rows(OLD_LOGPROBS) + pad_rows(DRIFT)
ENTROPY = torch.full_like(NEW_LOGPROBS, 1.37).where(MASK, GARBAGE)


def advantages(knob=None, rewards=REWARDS) -> Tensor:
    scores = torch.tensor(rewards, dtype=torch.float64)
    if isinstance(knob, knobs.Critic):
        token_rewards, expected = last_token_rewards(scores.flatten(), MASK), pad_rows(OLD_LOGPROBS).exp()
        return estimate_token_advantages(token_rewards, expected, MASK, knob).advantages
    is_scored = torch.ones_like(scores, dtype=torch.bool)
    single_term = RewardTerms(scores[None], is_scored[None], torch.ones(1, 1, dtype=torch.float64))
    lengths = MASK.sum(dim=1).double().view(scores.shape) if scores.numel() == len(MASK) else None
    knob = knob or knobs.GroupMean()
    if isinstance(knob, knobs.OptimalTokenBaseline):
        return estimate_against_tokens(scores, is_scored, MASK, pad_rows(OLD_LOGPROBS).exp())
    greedy_rewards = scores.mean(dim=1) / 2
    return estimate_advantages(
        scores, is_scored, knob, terms=single_term, lengths=lengths, greedy=greedy_rewards
    ).advantages.flatten()


def batch(objective: Objective, **changes) -> PolicyBatch:
    fields = {
        "mask": MASK,
        "advantages": advantages(objective.advantage),
        "group_index": torch.zeros(4, dtype=torch.long),
        "old_logprobs": pad_rows(OLD_LOGPROBS),
        "sampler_logprobs": pad_rows(SAMPLER_LOGPROBS),
        "reference_logprobs": pad_rows(REFERENCE_LOGPROBS),
        "correct": torch.tensor(REWARDS[0]) == 1,
    }
    policy_batch = PolicyBatch(**(fields | changes))
    for whitening_scope in ("step", "minibatch"):
        policy_batch = whiten(policy_batch, objective.advantage, scope=whitening_scope)
    return choose_covariant_tokens(policy_batch, objective.surrogate, torch.Generator().manual_seed(0))


def run(
    objective: Objective, new_logprobs: Tensor = NEW_LOGPROBS, *, max_new_tokens=4, entropy=None, **changes
) -> tuple[PolicyLoss, Tensor]:
    """Return the loss on F, and minus its gradient for each of the ten tokens."""
    leaf = new_logprobs.clone().requires_grad_()
    policy_batch = batch(objective, **changes)
    weights = denominators(
        policy_batch.mask,
        policy_batch.group_index,
        objective,
        max_new_tokens=max_new_tokens,
        correct=policy_batch.correct,
    )
    result = policy_loss(leaf, policy_batch, objective, weights, entropy=entropy)
    (gradient,) = torch.autograd.grad(result.loss, leaf)
    return result, -gradient[MASK]
