"""Tests that need a GPU: bfloat16 numbers of each architecture, memory savings and out-of-memory handling."""

import copy
import math

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from backend.catalog.policies.memory import estimate_phases
from backend.config.adapters import LoraAdapter
from backend.config.merge import resolve
from backend.config.resources import ResourcesConfig
from backend.config.sections import OptimizerConfig
from tests.models.architectures import ARCHITECTURES, build, tokenizer
from tests.models.memory_peaks import read_shape
from worker.policy.adapter import adapter_weights, add_adapter
from worker.policy.logprobs import token_logprobs
from worker.policy.microbatches import Microbatches
from worker.policy.model import as_policy
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.quantized import quantise_base
from worker.policy.recompute import enable_recompute
from worker.policy.token_batch import token_batch
from worker.prompt import Prompt
from worker.rollout.row_limit import RowLimit
from worker.rollout.sampler import Decoding, Sampler

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]

DEVICE = "cuda"
MAX_DIFFERENCE = 0.1
"""Largest difference of a token's log-probability in bfloat16, as on a CPU."""

PROMPTS = [Prompt(text, text, answer="", problem="sums") for text in ("85+60+88=?", "1+2=?", "7*8=?")]
DECODING = Decoding(max_new_tokens=10, temperature=0.8)

QWEN_7B_SIZES = {
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
    "max_position_embeddings": 32_768,
}
"""Sizes of Qwen2.5 7B."""

MEDIUM_SIZES = QWEN_7B_SIZES | {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "vocab_size": 32_000,
}


def sized(sizes):
    """Return a Qwen2.5 of these sizes with random weights, made on the GPU."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model("qwen2", **sizes, eos_token_id=2), dtype=torch.bfloat16
        )
    return model.eval()


def make_batch(rows, tokens, *, prompt=32):
    ids = torch.randint(3, 120, (rows, tokens), generator=torch.Generator().manual_seed(0)).tolist()
    return token_batch([row[:prompt] for row in ids], [row[prompt:] for row in ids], pad_id=0, device=DEVICE)


def learn(model, batch):
    token_logprobs(model, batch, temperature=1.0).logprobs.sum().backward()


def measure_peak(operation):
    """Return the peak bytes of CUDA's allocator during some work, in addition to those in use before."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    bytes_before = torch.cuda.memory_allocated()
    operation()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - bytes_before


@pytest.fixture
def limit_memory():
    """A function that leaves this process this many bytes in addition to those in use."""

    def limit(further_bytes):
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + further_bytes) / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_sampler_and_learner_match_the_model_in_bfloat16(name):
    model = build(name, dtype=torch.bfloat16).to(DEVICE)
    policy = as_policy(model, tokenizer(), name=name)
    groups = Sampler(policy).sample(PROMPTS, 2, DECODING, torch.Generator().manual_seed(1))
    prompts = [policy.encode(prompt, room=16) for prompt in PROMPTS]
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            ids = completion.ids.tolist()
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt, *ids]], device=DEVICE), use_cache=False).logits
            chances = (logits[0, len(prompt) - 1 : -1].float() / DECODING.temperature).log_softmax(dim=-1)
            expected = chances.gather(1, torch.tensor(ids, device=DEVICE)[:, None]).squeeze(1).cpu()
            learned = token_logprobs(
                model,
                token_batch([prompt], [ids], pad_id=0, device=DEVICE),
                temperature=DECODING.temperature,
            ).logprobs
            torch.testing.assert_close(
                torch.from_numpy(completion.sampler_logprobs), expected, atol=MAX_DIFFERENCE, rtol=0
            )
            torch.testing.assert_close(learned[0].detach().cpu(), expected, atol=MAX_DIFFERENCE, rtol=0)


@pytest.mark.parametrize("kind", ["int8", "nf4", "nf4_double"])
def test_a_quantised_base_matches_a_cpu_and_trains_its_adapter(kind):
    batch = make_batch(4, 48)
    by_device = {}
    for device in ("cpu", DEVICE):
        model = build("qwen3")
        quantise_base(model, kind, device)
        add_adapter(model.to(device), LoraAdapter(rank=4), base="qwen3")
        torch.manual_seed(1)
        with torch.no_grad():
            for weight in adapter_weights(model).values():
                weight.copy_(0.05 * torch.randn(weight.shape))
        tokens = (
            make_batch(4, 48)
            if device == DEVICE
            else token_batch(
                [row[:32] for row in batch.ids.tolist()], [row[32:] for row in batch.ids.tolist()], pad_id=0
            )
        )
        policy = as_policy(model, tokenizer(), name="qwen3")
        groups = Sampler(policy).sample(PROMPTS, 2, DECODING, torch.Generator().manual_seed(1))
        assert all(
            math.isfinite(logprob)
            for group in groups
            for completion in group
            for logprob in completion.sampler_logprobs
        )
        logprobs = token_logprobs(model, tokens, temperature=1.0).logprobs
        logprobs.sum().backward()
        gradient = torch.cat([weight.grad.flatten().cpu() for weight in adapter_weights(model).values()])
        by_device[device] = logprobs.detach().cpu(), gradient
    torch.testing.assert_close(by_device[DEVICE][0], by_device["cpu"][0], atol=1e-2, rtol=0)
    assert (by_device[DEVICE][1] - by_device["cpu"][1]).norm() < 0.02 * by_device["cpu"][1].norm()


