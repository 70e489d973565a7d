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


def layers_of(dtype=torch.float32):
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
    straight = layers_of(dtype)
    fit(straight, moments=moments, offload=offload, steps=8)
    half = layers_of(dtype)
    before, _ = fit(half, moments=moments, offload=offload, steps=4)
    saved = {name: tensor.clone() for name, tensor in before.tensors().items()}
    assert all(type(tensor) is torch.Tensor for tensor in saved.values())
    resumed = layers_of(dtype)
    config = OptimizerConfig(lr=3e-3, weight_decay=0.01, moments=moments)
    after = PolicyOptimizer(resumed, config, steps=STEPS, offload=offload)
    resumed.load_state_dict(half.state_dict())
    after.restore(before.values(), saved)
    fit(resumed, optimizer=after, steps=4, first=5)
    for uninterrupted, right in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(uninterrupted, right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_offloaded_optimizer_computes_the_same(dtype):
    resident, offloaded = layers_of(dtype), layers_of(dtype)
    fit(resident)
    fit(offloaded, offload=True)
    assert all(
        torch.equal(expected, right)
        for expected, right in zip(resident.parameters(), offloaded.parameters(), strict=True)
    )


@on_gpu
@pytest.mark.parametrize("moments", ["float32", "int8"])
def test_on_a_gpu_an_offloaded_optimizer_learns_the_same_in_less_memory(moments):
    resident, offloaded = layers_of().cuda(), layers_of().cuda()
    for layers, offload in ((resident, False), (offloaded, True)):
        optimizer = PolicyOptimizer(
            layers, OptimizerConfig(lr=3e-3, moments=moments), steps=4, offload=offload
        )
        layers(torch.ones(2, 64, device="cuda")).square().sum().backward()
        optimizer.step(1)
        assert all(master.is_cuda != offload for master in optimizer.masters.values())
    for expected, right in zip(resident.parameters(), offloaded.parameters(), strict=True):
        torch.testing.assert_close(expected, right, rtol=1e-3, atol=1e-4)


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

    def optimizer_of(layers, *, paged=True):
        return PolicyOptimizer(layers, OptimizerConfig(lr=1e-3, moments=moments, paged=paged), steps=STEPS)

    plain, straight, half = large_layers(), large_layers(), large_layers()
    steps(plain, optimizer_of(plain, paged=False), 1, 8)
    steps(straight, optimizer_of(straight), 1, 8)
    before = optimizer_of(half)
    steps(half, before, 1, 4)
    assert before.adam.state[before.masters["0.weight"]]["state1"].is_paged
    saved = {name: tensor.clone() for name, tensor in before.tensors().items()}
    resumed = large_layers()
    resumed.load_state_dict(half.state_dict())
    after = optimizer_of(resumed)
    after.restore(before.values(), saved)
    steps(resumed, after, 5, 4)
    for uninterrupted, right, unpaged in zip(
        straight.parameters(), resumed.parameters(), plain.parameters(), strict=True
    ):
        assert torch.equal(uninterrupted, right)
        torch.testing.assert_close(uninterrupted, unpaged, rtol=1e-2, atol=2e-3)
    after.reset()
    assert all(state["step"] == 0 and not state["state1"].any() for state in after.adam.state.values())
