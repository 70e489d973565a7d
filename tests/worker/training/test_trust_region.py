"""Tests of a natural-gradient step on the tiny policy."""

import copy

import pytest
import torch

from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.config.sections import TrustRegion
from worker.policy.logprobs import next_tokens, token_logprobs
from worker.policy.model import load_policy
from worker.policy.token_batch import microbatches, token_batch
from worker.training.trust_region import trust_region_step

TRUST = TrustRegion(delta=0.01, damping=0.1, cg_iters=4)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return load_policy(resolve({}).policy, Settings(state_dir=tmp_path_factory.mktemp("state")))


@pytest.fixture
def tokens(policy):
    prompts = [policy.encode("1+2=?", room=8)] * 2 + [policy.encode("12+7=?", room=8)]
    return token_batch(prompts, [[5, 6, 7], [5, 6, 8, 9], [6]], pad_id=policy.pad_id)


def step_on(policy, tokens, *, microbatch=0):
    """Raise the probability of the first completion, and return the step and the change of distributions."""
    model = copy.deepcopy(policy.model)
    likes = torch.tensor([1.0, -1.0, 0.0])
    with torch.no_grad():
        old_logprobs = token_logprobs(model, tokens, temperature=1.0).logprobs

    def surrogate():
        for rows in microbatches(tokens, max_rows=microbatch):
            new_logprobs = token_logprobs(model, tokens.rows(rows), temperature=1.0).logprobs
            ratio = (new_logprobs - old_logprobs[rows, : new_logprobs.shape[1]]).exp() * tokens.mask[
                rows, : new_logprobs.shape[1]
            ]
            yield (likes[rows].unsqueeze(1) * ratio).sum() / 8

    step = trust_region_step(
        model,
        tokens,
        tokens.mask,
        surrogate,
        temperature=1.0,
        trust=TRUST,
        row_indices=microbatches(tokens, max_rows=microbatch),
    )
    with torch.no_grad():
        return step, next_tokens(model, tokens, temperature=1.0).logprobs


def test_the_step_improves_the_surrogate_and_stays_in_the_region(policy, tokens):
    step, logprobs_after = step_on(policy, tokens)
    with torch.no_grad():
        tokens_before = next_tokens(policy.model, tokens, temperature=1.0)
    kl_by_token = (tokens_before.logprobs.exp() * (tokens_before.logprobs - logprobs_after)).sum(dim=1)[
        tokens_before.state_indices
    ]
    assert not step.is_failed
    assert step.improvement > 0
    assert 0 < step.kl <= TRUST.delta
    assert step.kl == pytest.approx(kl_by_token.mean().item(), rel=1e-3)
