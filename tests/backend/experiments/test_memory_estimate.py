"""Tests of the memory estimate's verdict on a GPU that other programs use."""

import json

import pytest

from backend.catalog.policies.fitting import USABLE_MEMORY_FRACTION
from backend.catalog.policies.memory import ASSUMED_PROMPT_TOKENS
from backend.config.run import RunConfig
from backend.experiments.memory_estimate import memory_estimate, memory_warnings
from backend.runs.workers.devices import Slot
from backend.runs.workers.store import register_slot, report_slot

TOTAL_BYTES = 80e9
CONFIG = RunConfig(
    policy={"name": "tiny"}, sampling={"prompts_per_step": 32, "group_size": 16, "max_new_tokens": 900}
)


def estimate_on_gpu(session, settings, in_use, *, run_id=None, config=CONFIG):
    register_slot(session, "w", Slot(0, "cuda:0", "NVIDIA H100", 2, "GPU-0"), host="host", pid=1)
    stats = {"gpu_memory_total_bytes": TOTAL_BYTES, "gpu_memory_bytes": in_use, "memory_total_bytes": 64e9}
    report_slot(session, "w", "busy" if run_id else "idle", run_id, stats)
    session.flush()
    estimate = memory_estimate(session, config, settings)
    (slot,) = estimate.slots
    return estimate, slot


def test_memory_of_another_program_is_not_usable(session, settings):
    peak = estimate_on_gpu(session, settings, 0)[1].peak_bytes
    _, on_shared_gpu = estimate_on_gpu(session, settings, USABLE_MEMORY_FRACTION * TOTAL_BYTES - 0.6 * peak)
    assert (on_shared_gpu.verdict, on_shared_gpu.usable_bytes) == (
        "fits with changes",
        pytest.approx(0.6 * peak),
    )
    assert on_shared_gpu.changes
    estimate, gpu_estimate = estimate_on_gpu(session, settings, TOTAL_BYTES - 0.2e9)
    assert (gpu_estimate.verdict, gpu_estimate.usable_bytes) == ("does not fit", 0)
    (warning,) = memory_warnings(estimate)
    assert "no worker has more than 0.0 GB for it" in warning


def test_vllm_next_to_the_trainer_takes_its_share_of_the_gpu_while_it_samples(session, settings):
    def colocated_config(share):
        engine = {"type": "colocated", "memory_share": share}
        sampling = CONFIG.sampling.model_dump() | {"engine": engine}
        return RunConfig(policy={"name": "tiny"}, sampling=sampling)

    peak_alone = estimate_on_gpu(session, settings, 0)[1].peak_bytes
    assert (
        estimate_on_gpu(session, settings, 0, config=colocated_config(0.02))[1].peak_bytes == peak_alone
    )  # learning needs more
    estimate, with_half = estimate_on_gpu(session, settings, 0, config=colocated_config(0.5))
    assert (estimate.parts["engine"], estimate.phase) == (0.5 * TOTAL_BYTES, "sample")
    assert 0.5 * TOTAL_BYTES < with_half.peak_bytes < 0.5 * TOTAL_BYTES + peak_alone
    assert with_half.verdict == "fits"
    assert estimate_on_gpu(session, settings, 0, config=colocated_config(0.95))[1].verdict == "does not fit"


def test_prompts_of_a_file_count_with_their_own_length(session, settings):
    """The file has 19 rows of 300 characters and one of 9,000, and tokens of the policy are characters."""
    settings.datasets_dir.mkdir(parents=True)
    rows = [{"prompt": f"{number:03d}" + "x" * 297, "answer": "1"} for number in range(19)]
    rows.append({"prompt": "y" * 9_000, "answer": "1"})
    (settings.datasets_dir / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = {"name": "file", "path": "long.jsonl"}

    def prompt_tokens(**changes):
        sampling = {"max_new_tokens": 16}
        config = RunConfig(policy={"name": "tiny"}, sampling=sampling, problems=[source | changes])
        return memory_estimate(session, config, settings).prompt_tokens

    assert prompt_tokens() == 300
    assert prompt_tokens(instruction="Think first.") == 312
    assert prompt_tokens(path="gone.jsonl") == ASSUMED_PROMPT_TOKENS
