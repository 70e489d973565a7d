"""Tests that decoding with CUDA graphs matches decoding without them. Tests marked `gpu` record graphs."""

import threading

import pytest
import torch

from tests.models.architectures import build, tokenizer
from worker.policy.model import as_policy
from worker.prompt import Prompt
from worker.rollout import graph_decoder
from worker.rollout.decoders import decoder_for
from worker.rollout.graph_decoder import GraphDecoder
from worker.rollout.lean_decoder import LeanDecoder
from worker.rollout.sampler import Decoding, Sampler

FAMILIES = ("qwen3", "qwen2.5", "llama3")
DECODED_TOKENS = 150
"""Number of decoded tokens, which exceeds two sizes of the cache."""


def on_gpu(test):
    """Skip the test if there is no CUDA device."""
    skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
    return pytest.mark.gpu(skipped(test))


@torch.inference_mode()
def decoded_logits(decoder, device, *, even):
    """Return logits after every token of nine completions, of which six and then three continue."""
    ids = torch.randint(3, 100, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if not even:
        ids[1, :4] = mask[1, :4] = 0
    logits = [
        decoder.prefill(ids.to(device), mask.to(device), max_rows=9, max_new_tokens=DECODED_TOKENS).clone()
    ]
    rows_by_step = {0: [0, 1, 2, 1, 1, 2, 2, 0, 0], 40: [0, 1, 5, 3, 4, 8], 80: [0, 4, 2]}
    generator, rows = torch.Generator().manual_seed(2), 3
    for step in range(DECODED_TOKENS - 1):
        if step in rows_by_step:
            decoder.select(torch.tensor(rows_by_step[step], device=device))
            rows = len(rows_by_step[step])
        tokens = torch.randint(3, 100, (9,), generator=generator)[:rows]
        logits.append(decoder.step(tokens.to(device)).clone())
    return logits


def compare(model, *, even, atol, device="cpu"):
    graphs = GraphDecoder(model)
    expected, logits = (
        decoded_logits(decoder, device, even=even) for decoder in (LeanDecoder(model), graphs)
    )
    for expected_logits, computed_logits in zip(expected, logits, strict=True):
        torch.testing.assert_close(computed_logits, expected_logits, atol=atol, rtol=0)
    return graphs


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_fixed_shapes_give_the_logits_of_exact_shapes(name, even):
    compare(build(name), even=even, atol=5e-6)


@on_gpu
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-4), (torch.bfloat16, 0.06)])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_replayed_graphs_give_the_logits_of_launched_kernels(name, even, dtype, atol):
    model = build(name, dtype=dtype).to("cuda")
    graphs = compare(model, even=even, atol=atol, device="cuda")
    assert sum(graph is not None for graph in graphs.graphs.values()) >= 3


@on_gpu
def test_a_graph_replays_bit_by_bit():
    decoder = GraphDecoder(build("qwen3", dtype=torch.bfloat16).to("cuda"))
    first, second = (decoded_logits(decoder, "cuda", even=False) for _ in range(2))
    for first_logits, second_logits in zip(first, second, strict=True):
        assert torch.equal(first_logits, second_logits)


@on_gpu
def test_a_policy_that_cannot_be_recorded_is_decoded_without_graphs(monkeypatch, caplog):
    model = build("qwen3").to("cuda")
    normed = type(GraphDecoder(model).lean).final_norm

    def asking(lean, hidden):
        float(hidden.sum())  # waits for the GPU, which is not allowed during a recording
        return normed(lean, hidden)

    monkeypatch.setattr("worker.policy.lean.LeanModel.normed", asking)
    monkeypatch.setattr(graph_decoder, "_threads", threading.local())
    for _ in range(2):
        graphs = compare(model, even=False, atol=1e-4, device="cuda")
        assert not any(graphs.graphs.values())
        torch.cuda.empty_cache()  # the allocator does not wait for the end of a recording
    assert caplog.text.count("without CUDA graphs") == 1


@on_gpu
def test_sampling_works_while_another_thread_computes():
    policy = as_policy(build("qwen3").to("cuda"), tokenizer(), name="qwen3")
    assert isinstance(decoder_for(policy.model), GraphDecoder)
    prompts = [Prompt(text, text, answer="", problem="sums") for text in ("85+60+88=?", "1+2=?")]
    decoding = Decoding(max_new_tokens=100)

    def sample_texts():
        groups = Sampler(policy).sample(prompts, 4, decoding, torch.Generator().manual_seed(1))
        return [completion.ids.tolist() for group in groups for completion in group]

    expected, stop = sample_texts(), threading.Event()

    def compute():
        while not stop.is_set():
            weight = torch.randn(512, 512, device="cuda", requires_grad=True)
            (weight @ weight).square().sum().backward()
            torch.cuda.current_stream().synchronize()

    computing = threading.Thread(target=compute)
    computing.start()
    try:
        assert [sample_texts() for _ in range(5)] == [expected] * 5
    finally:
        stop.set()
        computing.join()
