"""Start, assign, watch and end a trainer process.

The trainer's standard input is its lifeline: the trainer ends when the pipe closes, so a killed supervisor
leaves no trainer behind. The trainer has a separate session, so that it can be ended together with all
processes that it started.
"""

import codecs
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, cast

import psutil

from backend.base.redaction import MAX_SECRET_CHARACTERS, redact
from backend.base.settings import Settings
from backend.runs.workers.devices import Slot
from backend.storage.artifacts.store import STORAGE_VARIABLES
from worker.host.forked import ForkedProcess
from worker.outcome import REASON_CHARACTERS

TRAINER = (sys.executable, "-m", "worker.train")

INHERITED_PREFIXES = (
    "CUBLAS_",
    "CUDA_",
    "HF_",
    "LC_",
    "NCCL_",
    "NVIDIA_",
    "OMP_",
    "PYTORCH_",
    "TORCH_",
    "TRITON_",
    "VLLM_",
)
"""Prefixes of environment variables that a trainer inherits from the worker."""

INHERITED_NAMES = {
    "AWS_ACCESS_KEY_ID",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LD_LIBRARY_PATH",
    "NO_PROXY",
    "PATH",
    "PYTHONPATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
}
"""Names of other environment variables that a trainer inherits. The operator's token and the addresses of
database and broker are excluded, because plugins and their child processes can read the environment."""

SERVER_SETTINGS = (
    "judge_url",
    "judge_model",
    "judge_api_key",
    "judge_concurrency",
    "reward_model_url",
    "reward_model_name",
    "reward_model_api_key",
    "engine_url",
    "engine_model",
    "engine_api_key",
    "engine_logprobs",
    "engine_concurrency",
    "engine_python",
    "engine_arguments",
    "openenv_urls",
    "openenv_keys",
)
"""Names of the settings of servers for rewards, sampling and environments. The trainer calls these servers
itself. The sandbox of a plugin gets none of the settings.
"""

MAX_LINE_BYTES = 32_768
"""Maximum length of a line of output, in bytes. Only the start of a longer line is kept."""

Listener = Callable[[str], None]


def trainer_environment(settings: Settings, slot: Slot, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the complete environment of a trainer in this slot."""
    granted_names = (permissions.variables for permissions in settings.permissions.values())
    names = INHERITED_NAMES.union(*granted_names)
    prefixes = (*INHERITED_PREFIXES, *STORAGE_VARIABLES) if settings.artifacts_url else INHERITED_PREFIXES
    inherited_variables = {
        name: value for name, value in inherited.items() if name in names or name.startswith(prefixes)
    }
    if not settings.hf_online:
        inherited_variables.pop("HF_TOKEN", None)
    trainer_variables = {
        "STATE_DIR": str(settings.state),
        "ARTIFACTS_URL": settings.artifacts_url,
        "MODELS_DIR": str(settings.models_dir.absolute()),
        "DATASETS_DIR": str(settings.datasets_dir.absolute()),
        "HF_ONLINE": str(settings.hf_online),
        "HF_HUB_OFFLINE": "0" if settings.hf_online else "1",
        "LEASE_SECONDS": str(settings.lease_seconds),
        "SANDBOX": settings.sandbox,
        "PLUGIN_PERMISSIONS": settings.plugin_permissions,
        **{name.upper(): str(getattr(settings, name)) for name in SERVER_SETTINGS},
        "ENGINE_DIR": str(settings.engine_directory),
        "CUDA_VISIBLE_DEVICES": slot.gpu,
        "OMP_NUM_THREADS": str(slot.threads),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return inherited_variables | trainer_variables


def start_trainer(
    argv: tuple[str, ...], env: Mapping[str, str], *, inherited: Sequence[int] = ()
) -> "TrainerProcess":
    """Start a trainer, which keeps the `inherited` file descriptors open. Raise OSError."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(env), start_new_session=True, pass_fds=inherited
    )
    return TrainerProcess(process)


