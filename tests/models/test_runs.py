"""Tests of a run of each architecture through a service: launched over HTTP, trained, and opened again.

`make test-all` uses three of them, and `make test-models` all, in float32 and bfloat16, with and without
LoRA."""

import os
import shutil
import time

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.common.service import ENDED_STATUSES, Service
from tests.models.architectures import ARCHITECTURES, save
from worker.checkpoints.export import export_checkpoint

pytestmark = pytest.mark.nightly

IS_FULL = os.environ.get("GRPOLAB_MODELS") == "all"
VOCABULARY_SIZE = 151_936 if IS_FULL else 128
CASES = [
    (name, dtype, adapter)
    for name in ARCHITECTURES
    for dtype in ("float32", "bfloat16")
    for adapter in ("none", "lora")
]
NIGHTLY_CASES = [
    ("gemma2", "float32", "none"),
    ("lfm2", "bfloat16", "lora"),
    ("qwen3.5_images", "float32", "none"),
]


@pytest.fixture(scope="module")
def service_and_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    service = Service(str(directory / "state"), MODELS_DIR=str(directory / "models"), WORKER_SLOTS="1")
    try:
        service.wait()
        yield service, directory
    finally:
        service.http.close()
        service.stop()


def finished_run(service, config):
    body = {"name": "models", "base": config, "variants": [{"name": "run"}], "seeds": [0]}
    response = service.http.post("/api/v1/experiments", json=body)
    assert response.is_success, response.text
    run = response.json()["runs"][0]["id"]
    deadline = time.monotonic() + 300
    while (current_run := service.get(f"/runs/{run}"))[
        "status"
    ] not in ENDED_STATUSES and time.monotonic() < deadline:
        time.sleep(0.2)
    return current_run


@pytest.mark.parametrize(("name", "dtype", "adapter"), CASES if IS_FULL else NIGHTLY_CASES)
def test_a_run_trains_and_its_checkpoint_opens(service_and_directory, name, dtype, adapter):
    service, directory = service_and_directory
    base = directory / "models" / name
    if not base.exists():
        save(name, base, vocabulary=VOCABULARY_SIZE)
    run = finished_run(
        service,
        {
            "policy": {"name": name, "dtype": dtype, "chat_template": True, "adapter": {"type": adapter}},
            "steps": 2,
            "sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8},
            "rewards": [{"name": "length", "weight": 1.0}],
            "optimizer": {"lr": 1e-3},
            "evaluation": {"every": 2, "prompts": 2},
        },
    )
    assert (run["status"], run["last_step"]) == ("finished", 2), run["reason"]
    assert run["summary"]["last"]["optim/update_norm"] > 0
    assert run["summary"]["last"]["mismatch/prob_diff_max"] < (1e-4 if dtype == "float32" else 0.1)
    (checkpoint,) = (directory / "state" / "runs" / run["id"]).glob("s000002-*")
    model_directory = checkpoint
    if adapter == "lora":
        model_directory = directory / "merged"
        shutil.rmtree(model_directory, ignore_errors=True)
        export_checkpoint(checkpoint, model_directory)
    model = AutoModelForCausalLM.from_pretrained(model_directory, dtype=getattr(torch, dtype))
    first = AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, dtype))
    pairs = zip(model.named_parameters(), first.named_parameters(), strict=True)
    assert any(
        not torch.equal(trained_weight, base_weight) for (_, trained_weight), (_, base_weight) in pairs
    )
    ids = AutoTokenizer.from_pretrained(model_directory)("1+1=?", return_tensors="pt").input_ids
    assert model(input_ids=ids).logits.isfinite().all()
