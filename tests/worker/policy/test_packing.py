"""Tests of packed texts against the same texts alone: log-probabilities, gradients and refusals."""

import contextlib
import copy
import warnings
from dataclasses import replace

import pytest
import torch
from transformers.utils import is_flash_attn_2_available

from backend.base.errors import InvalidConfig
from backend.catalog.policies.architectures import packing_error
from backend.config.adapters import LoraAdapter
from tests.gate import first_in_gate
from tests.models.architectures import ARCHITECTURES, build
from worker.policy import packing
from worker.policy.adapter import add_adapter
from worker.policy.logprobs import token_logprobs
from worker.policy.packing import enable_packing, is_packed
from worker.policy.recompute import enable_recompute
from worker.policy.routing import routed_logprobs
from worker.policy.token_batch import token_batch

UNPACKED_TYPES = ("gpt_oss", "lfm2", "qwen3_next", "qwen3.5", "qwen3.5_images", "falcon_h1", "granite4")
PACKED_TYPES = sorted(ARCHITECTURES.keys() - set(UNPACKED_TYPES))
LENGTHS = (30, 1, 7, 19)
PROMPTS = (3, 1, 5, 2)


def batch(device="cpu"):
    generator = torch.Generator().manual_seed(0)
    texts = [
        [torch.randint(3, 120, (length,), generator=generator).tolist() for length in lengths]
        for lengths in (PROMPTS, LENGTHS)
    ]
    return token_batch(*texts, pad_id=0, device=device)


def logprobs_and_gradient(model, tokens=None):
    """Return log-probabilities, and the gradient of a weighted sum of them and the entropies."""
    tokens = tokens or batch(model.device)
    model.zero_grad()
    scored = token_logprobs(model, tokens, temperature=0.8, entropy_gradient=True)
    weights = torch.linspace(-1, 1, scored.logprobs.numel(), device=model.device).view_as(scored.logprobs)
    loss = (weights * scored.logprobs).sum() + 0.1 * scored.entropy.sum()
    loss.backward()
    gradients = [weight.grad.float().flatten() for weight in model.parameters() if weight.grad is not None]
    return scored.logprobs.detach(), loss.detach(), torch.cat(gradients)


def compare(padded_result, packed_result, *, relative):
    for expected, packed_value in zip(padded_result, packed_result, strict=True):
        assert (packed_value - expected).norm() <= relative * expected.norm()


@contextlib.contextmanager
def eager_flex(monkeypatch):
    """Replace flex attention by its definition, because torch's CPU kernel has no gradient."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile", UserWarning)
        yield


@pytest.mark.parametrize("name", PACKED_TYPES)
def test_packed_texts_match_padded_ones(name):
    """The reference is the model's own attention with an explicit mask."""
    model = build(name)
    padded_result = logprobs_and_gradient(model)
    assert enable_packing(model, "on") == ""
    compare(padded_result, logprobs_and_gradient(model), relative=1e-6)


@pytest.mark.parametrize(
    "name", first_in_gate(2, ["qwen3", "gemma3", "mistral", "gemma2", "phi3", "qwen3_moe", "smollm3"])
)
def test_flex_attention_matches_padded_texts(name, monkeypatch):
    model = build(name)
    padded_result = logprobs_and_gradient(model)
    monkeypatch.setattr(packing, "_choose_attention", lambda _: "flex_attention")
    with eager_flex(monkeypatch):
        assert enable_packing(model, "on") == ""
        compare(padded_result, logprobs_and_gradient(model), relative=1e-6)


@pytest.mark.parametrize("name", UNPACKED_TYPES)
def test_a_model_whose_texts_would_mix_is_refused_by_its_config_and_by_the_probe(name, monkeypatch):
    for dtype in (torch.float32, torch.bfloat16):
        model = build(name, dtype=dtype)
        reason = packing_error(model.config.to_dict())
        assert "state" in reason or "masks" in reason
        with pytest.raises(InvalidConfig, match=r"resources\.packing: is on, but") as error_info:
            enable_packing(model, "on")
        assert reason in str(error_info.value)
        with monkeypatch.context() as patched:
            patched.setattr(packing, "packing_error", lambda _: "")
            with pytest.raises(InvalidConfig, match=r"other states|depend on the texts before"):
                enable_packing(model, "on")
        assert not is_packed(model)


@pytest.mark.parametrize("name", PACKED_TYPES)
def test_the_probe_accepts_correct_packing_in_bfloat16(name):
    model = build(name, dtype=torch.bfloat16)
    assert packing_error(model.config.to_dict()) == ""
    assert enable_packing(model, "on") == ""


@pytest.mark.parametrize("is_adapted", [False, True])
def test_recomputed_layers_attend_identically(is_adapted, monkeypatch):
    model = build("gemma3")
    if is_adapted:
        add_adapter(model, LoraAdapter(rank=4), base="gemma3")
    expected = logprobs_and_gradient(model)
    monkeypatch.setattr(packing, "_choose_attention", lambda _: "flex_attention")
    enable_recompute(model)
    with eager_flex(monkeypatch):
        enable_packing(model, "on")
        compare(expected, logprobs_and_gradient(copy.deepcopy(model)), relative=1e-6)  # copies inherit it
    assert model.config._attn_implementation == "sdpa"


def test_routers_are_recorded_and_replayed_in_packed_rows():
    model, tokens = build("qwen3_moe"), batch()
    routes = torch.randint(4, (*tokens.ids[:, :-1].shape, 2, 1), generator=torch.Generator().manual_seed(1))
    tokens = replace(tokens, routes=torch.cat([routes, (routes + 1) % 4], dim=-1))
    padded_result = routed_logprobs(model, tokens, temperature=1.0)
    enable_packing(model, "on")
    packed_result = routed_logprobs(model, tokens, temperature=1.0)
    torch.testing.assert_close(
        packed_result.scored.logprobs, padded_result.scored.logprobs, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(packed_result.logprobs, padded_result.logprobs, rtol=1e-4, atol=1e-5)
    assert packed_result.experts is not None
    assert padded_result.experts is not None
    assert torch.equal(packed_result.experts, padded_result.experts)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", ["flex_attention", "flash_attention_2"])
@pytest.mark.parametrize("name", PACKED_TYPES)
def test_on_a_gpu_kernels_match_padded_texts(name, kernel, dtype, monkeypatch):
    if kernel == "flash_attention_2" and (dtype == torch.float32 or not is_flash_attn_2_available()):
        pytest.skip("flash attention is not installed, or has no float32")
    model = build(name, dtype=dtype, wide=True).to("cuda")
    padded_result = logprobs_and_gradient(model)
    monkeypatch.setattr(packing, "_choose_attention", lambda _: kernel)
    assert enable_packing(model, "auto") == ""
    compare(padded_result, logprobs_and_gradient(model), relative=1e-3 if dtype == torch.float32 else 0.05)