class TrainerProcess:
    """A trainer process that imports everything, reports that it is ready, and waits for a run."""

    def __init__(self, process: "subprocess.Popen[bytes] | ForkedProcess") -> None:
        self.ready = threading.Event()
        self.failure: dict[str, str] = {}
        """Reason that the trainer reported for its end, as {"reason", "kind"}."""
        self._last_error = ""
        self._memory = 0
        self._listener: Listener | None = None
        self._waiting_lines: list[str] = []
        self._lock = threading.Lock()
        self._process = process
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._readers = [
            self._read(cast("IO[bytes]", self._process.stdout), self._on_output),
            self._read(cast("IO[bytes]", self._process.stderr), self._on_error),
        ]

    @property
    def pid(self) -> int:
        """The process id of the trainer."""
        return self._process.pid

    @property
    def last_error_line(self) -> str:
        """The last line on standard error, without secrets, or "" if there was none."""
        return redact(self._last_error.strip())[:REASON_CHARACTERS]

    def see_memory(self) -> int:
        """Return the highest memory use seen so far, in bytes. It has to be called regularly."""
        with contextlib.suppress(psutil.Error):
            self._memory = max(self._memory, psutil.Process(self.pid).memory_info().rss)
        return self._memory

    def is_running(self) -> bool:
        """Return whether the trainer is running."""
        return self._process.poll() is None

    def assign(
        self,
        run_id: str,
        attempt: int,
        slot: Slot,
        listener: Listener,
        *,
        database_url: str,
        gpus: Sequence[str] = (),
        node: Mapping[str, Any] | None = None,
    ) -> None:
        """Assign a run, before or after the trainer is ready, and pass its output to `listener` from now on.

        `gpus` are the GPUs of its ranks on this node, with its own first. `node` describes the group of
        nodes, if any.
        """
        with self._lock:
            for line in self._waiting_lines:
                listener(line)
            self._waiting_lines.clear()
            self._listener = listener
        order = {
            "run_id": run_id,
            "attempt": attempt,
            "device": slot.device,
            "threads": slot.threads,
            "database_url": database_url,
            "gpus": list(gpus),
            **({} if node is None else {"node": dict(node)}),
        }
        with contextlib.suppress(OSError):  # The trainer is dead, and wait() reports it.
            self._stdin.write(json.dumps(order).encode() + b"\n")
            self._stdin.flush()

    def wait(self, seconds: float) -> int | None:
        """Return the exit code after the end, with all output read, or None while the trainer runs."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._end_session()  # Remaining processes would keep its output open.
        for reader in self._readers:
            reader.join(2)
        return code

    def ask_to_stop(self) -> None:
        """Send SIGTERM, which asks for a checkpoint after this step and an exit."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def dump_stacks(self) -> None:
        """Send SIGUSR1, which prints the stacks of all threads."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """End the trainer and all processes in its session immediately."""
        self._end_session()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._stdin.close()

    def _end_session(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self, stream: IO[bytes], handle: Listener) -> threading.Thread:
        def read() -> None:
            with stream:
                while line := stream.readline(MAX_LINE_BYTES + MAX_SECRET_CHARACTERS):
                    is_cut = len(line) == MAX_LINE_BYTES + MAX_SECRET_CHARACTERS and not line.endswith(b"\n")
                    handle(_decode_line(line, is_cut=is_cut))
                    if is_cut:
                        dropped_bytes = MAX_SECRET_CHARACTERS + _skip_line(stream)
                        self._emit(f"[{dropped_bytes:,} more bytes of this line are not kept]")

        thread = threading.Thread(target=read, name=f"output of {self._process.pid}", daemon=True)
        thread.start()
        return thread

    def _on_output(self, line: str) -> None:
        if not self.ready.is_set() and line.startswith('{"ready"'):
            self.ready.set()
        elif failure := _parse_failure(line):
            self.failure = failure
        else:
            self._emit(line)

    def _on_error(self, line: str) -> None:
        if line.strip():
            self._last_error = line
        self._emit(line)

    def _emit(self, line: str) -> None:
        with self._lock:
            if self._listener:
                self._listener(line)
            elif len(self._waiting_lines) < 1000:
                self._waiting_lines.append(line)


def _decode_line(line: bytes, *, is_cut: bool) -> str:
    r"""Decode a line. Invalid UTF-8 becomes `\xff`, and a possible part of a secret at a cut is removed."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = decoder.decode(line, final=not is_cut).rstrip("\n")
    return redact(text).encode()[:MAX_LINE_BYTES].decode(errors="ignore") if is_cut else text


def _skip_line(stream: IO[bytes]) -> int:
    """Discard the remaining line and return the number of bytes."""
    dropped_bytes = 0
    while chunk := stream.readline(MAX_LINE_BYTES):
        dropped_bytes += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return dropped_bytes


def _parse_failure(line: str) -> dict[str, str]:
    """Return the failure that a line reports, or {} if it is not such a report."""
    if not line.startswith('{"failed":'):
        return {}
    try:
        failure = json.loads(line)["failed"]
    except ValueError:  # A long line that was cut, or other output of this form.
        return {}
    return {str(key): str(value) for key, value in failure.items()} if isinstance(failure, dict) else {}
