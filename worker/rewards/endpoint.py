"""Send requests to the operator's scoring server concurrently, with retries, and once per content."""

import asyncio
import hashlib
import json
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2

from backend.base.text import read_json

MAX_ANSWER_BYTES = 1_000_000
MAX_CACHED = 50_000
"""Maximum number of cached answers. The least recently used one is removed first."""

MAX_POOLED_CONNECTIONS = 16
"""Maximum number of connections of one client, because the client searches all of them for each request."""

SPARE_TOKENS = 1000
"""Number of tokens that a server may add for its chat template and the ends of texts."""

FIRST_PAUSE_SECONDS = 0.5
JITTER = random.Random()
"""Random generator for pauses. It is separate from the run's generators, which a busy server must not
affect.
"""

LONGEST_PAUSE_SECONDS = 30.0
RETRIED_STATUSES = {408, 409, 425, 429}

Body = Mapping[str, Any]

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs every request


class ResponseTooLong(Exception):
    """Raised if a server's answer exceeds the size limit."""


class NoScore(Exception):
    """Raised if the server gave no usable score. The message contains nothing that it sent."""


@dataclass(slots=True)
class Usage:
    """Counters of a run's requests since they were last read."""

    requests: int = 0
    """Number of requested scores, including cached ones."""
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unreported: int = 0
    """Number of answers without a plausible token count."""
    cost: float | None = None
    """Price of the tokens, or None if they have no price."""


@dataclass(slots=True)
class Endpoint:
    """One route of a server. Its scores are cached in the run's process, so a resumed run requests them
    again.
    """

    url: str
    api_key: str
    concurrency: int
    timeout_seconds: float
    """Time limit of one request, in seconds."""
    retries: int
    read: Callable[[Any], Any]
    """Function that returns the scores in an answer's JSON or raises NoScore."""
    max_tokens: int = 0
    """Maximum number of tokens of an answer, or 0 if the answer is not text."""
    usage: Usage = field(default_factory=Usage)
    _cache: OrderedDict[bytes, Any] = field(default_factory=OrderedDict)

    def ask_all(self, bodies: Sequence[Body]) -> list[Any]:
        """Return the scores of each body, or its NoScore error, in order. Equal bodies are sent once."""
        contents = [json.dumps(body, ensure_ascii=False).encode(errors="replace") for body in bodies]
        keys = [
            hashlib.sha256(content).digest() for content in contents
        ]  # a text may contain half of a surrogate pair
        uncached_contents = {
            key: text for key, text in zip(keys, contents, strict=True) if key not in self._cache
        }
        answers = {key: self._cache[key] for key in keys if key in self._cache}
        if uncached_contents:
            answers |= asyncio.run(self._ask_unknown(uncached_contents))
        self._remember(answers)
        self.usage.requests += len(keys)
        self.usage.cached += len(keys) - len(uncached_contents)
        self.usage.failed += sum(isinstance(answers[key], NoScore) for key in keys)
        return [answers[key] for key in keys]

    def _remember(self, answers: Mapping[bytes, Any]) -> None:
        for key, answer in answers.items():
            if not isinstance(answer, NoScore):
                self._cache[key] = answer
                self._cache.move_to_end(key)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)

    async def _ask_unknown(self, contents: Mapping[bytes, bytes]) -> dict[bytes, Any]:
        """Return the answer to each content by its key, with up to `concurrency` requests at the same
        time.
        """
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        unsent, answers, ssl_context = iter(contents.items()), {}, httpx2.create_ssl_context()

        async def send_contents(client: httpx2.AsyncClient) -> None:
            for key, content in unsent:
                answers[key] = await self._ask(client, content)

        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            concurrent = min(self.concurrency, len(contents))
            for first in range(0, concurrent, MAX_POOLED_CONNECTIONS):
                client = httpx2.AsyncClient(headers=headers, timeout=None, verify=ssl_context)
                await stack.enter_async_context(client)
                for _ in range(first, min(first + MAX_POOLED_CONNECTIONS, concurrent)):
                    tasks.create_task(send_contents(client))
        return answers

    async def _ask(self, client: httpx2.AsyncClient, request_body: bytes) -> Any:
        """Return the scores, or the NoScore error of the last try."""
        error = NoScore("the request was never sent")
        for attempt in range(self.retries + 1):
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    status, headers, content = await read_answer(
                        client, "POST", self.url, content=request_body, max_bytes=MAX_ANSWER_BYTES
                    )
            except TimeoutError:
                error = NoScore(f"no answer within {self.timeout_seconds:g} seconds")
                retry_after = ""
            except ResponseTooLong as failure:
                error = NoScore(str(failure))
                retry_after = ""
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as failure:
                error = NoScore(f"it cannot be reached ({type(failure).__name__})")
                retry_after = ""
            else:
                if status == 200:
                    return self._read(content, max_read=len(request_body) + SPARE_TOKENS)
                error = NoScore(f"it answered with status {status}")
                if status < 500 and status not in RETRIED_STATUSES:
                    return error
                retry_after = headers.get("retry-after", "")
            if attempt < self.retries:
                await asyncio.sleep(pause_seconds(attempt, retry_after))
        return error

    def _read(self, content: bytes, *, max_read: int) -> Any:
        try:
            answer = read_json(content)
        except ValueError:
            self.usage.unreported += 1
            return NoScore("its answer is not JSON")
        self._count(answer.get("usage") if isinstance(answer, dict) else None, max_read)
        try:
            return self.read(answer)
        except NoScore as error:
            return error

    def _count(self, usage: Any, max_read: int) -> None:
        """Add the token counts that the server reports, if they are plausible.

        A prompt token has at least one byte, and at most `max_tokens` tokens are generated.
        """
        reported_usage = usage if isinstance(usage, dict) else {}
        default_count = None if self.max_tokens else 0
        prompt_tokens = _count(reported_usage.get("prompt_tokens"), max_read)
        completion_tokens = _count(
            reported_usage.get("completion_tokens", default_count), self.max_tokens + SPARE_TOKENS
        )
        if prompt_tokens is None or completion_tokens is None:
            self.usage.unreported += 1
            return
        self.usage.prompt_tokens += prompt_tokens
        self.usage.completion_tokens += completion_tokens


async def read_answer(
    client: httpx2.AsyncClient, method: str, url: str, *, max_bytes: int, content: bytes | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    """Return status, headers and body of a request's answer, without redirects and compression.

    Raises AnswerTooLong as soon as the size is known, and the errors of httpx2. The caller limits the time.
    """
    blocks, size = [], 0
    headers = {"Accept-Encoding": "identity"}
    async with client.stream(method, url, content=content, headers=headers) as response:
        async for block in response.aiter_raw():  # decompression could fill the memory with one block
            blocks.append(block)
            size += len(block)
            if size > max_bytes:
                raise ResponseTooLong(f"its answer is longer than {max_bytes:,} bytes")
        return response.status_code, response.headers, b"".join(blocks)


def _count(value: Any, limit: int) -> int | None:
    return value if type(value) is int and 0 <= value <= limit else None


def pause_seconds(attempt: int, wait: str) -> float:
    """Return the seconds before the next try, which double each time, or the seconds that the server
    requests.
    """
    requested_seconds = float(wait) if wait.isascii() and wait.isdecimal() and len(wait) < 6 else 0.0
    pause = FIRST_PAUSE_SECONDS * 2**attempt * JITTER.uniform(0.5, 1.0)
    return min(LONGEST_PAUSE_SECONDS, max(requested_seconds, pause))
