"""Tests of AdamW with quantised moments, and of optimizer and reference in host memory."""

import pytest
import torch
from torch import nn

from backend.config.sections import OptimizerConfig
from worker.policy.optimizer import PolicyOptimizer

STEPS = 30


def on_gpu(test):
    """Skip the test if there is no CUDA device."""
    skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
    return pytest.mark.gpu(skipped(test))


def make_layers(dtype=torch.float32):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 16))
    return layers.to(dtype)


def fit(layers, *, moments="float32", offload=False, steps=STEPS, optimizer=None, first=1):
    """Fit a fixed target, and return the optimizer and the loss before and after each step."""
    generator = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(32, 64, generator=generator), torch.randn(32, 16, generator=generator)
    config = OptimizerConfig(lr=3e-3, weight_decay=0.01, moments=moments)
    optimizer = optimizer or PolicyOptimizer(layers, config, steps=STEPS, offload=offload)
    losses = []
    for step in range(first, first + steps):
        loss = (layers(inputs.to(layers[0].weight.dtype)).float() - targets).square().mean()
        loss.backward()
        optimizer.step(step)
        losses.append(loss.item())
    return optimizer, losses


@pytest.mark.parametrize("moments", ["float32", "int8", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offload", [False, True])
def test_a_restored_optimizer_continues_bit_by_bit(moments, dtype, offload):
    uninterrupted_layers = make_layers(dtype)
    fit(uninterrupted_layers, moments=moments, offload=offload, steps=8)
    half_trained = make_layers(dtype)
    first_optimizer, _ = fit(half_trained, moments=moments, offload=offload, steps=4)
    saved_tensors = {name: tensor.clone() for name, tensor in first_optimizer.tensors().items()}
    assert all(type(tensor) is torch.Tensor for tensor in saved_tensors.values())
    resumed_layers = make_layers(dtype)
    config = OptimizerConfig(lr=3e-3, weight_decay=0.01, moments=moments)
    restored_optimizer = PolicyOptimizer(resumed_layers, config, steps=STEPS, offload=offload)
    resumed_layers.load_state_dict(half_trained.state_dict())
    restored_optimizer.restore(first_optimizer.values(), saved_tensors)
    fit(resumed_layers, optimizer=restored_optimizer, steps=4, first=5)
    for expected_weights, resumed_weights in zip(
        uninterrupted_layers.parameters(), resumed_layers.parameters(), strict=True
    ):
        assert torch.equal(expected_weights, resumed_weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_offloaded_optimizer_computes_the_same(dtype):
    resident_layers, offloaded_layers = make_layers(dtype), make_layers(dtype)
    fit(resident_layers)
    fit(offloaded_layers, offload=True)
    assert all(
        torch.equal(resident_weights, offloaded_weights)
        for resident_weights, offloaded_weights in zip(
            resident_layers.parameters(), offloaded_layers.parameters(), strict=True
        )
    )


@on_gpu
@pytest.mark.parametrize("moments", ["float32", "int8"])
def test_on_a_gpu_an_offloaded_optimizer_learns_the_same_in_less_memory(moments):
    resident_layers, offloaded_layers = make_layers().cuda(), make_layers().cuda()
    for layers, offload in ((resident_layers, False), (offloaded_layers, True)):
        optimizer = PolicyOptimizer(
            layers, OptimizerConfig(lr=3e-3, moments=moments), steps=4, offload=offload
        )
        layers(torch.ones(2, 64, device="cuda")).square().sum().backward()
        optimizer.step(1)
        assert all(master.is_cuda != offload for master in optimizer.masters.values())
    for resident_weights, offloaded_weights in zip(
        resident_layers.parameters(), offloaded_layers.parameters(), strict=True
    ):
        torch.testing.assert_close(resident_weights, offloaded_weights, rtol=1e-3, atol=1e-4)


def large_layers():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 2048), nn.Tanh(), nn.Linear(2048, 16))
    return layers.cuda()  # 131,072 values, and paging starts at 100,000


@on_gpu
@pytest.mark.parametrize("moments", ["float32", "int8"])
def test_on_a_gpu_paged_moments_learn_the_same_and_continue_bit_by_bit(moments):
    pytest.importorskip("bitsandbytes")

    def steps(layers, optimizer, first, count):
        for step in range(first, first + count):
            layers(torch.ones(4, 64, device="cuda")).sub(1).square().mean().backward()
            optimizer.step(step)

    def make_optimizer(layers, *, paged=True):
        return PolicyOptimizer(layers, OptimizerConfig(lr=1e-3, moments=moments, paged=paged), steps=STEPS)

    unpaged_layers, uninterrupted_layers, half_trained = large_layers(), large_layers(), large_layers()
    steps(unpaged_layers, make_optimizer(unpaged_layers, paged=False), 1, 8)
    steps(uninterrupted_layers, make_optimizer(uninterrupted_layers), 1, 8)
    first_optimizer = make_optimizer(half_trained)
    steps(half_trained, first_optimizer, 1, 4)
    assert first_optimizer.adam.state[first_optimizer.masters["0.weight"]]["state1"].is_paged
    saved_tensors = {name: tensor.clone() for name, tensor in first_optimizer.tensors().items()}
    resumed_layers = large_layers()
    resumed_layers.load_state_dict(half_trained.state_dict())
    restored_optimizer = make_optimizer(resumed_layers)
    restored_optimizer.restore(first_optimizer.values(), saved_tensors)
    steps(resumed_layers, restored_optimizer, 5, 4)
    for expected_weights, resumed_weights, unpaged_weights in zip(
        uninterrupted_layers.parameters(),
        resumed_layers.parameters(),
        unpaged_layers.parameters(),
        strict=True,
    ):
        assert torch.equal(expected_weights, resumed_weights)
        torch.testing.assert_close(expected_weights, unpaged_weights, rtol=1e-2, atol=2e-3)
    restored_optimizer.reset()
    assert all(
        state["step"] == 0 and not state["state1"].any() for state in restored_optimizer.adam.state.values()
    )
