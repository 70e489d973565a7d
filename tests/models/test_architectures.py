"""Tests of sampling and learning for each architecture, against a plain forward over each text.

`make test` uses a part of the table, and `make test-models` all of it with a vocabulary of real size."""

import os
from dataclasses import replace

import pytest
import torch

from backend.config.adapters import LoraAdapter
from backend.config.sections import PolicyConfig
from tests.models.architectures import ARCHITECTURES, build, tokenizer
from worker.policy.adapter import adapter_weights, add_adapter, is_adapted, merged_copy
from worker.policy.logprobs import token_logprobs
from worker.policy.model import as_policy
from worker.policy.prompt_form import prompt_form
from worker.policy.token_batch import token_batch
from worker.prompt import Prompt
from worker.rollout.decoder_check import check_decoder
from worker.rollout.sampler import Decoding, Sampler

IS_FULL = os.environ.get("GRPOLAB_MODELS") == "all"
VOCABULARY_SIZE = 151_936 if IS_FULL else 128
GATE_NAMES = ("gemma2", "gemma3_images", "gpt_oss", "granite4", "lfm2", "qwen3.5")

PROMPTS = ("85+60+88=?", "1+2=?", "7*8=?")
DECODING = Decoding(max_new_tokens=10, temperature=0.8)

MAX_DIFFERENCE_BY_DTYPE = {torch.float32: 2e-4, torch.bfloat16: 0.1}
"""Largest difference of a token's log-probability, since bfloat16 keeps 8 bits of every product."""


@pytest.fixture(scope="module", params=list(ARCHITECTURES) if IS_FULL else GATE_NAMES)
def architecture(request):
    return request.param


@pytest.fixture(
    scope="module",
    params=[torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.nightly)],
    ids=["float32", "bfloat16"],
)
def dtype(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["full", "lora"])
def policy(request, architecture, dtype):
    model = build(architecture, vocabulary=VOCABULARY_SIZE, dtype=dtype)
    if request.param:
        adapt(model, architecture)
    built_policy = as_policy(model, tokenizer(), name=architecture)
    check_decoder(built_policy, name=architecture)
    return replace(built_policy, form=prompt_form(built_policy.tokenizer, PolicyConfig(chat_template=True)))


def adapt(model, name):
    """Add an adapter that changes the output, although B would normally be initialised with 0."""
    add_adapter(model, LoraAdapter(rank=4), base=name)
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in adapter_weights(model).values():
            weight.copy_(0.05 * torch.randn_like(weight))


@pytest.fixture(scope="module")
def completions(policy):
    prompts = [Prompt(text, text, answer="", problem="sums") for text in PROMPTS]
    return Sampler(policy).sample(prompts, 3, DECODING, torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def batch(policy, completions):
    prompts = [policy.encode(text, room=16) for text in PROMPTS for _ in range(3)]
    return token_batch(
        prompts,
        [completion.ids.tolist() for group in completions for completion in group],
        pad_id=policy.pad_id,
    )


def compute_plain_logprobs(policy, ids, prompt):
    """Return log-probabilities after the first `prompt` ids, from the model's own forward and logits."""
    with torch.no_grad():
        logits = policy.model(torch.tensor([ids]), use_cache=False).logits[0, prompt - 1 : -1].float()
    chances = (logits / DECODING.temperature).log_softmax(dim=-1)
    return chances.gather(1, torch.tensor(ids[prompt:])[:, None]).squeeze(1)


def gradient(policy, batch, rows):
    """Return the gradient of a weighted sum of log-probabilities as a vector, in passes of `rows` rows."""
    weights = torch.linspace(-1, 1, len(batch))
    policy.model.zero_grad()
    sums = {}
    for first in range(0, len(batch), rows):
        rows_of_batch = batch.rows(torch.arange(first, min(first + rows, len(batch))))
        logprobs = token_logprobs(policy.model, rows_of_batch, temperature=DECODING.temperature).logprobs
        (logprobs * weights[first : first + rows, None]).sum().backward()
        for name, weight in policy.model.named_parameters():
            if weight.grad is not None:
                sums[name] = sums.get(name, 0) + weight.grad.float()
        policy.model.zero_grad()
    return torch.cat([sums[name].flatten() for name in sorted(sums)])


def test_the_sampler_reports_the_models_own_log_probabilities(policy, completions):
    for text, group in zip(PROMPTS, completions, strict=True):
        prompt = policy.encode(text, room=16)
        for completion in group:
            expected = compute_plain_logprobs(policy, prompt + completion.ids.tolist(), len(prompt))
            reported_logprobs = torch.from_numpy(completion.sampler_logprobs)
            torch.testing.assert_close(
                reported_logprobs, expected, atol=MAX_DIFFERENCE_BY_DTYPE[policy.model.dtype], rtol=0
            )


def test_the_learner_computes_the_models_own_log_probabilities(policy, batch):
    logprobs = token_logprobs(policy.model, batch, temperature=DECODING.temperature).logprobs.detach()
    for row, (prompt, length) in enumerate(zip(batch.prompt_lengths, batch.lengths, strict=True)):
        expected = compute_plain_logprobs(policy, batch.ids[row, : prompt + length].tolist(), int(prompt))
        torch.testing.assert_close(
            logprobs[row, :length], expected, atol=MAX_DIFFERENCE_BY_DTYPE[policy.model.dtype], rtol=0
        )


def test_a_merged_adapter_computes_the_same(policy, batch):
    if not is_adapted(policy.model) or policy.model.dtype != torch.float32:
        pytest.skip("for adapters, whose sum with the weights bfloat16 would round")
    row = batch.ids[:1, : int(batch.prompt_lengths[0] + batch.lengths[0])]
    with torch.no_grad():
        merged_logprobs, expected = (
            model(row, use_cache=False).logits for model in (merged_copy(policy.model), policy.model)
        )
    torch.testing.assert_close(merged_logprobs, expected, atol=1e-3, rtol=1e-3)


def test_micro_batches_change_the_gradient_only_by_rounding(policy, batch):
    whole_gradient, split_gradient = gradient(policy, batch, len(batch)), gradient(policy, batch, 2)
    deviation = float((whole_gradient - split_gradient).norm() / whole_gradient.norm())
    assert whole_gradient.norm() > 0
    assert deviation < (1e-4 if policy.model.dtype == torch.float32 else 0.05), deviation
