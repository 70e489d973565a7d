"""The colocated engine, a vLLM server that the trainer starts on its own device.

    check             start, then sleep
    sync              wake the weights, send those of the policy, wake the keys and values
    sample, generate  the same as any other server, through a unix socket
    rest              sleep while the policy learns

All weights are sent before each step, so they are dropped in sleep (level 2). The frozen weights under an
adapter are kept in the host's memory (level 1). Only vLLM for CUDA can sleep. A server that dies is restarted
once per batch, and receives the weights again.
"""

import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

from backend.base.errors import EngineFailed
from backend.base.redaction import add_secrets
from backend.base.sandbox import bubblewrap
from backend.base.settings import Settings
from backend.config.engines import ColocatedEngine as ColocatedConfig
from worker.policy.model import Policy
from worker.rollout.engine import Interrupted, PolicySampler, SamplingLike
from worker.rollout.engine_client import EngineClient
from worker.rollout.server_engine import ServerEngine, answer_bytes
from worker.rollout.vllm_command import MODEL, command
from worker.rollout.vllm_process import Command, VllmProcess
from worker.types import Completion

logger = logging.getLogger(__name__)

TITLE = "vLLM beside the trainer"

DYING_SECONDS = 3.0
"""Seconds to wait for a failing server to end, because its engine process ends before its main process."""

SOCKET_BYTES = 107
"""Maximum length of a unix socket's path on Linux, in bytes."""

Result = TypeVar("Result")


