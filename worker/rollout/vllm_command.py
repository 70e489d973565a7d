"""The command line and environment of the vLLM server that a trainer starts."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from backend.base.settings import Settings
from backend.config.engines import ColocatedEngine as ColocatedConfig
from worker.policy.adapter import NAME as ADAPTER
from worker.policy.adapter import is_adapted
from worker.policy.model import Policy
from worker.rollout.vllm_process import SOCKET, Command

SERVER_ARGUMENTS = ("-m", "vllm.entrypoints.openai.api_server")
"""Arguments to run the server's module, because some builds of vLLM lack the command `vllm serve`."""

MODEL = "policy"
"""Name of the policy on the server."""

ADAPTER_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Adapter ranks that vLLM supports."""

INHERITED_NAMES = {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME"}
INHERITED_PREFIXES = ("CUBLAS_", "CUDA_", "LC_", "NCCL_", "NVIDIA_", "OMP_", "TORCH_", "TRITON_", "VLLM_")
"""Prefixes of environment variables that the server inherits. Keys, tokens and addresses are excluded, and
so are settings of the trainer's allocator (PYTORCH_), some of which prevent vLLM from sleeping.
"""

CPU_CACHE_GIB = "1"
"""Size of vLLM's key/value cache on a CPU, in GiB, unless VLLM_CPU_KVCACHE_SPACE is set."""


def command(
    config: ColocatedConfig, policy: Policy, settings: Settings, *, model: Path, directory: Path, key: str
) -> Command:
    """Return the command of a server for `policy`, whose files are in `model` and which requires `key`.

    The operator's ENGINE_ARGUMENTS come last, so they take precedence.
    """
    weight = policy.model.get_input_embeddings().weight
    argv = [settings.engine_python, *SERVER_ARGUMENTS]
    argv += ["--model", str(model), "--served-model-name", MODEL, "--uds", str(directory / SOCKET)]
    argv += ["--dtype", str(weight.dtype).removeprefix("torch.")]
    argv += ["--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"]
    argv += ["--gpu-memory-utilization", f"{config.memory_share:g}"]
    argv += ["--max-model-len", "-1"]  # the policy's context length, or what fits
    argv += ["--disable-log-stats", "--disable-uvicorn-access-log"]
    if weight.device.type == "cuda":
        argv.append("--enable-sleep-mode")
    if is_adapted(policy.model):
        argv += ["--enable-lora", "--max-lora-rank", str(_room_for(policy))]
    argv += shlex.split(settings.engine_arguments)
    return Command(argv, _environment(os.environ, directory=directory, key=key), directory)


def _room_for(policy: Policy) -> int:
    """Return vLLM's smallest rank that fits the adapter, else the adapter's rank, which vLLM refuses."""
    rank = policy.model.peft_config[ADAPTER].r
    return next((offered_rank for offered_rank in ADAPTER_RANKS if offered_rank >= rank), rank)


def _environment(inherited: Mapping[str, str], *, directory: Path, key: str) -> dict[str, str]:
    inherited_variables = {
        name: value
        for name, value in inherited.items()
        if name in INHERITED_NAMES or name.startswith(INHERITED_PREFIXES)
    }
    engine_variables = {
        "VLLM_API_KEY": key,  # an argument would be visible to every user of the machine
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_RPC_BASE_PATH": str(directory),
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return {"VLLM_CPU_KVCACHE_SPACE": CPU_CACHE_GIB, **inherited_variables, **engine_variables}
