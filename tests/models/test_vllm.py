"""The server engine against the installed vLLM, on a GPU: adapters and all weights."""

import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec

import httpx2
import pytest
import torch

from backend.config.adapters import LoraAdapter, NoAdapter
from backend.config.engines import ServerEngine as ServerConfig
from backend.config.run import PolicyConfig
from tests.models.architectures import save
from worker.policy.model import load_policy
from worker.prompt import Prompt
from worker.rollout.sampler import Decoding
from worker.rollout.server_engine import ServerEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
]

PROMPTS = [Prompt(str(n), f"{n}+{n}=", str(2 * n), "sums") for n in range(8)]
START_SECONDS = 600


@pytest.fixture
def model(settings):
    """A small random model that vLLM serves."""
    directory = settings.models_dir / "small"
    directory.mkdir(parents=True)
    save("qwen3", directory, vocabulary=128)
    return directory


@pytest.fixture
def address(model):
    """The address of a vLLM server, started as docs/engines.md says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = ["--model", str(model), "--served-model-name", "small", "--port", str(port), "--enable-lora"]
    how = ["--generation-config", "vllm", "--gpu-memory-utilization", "0.3", "--dtype", "float32"]
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *own, *how]
    given = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    with subprocess.Popen(argv, env=dict(os.environ) | given) as process:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if httpx2.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            except httpx2.HTTPError:
                time.sleep(1)
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.mark.parametrize("adapter", [NoAdapter(), LoraAdapter(rank=8)], ids=["all weights", "adapter"])
def test_vllm_samples_with_the_weights_that_it_is_sent(address, settings, adapter):
    own = settings.model_copy(update={"engine_url": address})
    policy = load_policy(PolicyConfig(name="small", adapter=adapter), own, device="cuda")
    config = ServerConfig(largest_mismatch=0.01)
    engine = ServerEngine(config, policy, own, run_id="run", attempt=1, most_tokens=1024)
    engine.check()
    for version in range(3):
        with torch.no_grad():
            for weight in policy.model.parameters():
                if weight.requires_grad:
                    weight.add_(0.05 * torch.randn_like(weight))
        engine.sync(version, policy)
        groups = engine.sample(PROMPTS, 4, Decoding(32), torch.Generator().manual_seed(version))
        assert {one.version for group in groups for one in group} == {version}
    engine.close()
