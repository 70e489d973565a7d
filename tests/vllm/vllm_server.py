"""Start a real vLLM server with a small random model, as docs/engines.md describes."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import httpx2
import torch

from tests.models.architectures import save
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
API_KEY = "the-operators-own-key"
START_SECONDS = 600
HEAD_WIDTH = 32
"""Width of a head, the smallest that vLLM's attention for CPUs supports."""

VARIABLES = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def interpreter() -> Path | None:
    """Return the Python that can import vLLM, or None if there is none."""
    python = ROOT / ".venv-vllm" / "bin" / "python"
    if python.exists():
        return python
    return Path(sys.executable) if find_spec("vllm") else None


class VllmServer:
    """The server, which keeps its port when it is restarted."""

    def __init__(self, directory: Path) -> None:
        self.models, self.port = directory, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        save("qwen3", directory / "small", vocabulary=128, head_dim=HEAD_WIDTH)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [
            "--model",
            str(self.models / "small"),
            "--served-model-name",
            "small",
            "--api-key",
            API_KEY,
        ]
        options += ["--host", "127.0.0.1", "--port", str(self.port), "--enable-lora", "--max-lora-rank", "32"]
        options += [
            "--generation-config",
            "vllm",
            "--logprobs-mode",
            "processed_logprobs",
            "--dtype",
            "float32",
        ]
        options += ["--max-model-len", "512", "--enforce-eager"]
        options += ["--gpu-memory-utilization", "0.3" if torch.cuda.is_available() else "0.1"]
        argv = [str(interpreter()), "-m", "vllm.entrypoints.openai.api_server", *options]
        with (self.models / "vllm.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, env=os.environ | VARIABLES, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.models / "vllm.log").read_text(encoding="utf-8")[-4_000:])
            time.sleep(0.5)

    def _answers(self) -> bool:
        with suppress(httpx2.HTTPError):
            return httpx2.get(f"{self.url}/health").status_code == 200
        return False

    def begin_again(self) -> None:
        """Restore the server's own weights, in place of those that a run sent."""
        order = {"method": "reload_weights", "kwargs": {"weights_path": str(self.models / "small")}}
        httpx2.post(f"{self.url}/collective_rpc", json=order, timeout=60).raise_for_status()
        httpx2.post(f"{self.url}/reset_prefix_cache").raise_for_status()

    def kill(self) -> None:
        """Kill the server and the process of its engine."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._process.wait()
