"""Tests of the out-of-memory message: which memory ran out, and what held it."""

import torch

from worker.out_of_memory import GpuMemory, gpu_text, is_gpu_error, is_memory_error, memory_text

GIGABYTE_BYTES = 10**9


def test_a_gpu_that_another_program_fills_is_named():
    text = gpu_text(
        GpuMemory(
            reserved_bytes=6 * GIGABYTE_BYTES, free_bytes=GIGABYTE_BYTES // 4, total_bytes=80 * GIGABYTE_BYTES
        )
    )
    assert text == (
        "the trainer held 6.0 GB of the GPU's 80 GB, other processes and CUDA itself 74 GB; 250 MB were free"
    )


def test_the_error_tells_which_memory_ran_out():
    of_gpu = [
        torch.OutOfMemoryError("x"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: out of memory"),
    ]
    of_host = [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
    assert all(map(is_gpu_error, of_gpu))
    assert not any(map(is_gpu_error, of_host))
    assert all(map(is_memory_error, [*of_gpu, *of_host]))


def test_without_a_gpu_the_machine_is_named():
    assert "of the machine's" in memory_text(MemoryError())
    if not torch.cuda.is_available():
        assert "of the machine's" in memory_text(torch.OutOfMemoryError("CUDA out of memory"))
