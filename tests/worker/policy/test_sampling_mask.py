"""Tests of the sampler's top-p and top-k mask in the learner, which uses the same support."""

import numpy as np
import pytest
import torch
from torch import nn

from worker.policy import logprobs as logprobs_module
from worker.policy.head import Head
from worker.policy.logprobs import States, score_states, token_logprobs
from worker.policy.sampling_mask import mask_log_mass, mask_pairs
from worker.policy.token_batch import pad_values, token_batch
from worker.problems.sums import Sums
from worker.rollout.sampler import Decoding, Sampler
from worker.types import SamplingMask

OLD, NEW = [2.0, 1.0, 0.0, -1.0], [2.2, 0.9, 0.1, -1.0]
PROMPTS = [Sums(seed=0).sample(index, "train") for index in range(4)]


def make_mask(*rows):
    """Return a completion whose tokens kept these ids, where () keeps all."""
    counts = np.array([len(row) for row in rows])
    return SamplingMask(counts, np.array([index for row in rows for index in row], dtype=np.int64))


def scores_of_logits(logits, target, *rows):
    """Return log-probability, entropy and kept mass of one target under one row of logits."""
    layer = nn.Linear(4, 4, bias=False)
    nn.init.eye_(layer.weight)
    head = Head(layer, scale=1.0, cap=None)
    states = States(torch.tensor([logits]), torch.tensor([0]))
    pairs = mask_pairs([make_mask(*rows)]) if rows else None
    values = score_states(
        head, states, torch.tensor([target]), temperature=1, entropy_gradient=False, pairs=pairs
    )
    return [score.item() for score in values]


def test_the_top_two_of_four_keep_their_mass_and_their_ratio():
    """As in DeepSeek-V3.2, the ratio of masked probabilities is right, and full over masked is wrong."""
    old_score, _, mass = scores_of_logits(OLD, 0, (0, 1))
    new_score, _, _ = scores_of_logits(NEW, 0, (0, 1))
    old_full, new_full = scores_of_logits(OLD, 0)[0], scores_of_logits(NEW, 0)[0]
    assert mass == pytest.approx(0.8808, abs=6e-5)
    assert old_full == pytest.approx(-0.4402, abs=6e-5)
    assert old_score == pytest.approx(-0.3133, abs=6e-5)
    assert np.exp(new_score - old_score) == pytest.approx(1.0749, abs=6e-5)
    assert np.exp(new_full - old_score) == pytest.approx(0.9527, abs=6e-5)
    assert np.exp(new_full - old_full) == pytest.approx(1.0817, abs=6e-5)
    assert np.exp(old_full - old_score) == pytest.approx(0.8808, abs=6e-5)


def test_a_kept_set_of_negligible_mass_stays_finite():
    logprob, entropy, mass = scores_of_logits([0.0, -200.0, -201.0, 0.0], 1, (1, 2))
    assert logprob == pytest.approx(-np.log(1 + np.exp(-1)), abs=1e-4)
    assert entropy == pytest.approx(np.log(2), abs=1e-5)
    assert mass == 0


def test_the_gradient_matches_logits_set_to_minus_infinity():
    logits = torch.tensor([NEW, OLD], dtype=torch.float64)
    of_token, targets = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 3])
    rows = [(0, 1), (0, 2, 3), ()]
    masked_logits, sparse_logits = (logits.clone().requires_grad_() for _ in range(2))
    mask_offsets = torch.full((3, 4), -torch.inf, dtype=torch.float64)
    for token, row in enumerate(rows):
        mask_offsets[token, list(row) or slice(None)] = 0
    expected = (masked_logits[of_token] + mask_offsets).log_softmax(dim=-1)[torch.arange(3), targets]
    logprobs = sparse_logits.log_softmax(dim=-1)
    scores = logprobs[of_token, targets] - mask_log_mass(logprobs, of_token, mask_pairs([make_mask(*rows)]))
    expected.sum().backward()
    scores.sum().backward()
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(sparse_logits.grad, masked_logits.grad)


def sample_completions(policy, decoding, **options):
    groups = Sampler(policy, keep_mask=True, **options).sample(
        PROMPTS, 4, decoding, torch.Generator().manual_seed(0)
    )
    return [completion for group in groups for completion in group]


def make_batch(policy, completions):
    return token_batch(
        [policy.encode(prompt.text, room=40) for prompt in PROMPTS for _ in range(4)],
        [completion.ids.tolist() for completion in completions],
        pad_id=policy.pad_id,
        sampling_masks=[completion.sampling_mask for completion in completions],
    )


@pytest.mark.parametrize(
    "decoding", [Decoding(40, 1.0, 0.9), Decoding(40, 1.3, 1.0, 3), Decoding(40, 0.8, 0.95, 5)]
)
@pytest.mark.parametrize("elements", [2**27, 64])
def test_the_same_weights_and_support_have_the_same_probabilities(tiny, decoding, elements, monkeypatch):
    """Without the mask, rho would be the kept mass on every token instead of 1."""
    monkeypatch.setattr(logprobs_module, "CHUNK_ELEMENTS", elements)
    completions = sample_completions(tiny, decoding)
    batch = make_batch(tiny, completions)
    with torch.no_grad():
        learner_scores = token_logprobs(tiny.model, batch, temperature=decoding.temperature)
    sampler = pad_values([completion.sampler_logprobs.tolist() for completion in completions], batch)
    torch.testing.assert_close(learner_scores.logprobs, sampler, rtol=0, atol=2e-4)
    assert torch.isfinite(learner_scores.entropy).all()
    assert 0.5 < float(learner_scores.kept_mass[batch.mask].mean()) < 1
    assert (learner_scores.kept_mass[~batch.mask] == 0).all()


def test_every_sampled_token_is_in_the_kept_set(tiny):
    for completion in sample_completions(tiny, Decoding(40, 1.0, 0.9, 4)):
        row_ends = np.cumsum(completion.sampling_mask.counts)
        assert len(completion.sampling_mask.counts) == len(completion)
        for token, end, count in zip(completion.ids, row_ends, completion.sampling_mask.counts, strict=True):
            ids = completion.sampling_mask.ids[end - count : end]
            assert 1 <= count <= 4
            assert token in ids
            assert sorted(set(ids)) == list(ids)


def test_the_kept_set_does_not_depend_on_the_rest_of_the_batch(tiny):
    sampled_together = sample_completions(tiny, Decoding(40, 1.0, 0.9))
    sampled_apart = sample_completions(tiny, Decoding(40, 1.0, 0.9), rows_at_once=4)
    for batched, separate in zip(sampled_together, sampled_apart, strict=True):
        np.testing.assert_array_equal(batched.sampling_mask.counts, separate.sampling_mask.counts)
        np.testing.assert_array_equal(batched.sampling_mask.ids, separate.sampling_mask.ids)
