"""A policy's tokenizer in a process with limits: it and its chat template come from whoever made the model.

Jinja's sandbox keeps a template from files and attributes, but neither a power of ten inside C nor a chain of
replacements inside Rust ends before it is done, and one that takes all memory ends the process.
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
"""Processor time of a call."""

MEMORY_GB = 3
"""Of the process; its libraries take a tenth of that."""

CHARACTERS = 50_000
"""Of all texts of a call, unless one alone is longer: the reply fits, with a token for every byte."""

TRIES = 2
"""Processes that a prompt is tried in: others may have ended the first, for want of memory."""

CLOCK = 3
"""Seconds on the clock for each second of processor time: other processes must not decide."""


class Refused(Exception):
    """A tokenizer or a chat template that raises, or goes beyond its limits; the message says why."""


class TokenizerProcess:
    """Asks the tokenizer of a directory. Every call raises Refused; threads take turns."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        # in the hub's cache, files are links
        blobs = {path.resolve().parent for path in directory.iterdir() if path.is_symlink()}
        limits = Permissions(memory_gb=MEMORY_GB)
        self._sandbox = Sandbox(CALLS, permissions=limits, further=(directory, *sorted(blobs)))
        self._turn = Lock()
        weakref.finalize(self, self._sandbox.close)

    def probe(self) -> None:
        """Load the tokenizer and try it."""
        self._ask("probe")

    def encode(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        """Token ids of each text; many short ones are one call with its limits."""
        return [ids for batch in _batches(texts) for ids in self._ask("encode", texts=batch, options=options)]

    def apply(self, messages: list[Mapping[str, Any]], **options: Any) -> Any:
        """Messages as the chat template writes them: text, or token ids with tokenize=True."""
        return self._ask("apply", messages=messages, options=options)

    def _ask(self, op: str, **request: Any) -> Any:
        common = {"directory": self._directory, "cpu_seconds": CPU_SECONDS}
        limits = f"it takes more than {CPU_SECONDS} seconds or {MEMORY_GB} GiB of memory"
        tries = 1 if op == "probe" else TRIES
        for left in reversed(range(tries)):
            try:
                with self._turn:
                    answer = self._sandbox.ask(op, seconds=float(CLOCK * CPU_SECONDS), **common, **request)
            except Unusable as error:
                raise Refused(f"the process for it cannot start: {error}") from error
            except SandboxError as error:
                if not left:
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
        if batch and size > CHARACTERS:
            yield batch
            batch, size = [], len(text)
        batch.append(text)
    if batch:
        yield batch