def test_activation_checkpointing_lowers_the_peak_and_keeps_the_gradient():
    model, batch = sized(MEDIUM_SIZES), make_batch(8, 512)
    learn(model, batch)  # gradients exist from now on
    plain_peak = measure_peak(lambda: learn(model, batch))
    gradient = model.model.layers[0].mlp.up_proj.weight.grad.clone()
    model.zero_grad(set_to_none=False)
    enable_recompute(model)
    assert measure_peak(lambda: learn(model, batch)) < 0.6 * plain_peak
    torch.testing.assert_close(
        model.model.layers[0].mlp.up_proj.weight.grad, gradient / 2, rtol=0.05, atol=1e-2
    )


def test_out_of_memory_halves_the_micro_batches(limit_memory):
    model, batch = sized(MEDIUM_SIZES), make_batch(16, 512)
    learn(model, batch.rows(torch.arange(1)))
    peak = measure_peak(lambda: learn(model, batch))
    model.zero_grad(set_to_none=False)
    passes = Microbatches(ResourcesConfig())
    limit_memory(0.6 * peak)

    def learn_rows(rows):
        for rows_of_pass in rows:
            learn(model, batch.rows(rows_of_pass))
        return len(rows)

    assert passes.run(batch, learn_rows, undo=lambda: model.zero_grad(set_to_none=False)) >= 2
    assert passes.halvings >= 1


def test_out_of_memory_halves_the_rows_of_the_sampler(limit_memory):
    policy = as_policy(sized(MEDIUM_SIZES | {"vocab_size": 128}), tokenizer(), name="middle")
    decoding, limit = Decoding(max_new_tokens=256), RowLimit()

    def sample(rows_at_once, limit):
        generator = torch.Generator().manual_seed(3)
        sampler = Sampler(policy, rows_at_once=rows_at_once, limit=limit)
        return sampler.sample(PROMPTS[:1] * 8, 32, decoding, generator)

    peak = measure_peak(lambda: sample(256, RowLimit()))
    limit_memory(0.6 * peak)
    completions = sample(256, limit)
    assert limit.halvings >= 1
    assert [len(group) for group in completions] == [32] * 8


@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_seven_billion_weights_learn_with_lora_within_the_estimate(quantization):
    if torch.cuda.get_device_properties(0).total_memory < 40e9:
        pytest.skip("needs a GPU of 40 GB")
    rows, columns = 4, 1024
    config = resolve(
        {
            "policy": {
                "name": "seven",
                "adapter": {"type": "lora", "rank": 16},
                "quantization": quantization,
            },
            "sampling": {"prompts_per_step": 1, "group_size": rows, "max_new_tokens": columns - 256},
            "resources": {"activation_checkpointing": True, "packing": "off"},
            "objective": {"kl": {"type": "none"}},
        }
    )
    model = sized(QWEN_7B_SIZES)
    shape = read_shape(model)
    quantise_base(model, quantization, DEVICE)
    add_adapter(model, LoraAdapter(rank=16), base="seven")
    enable_recompute(model)
    torch.cuda.empty_cache()
    optimizer = PolicyOptimizer(model, OptimizerConfig(), steps=10)
    weight_before = copy.deepcopy(next(iter(adapter_weights(model).values())))
    torch.cuda.reset_peak_memory_stats()
    for step in (1, 2):
        learn(model, make_batch(rows, columns, prompt=256))
        optimizer.take_gradients()
        assert optimizer.step(step).applied
    memory = estimate_phases(config, shape, LoraAdapter(rank=16), on_cpu=False, prompt_tokens=256)[1]
    estimated_bytes = memory.peak - memory.parts["context"]
    assert estimated_bytes == pytest.approx(torch.cuda.max_memory_allocated(), rel=0.15)
    assert not torch.equal(weight_before, next(iter(adapter_weights(model).values())))
