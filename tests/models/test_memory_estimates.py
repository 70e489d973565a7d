"""Tests that estimates of memory are within 15 % of measured peaks."""

import pytest
import torch

from tests.models.memory_peaks import (
    make_config,
    measured_and_estimated,
    quantised_peak,
    sampled_and_estimated,
)

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    ("architecture", "dtype", "adapter", "recomputed"),
    [
        ("qwen3", "float32", "none", False),
        ("qwen3", "bfloat16", "lora", True),
        ("gemma2", "bfloat16", "none", False),
        ("lfm2", "float32", "lora", False),
        ("qwen3_moe", "bfloat16", "none", True),
        ("mistral", "bfloat16", "lora", False),
        ("qwen3_moe", "float32", "experts", False),
        ("deepseek_v3", "bfloat16", "experts", True),
    ],
)
def test_an_estimate_is_within_15_percent_of_the_measured_peak(architecture, dtype, adapter, recomputed):
    config = make_config(architecture, dtype, adapter, recomputed=recomputed)
    measured_bytes, estimated_bytes = measured_and_estimated(architecture, config)
    assert estimated_bytes == pytest.approx(measured_bytes, rel=0.15)


@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        ("qwen3", "float32"),
        ("mistral", "bfloat16"),
        ("gemma2", "float32"),
        ("qwen3.5", "bfloat16"),
        ("deepseek_v3", "float32"),
    ],
)
def test_an_estimate_of_sampling_is_within_15_percent_of_the_measured_peak(architecture, dtype):
    """The cases have rotations and scores, a window, all scores, a recurrence and compressed keys."""
    measured_bytes, estimated_bytes = sampled_and_estimated(architecture, dtype)
    assert estimated_bytes == pytest.approx(measured_bytes, rel=0.15)


@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "deepseek_v3"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_an_estimate_supports_packed_rows(architecture, recomputed):
    config = make_config(architecture, "float32", "lora", recomputed=recomputed, packing="on")
    measured_bytes, estimated_bytes = measured_and_estimated(architecture, config)
    assert estimated_bytes == pytest.approx(measured_bytes, rel=0.15)


@pytest.mark.parametrize("kind", ["int8", "nf4", "nf4_double"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_an_estimate_supports_a_quantised_base(kind, recomputed):
    config = make_config("qwen3", "bfloat16", "lora", recomputed=recomputed, quantization=kind)
    measured_bytes, estimated_bytes = quantised_peak(config)
    assert estimated_bytes == pytest.approx(measured_bytes, rel=0.15)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.parametrize("packing", ["off", "auto"])
@pytest.mark.parametrize("architecture", ["qwen3", "mistral", "gemma2"])
def test_an_estimate_is_within_15_percent_of_what_cuda_allocates(architecture, packing, adapter):
    config = make_config(architecture, "bfloat16", adapter, recomputed=False, packing=packing)
    measured_bytes, estimated_bytes = measured_and_estimated(architecture, config, device="cuda")
    assert estimated_bytes == pytest.approx(measured_bytes, rel=0.15)
