"""Run a policy's tokenizer in a process with limits, because it and its chat template come from third
parties.

Jinja's sandbox denies a template access to files and attributes, but it cannot interrupt a huge power inside
C or a chain of replacements inside Rust, and a template that uses all memory ends the process.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from backend.base.plugin_permissions import Permissions
from backend.base.sandbox.errors import SandboxError, Unusable
from backend.base.sandbox.process import Sandbox

CALLS = "worker.policy.tokenizer_calls"

CPU_SECONDS = 20
"""Maximum processor time of a call, in seconds."""

MEMORY_GB = 3
"""Memory limit of the process, in GB. Its libraries need a tenth of it."""

MAX_CHARACTERS = 50_000
"""Maximum total number of characters of a call's texts, unless a single text is longer."""

MAX_TRIES = 2
"""Number of processes in which a prompt is tried, because the first may have ended for others' lack of
memory.
"""

WALL_SECONDS_PER_CPU_SECOND = 3
"""Wall-clock seconds allowed per second of processor time, so that a busy machine does not change the
result.
"""


class Refused(Exception):
    """Raised with the reason if a tokenizer or chat template fails or exceeds its limits."""


class TokenizerProcess:
    """Calls the tokenizer of a directory. Every call may raise Refused. Threads call it one at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        # Files in the hub's cache are symbolic links.
        blobs = {path.resolve().parent for path in directory.iterdir() if path.is_symlink()}
        limits = Permissions(memory_gb=MEMORY_GB)
        self._sandbox = Sandbox(CALLS, permissions=limits, additional_paths=(directory, *sorted(blobs)))
        self._turn = Lock()
        weakref.finalize(self, self._sandbox.close)

    def probe(self) -> None:
        """Load the tokenizer and try it."""
        self._ask("probe")

    def encode(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        """Return the token ids of each text. Many short texts share one call and its limits."""
        return [ids for batch in _batches(texts) for ids in self._ask("encode", texts=batch, options=options)]

    def apply(self, messages: list[Mapping[str, Any]], **options: Any) -> Any:
        """Return messages in the form of the chat template, as text, or as token ids if tokenize=True."""
        return self._ask("apply", messages=messages, options=options)

    def _ask(self, op: str, **request: Any) -> Any:
        common = {"directory": self._directory, "cpu_seconds": CPU_SECONDS}
        limits = f"it takes more than {CPU_SECONDS} seconds or {MEMORY_GB} GiB of memory"
        tries = 1 if op == "probe" else MAX_TRIES
        for remaining_tries in reversed(range(tries)):
            try:
                with self._turn:
                    answer = self._sandbox.run_operation(
                        op, seconds=float(WALL_SECONDS_PER_CPU_SECOND * CPU_SECONDS), **common, **request
                    )
            except Unusable as error:
                raise Refused(f"the process for it cannot start: {error}") from error
            except SandboxError as error:
                if not remaining_tries:
                    raise Refused(limits) from error
            else:
                break
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["value"]


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        size += len(text)
        if batch and size > MAX_CHARACTERS:
            yield batch
            batch, size = [], len(text)
        batch.append(text)
    if batch:
        yield batch
