"""Tests of mixtures of experts: routers are recorded while sampling and replayed in the learner."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
)

from backend.base.settings import Settings
from backend.config.sections import PolicyConfig, SamplingConfig
from worker.policy.logprobs import token_logprobs
from worker.policy.model import as_policy, load_policy
from worker.policy.routing import replayed_experts, routed_logprobs, routers
from worker.policy.token_batch import pad_values, token_batch
from worker.problems.sums import Sums
from worker.prompt import Prompt
from worker.rollout.behaviour import Behaviour
from worker.rollout.sampler import Decoding, Sampler

SIZES = {
    "vocab_size": 101,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "eos_token_id": 1,
    "pad_token_id": 0,
}

PROMPTS = [
    *(Sums(seed=0).sample(index, "train") for index in range(3)),
    Prompt(id="short", text="1+2=?", answer="3", problem="sums"),
]


@pytest.fixture(scope="module")
def mixture():
    return load_policy(PolicyConfig(name="tiny_moe"), Settings())


def sample_completions(policy, **options):
    groups = Sampler(policy, routes=True, **options).sample(
        PROMPTS, 4, Decoding(40), torch.Generator().manual_seed(0)
    )
    return [completion for group in groups for completion in group]


def make_batch(policy, completions):
    return token_batch(
        [policy.encode(prompt.text, room=40) for prompt in PROMPTS for _ in range(4)],
        [completion.ids.tolist() for completion in completions],
        pad_id=policy.pad_id,
        routes=[completion.routes for completion in completions],
    )


def test_the_samplers_routes_match_those_of_a_fresh_forward_pass(mixture):
    completions = sample_completions(mixture)
    batch = make_batch(mixture, completions)
    with torch.no_grad():
        fresh_pass = routed_logprobs(mixture.model, batch, temperature=1.0)
    replayed_choices, fresh_choices = (
        choices(replayed_experts(batch), batch),
        choices(fresh_pass.experts, batch),
    )
    assert (replayed_choices == fresh_choices).all(dim=-1).float().mean() > 0.999
    sampler = pad_values([completion.sampler_logprobs.tolist() for completion in completions], batch)
    torch.testing.assert_close(fresh_pass.scored.logprobs, sampler, rtol=0, atol=1e-4)


def test_recorded_routes_do_not_depend_on_the_rest_of_the_batch(mixture):
    for separate, batched in zip(
        sample_completions(mixture), sample_completions(mixture, rows_at_once=4), strict=True
    ):
        np.testing.assert_array_equal(separate.ids, batched.ids)
        np.testing.assert_array_equal(np.sort(separate.routes), np.sort(batched.routes))


@torch.no_grad()
def test_tokens_are_processed_by_the_replayed_experts(mixture):
    """All tokens are routed to the last two experts, as if the router had no others."""
    batch = make_batch(mixture, sample_completions(mixture))
    forced_routes = torch.tensor([6, 7], dtype=torch.uint8).expand_as(batch.routes)
    replayed_logprobs = routed_logprobs(
        mixture.model, batch_with(batch, forced_routes), temperature=1.0
    ).scored.logprobs
    by_own_experts = token_logprobs(mixture.model, batch, temperature=1.0).logprobs

    def only_two(_, __, output):
        logits, scores, experts = output
        weights = logits.softmax(dim=-1)[:, 6:]
        last_two = torch.tensor([6, 7]).expand_as(experts)
        return logits, (weights / weights.sum(dim=-1, keepdim=True)).to(scores.dtype), last_two

    handles = [router.register_forward_hook(only_two) for router in routers(mixture.model)]
    expected = token_logprobs(mixture.model, batch, temperature=1.0).logprobs
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(replayed_logprobs, expected, rtol=0, atol=1e-4)
    assert (by_own_experts - expected).abs().max() > 0.1


def choices(experts, batch):
    """Return the experts of the tokens in ascending order, as (N, L, K)."""
    return experts[batch.mask].sort(dim=-1).values


def batch_with(batch, routes):
    return replace(batch, routes=routes)


@torch.no_grad()
def test_a_microbatch_replays_its_own_rows(mixture):
    batch = make_batch(mixture, sample_completions(mixture))
    batch = batch_with(batch, (batch.routes.int() + 1).remainder(8).to(torch.uint8))
    rows = torch.tensor([13, 2, 7])
    of_batch = routed_logprobs(mixture.model, batch, temperature=1.0).scored.logprobs
    of_rows = routed_logprobs(mixture.model, batch.rows(rows), temperature=1.0).scored.logprobs
    torch.testing.assert_close(of_rows, of_batch[rows, : of_rows.shape[1]], rtol=0, atol=1e-4)


@torch.no_grad()
def test_routing_replay_brings_the_probabilities_of_an_int8_sampler_closer(mixture):
    policy = Behaviour(SamplingConfig(precision="int8")).policy(mixture)
    completions = sample_completions(policy)
    batch = make_batch(mixture, completions)
    sampler = pad_values([completion.sampler_logprobs.tolist() for completion in completions], batch)
    replayed_pass = routed_logprobs(mixture.model, batch, temperature=1.0)
    unreplayed_logprobs = token_logprobs(mixture.model, batch, temperature=1.0).logprobs
    assert (choices(replayed_experts(batch), batch) != choices(replayed_pass.experts, batch)).any()
    assert (replayed_pass.scored.logprobs - sampler).abs().sum() < (unreplayed_logprobs - sampler).abs().sum()


MODEL_BY_FAMILY: dict[str, Any] = {
    "qwen2_moe": lambda: Qwen2MoeForCausalLM(
        Qwen2MoeConfig(**SIZES, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16)
    ),
    "olmoe": lambda: OlmoeForCausalLM(OlmoeConfig(**SIZES, num_experts=4)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4)),
}


@torch.no_grad()
@pytest.mark.parametrize("family", MODEL_BY_FAMILY)
def test_routes_of_other_mixtures_are_recorded_and_replayed(mixture, family):
    torch.manual_seed(0)
    model = MODEL_BY_FAMILY[family]().eval()
    policy = as_policy(model, mixture.tokenizer, name=family, chat_template=False)
    completions = sample_completions(policy)
    batch = make_batch(policy, completions)
    sampler = pad_values([completion.sampler_logprobs.tolist() for completion in completions], batch)
    replayed_pass = routed_logprobs(policy.model, batch, temperature=1.0)
    torch.testing.assert_close(replayed_pass.scored.logprobs, sampler, rtol=0, atol=1e-4)
    rerouted_batch = batch_with(batch, (batch.routes.int() + 1).remainder(4).to(torch.uint8))
    rerouted_logprobs = routed_logprobs(policy.model, rerouted_batch, temperature=1.0).scored.logprobs
    assert (rerouted_logprobs - sampler).abs().max() > 1e-3