class ColocatedEngine(PolicySampler):
    """Samples with a vLLM server that the trainer owns, whose weights follow the policy's."""

    def __init__(
        self,
        config: ColocatedConfig,
        policy: Policy,
        settings: Settings,
        *,
        model: Path,
        run_id: str,
        attempt: int,
        max_tokens: int,
    ) -> None:
        """Create the engine.

        `model` is the directory of the policy's files. `max_tokens` is the maximum number of tokens in an
        answer.
        """
        self.config, self.policy, self.settings, self.model = config, policy, settings, model
        self.is_unwanted: Callable[[], bool] = lambda: False
        self.can_sleep = policy.model.device.type == "cuda"
        self.run_id = run_id
        self.client = EngineClient(
            ["http://vllm"],
            secrets.token_urlsafe(32),
            settings.engine_concurrency,
            config.timeout_seconds,
            config.retries,
            answer_bytes(max_tokens),
            is_unwanted=self._is_given_up,
            title=TITLE,
        )
        add_secrets(self.client.api_key)
        self.server = ServerEngine(
            self.client,
            policy,
            settings.engine_directory,
            run_id=run_id,
            attempt=attempt,
            model=MODEL,
            largest_mismatch=config.largest_mismatch,
        )
        self.process: VllmProcess | None = None
        self._command: Command | None = None
        self.is_asleep = False
        self.restarts = 0
        self.sleep_seconds = 0.0
        self._may_restart = True
        self._version = -1

    def check(self) -> str:
        """Start the server, check it, and let it sleep until the first step. See Engine."""
        if not self.settings.engine_python:
            raise EngineFailed("sampling.engine is colocated, and ENGINE_PYTHON is not set here")
        started_at = time.perf_counter()
        self._command = command(
            self.config,
            self.policy,
            self.settings,
            model=self.model,
            directory=_private_directory(self.run_id),
            key=self.client.api_key,
        )
        self.client.socket = str(self._command.socket)
        process = self._start(self._command)
        self.server.check()
        self.release_memory()
        start_text = f"{TITLE} started in {time.perf_counter() - started_at:.0f} s and will sample"
        sleep_text = "it sleeps while the policy learns"
        if not self.can_sleep:
            sleep_text = "it keeps its memory while the policy learns: only vLLM on a GPU can sleep"
        isolation = (
            ""
            if process.is_apart
            else f"; it shares processes and network: {bubblewrap.isolation_unavailable_reason()}"
        )
        return f"{start_text}; {sleep_text}{isolation}"

    def sync(self, version: int, policy: Policy) -> None:
        """See Engine."""
        self.policy, self._version = policy, version
        self._retry_after_restart(lambda: None)

    def generate(
        self,
        prompt_ids: Sequence[list[int]],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        stops: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """See Samples. A server that dies is restarted once, and samples the same completions again."""
        state = generator.get_state()

        def draw() -> list[list[Completion]]:
            generator.set_state(state)
            return self.server.generate(prompt_ids, group_size, sampling, generator, stops=stops)

        return self._retry_after_restart(draw)

    def release_memory(self) -> None:
        """See Engine. Let vLLM sleep if it can. A server that has died is noticed at the next `sync`."""
        self._may_restart = True
        if not self.can_sleep or self.is_asleep:
            return
        try:
            self._order(f"/sleep?level={1 if self.server.is_adapter else 2}")
        except (EngineFailed, Interrupted):
            if not self._has_died():
                raise
        self.is_asleep = True
        if not self.server.is_adapter:
            self.server.forget_sent()

    def take_metrics(self) -> dict[str, float]:
        """See Engine. Add the number of restarts and the seconds of sleeping and waking."""
        engine_metrics = {
            "sampling/engine_restarts": self.restarts,
            "time/engine_sleep_seconds": self.sleep_seconds,
        }
        self.restarts, self.sleep_seconds = 0, 0.0
        return self.server.take_metrics() | engine_metrics

    def close(self) -> None:
        """See Engine."""
        if self.process is not None:
            self.process.kill()
        shutil.rmtree(self.server.directory, ignore_errors=True)
        if self._command is not None:
            shutil.rmtree(self._command.directory, ignore_errors=True)

    def _start(self, command: Command) -> VllmProcess:
        self._release_reserve()
        self.process = VllmProcess(command)
        self.is_asleep = False
        self.server.forget_sent()
        if not self.process.answers(seconds=self.config.start_seconds, is_unwanted=self.is_unwanted):
            raise Interrupted
        return self.process

    def _release_reserve(self) -> None:
        """Release the GPU memory that the trainer's allocator caches without using it."""
        if self.policy.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _send(self) -> None:
        """Wake the server if it sleeps, and send it the weights unless it has them."""
        if not self.is_asleep:
            self.server.sync(self._version, self.policy)
            return
        self._release_reserve()
        self._order("/wake_up?tags=weights")
        self.server.sync(self._version, self.policy)
        self._order("/wake_up?tags=kv_cache")
        self.is_asleep = False

    def _order(self, path: str) -> None:
        started_at = time.perf_counter()
        self.server.order(path)
        self.sleep_seconds += time.perf_counter() - started_at

    def _retry_after_restart(self, do: Callable[[], Result]) -> Result:
        """Return the result of `do` with the current weights, and restart the server if it is dead."""
        while True:
            try:
                if self._is_running():
                    self._send()
                    return do()
            except (EngineFailed, Interrupted):
                if not self._has_died():
                    raise
            self._start_again()

    def _start_again(self) -> None:
        process, command = self.process, self._command
        if process is None or command is None:
            raise RuntimeError("an engine samples only once it has been checked")
        reason = process.failure_reason()
        if not self._may_restart:
            raise EngineFailed(f"{TITLE} has died twice in one batch: {reason}")
        logger.warning("%s has died, and is started once more: %s", TITLE, reason)
        process.kill()
        self._may_restart = False
        self.restarts += 1
        self._start(command)

    def _has_died(self) -> bool:
        """Return whether the server has ended, or will end in a moment."""
        return self.process is not None and self.process.ends_within(DYING_SECONDS)

    def _is_running(self) -> bool:
        return self.process is not None and self.process.is_running()

    def _is_given_up(self) -> bool:
        """Return whether waiting for answers is pointless: the run is asked to end, or the server is dead."""
        return self.is_unwanted() or not self._is_running()


def _private_directory(run_id: str) -> Path:
    """Create a socket directory that only this user can open, and remove those of killed attempts."""
    parent = Path(tempfile.gettempdir())
    for old_directory in parent.glob(f"grpolab-{run_id}-*"):
        with suppress(OSError):
            shutil.rmtree(old_directory)
    directory = Path(tempfile.mkdtemp(prefix=f"grpolab-{run_id}-"))
    if len(os.fsencode(directory)) + 38 > SOCKET_BYTES:  # vLLM adds an id of 36 characters.
        shutil.rmtree(directory)
        raise EngineFailed(f"TMPDIR is too long a path for the sockets of vLLM: {SOCKET_BYTES} bytes at most")
    return directory
