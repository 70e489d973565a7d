"""Requests to the sampling servers: concurrent, retried at the next server, cancelled on demand."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx2

from backend.base.errors import EngineFailed
from backend.base.redaction import redact
from backend.base.text import clean_text, read_json
from worker.rewards.endpoint import RETRIED_STATUSES, ResponseTooLong, pause_seconds, read_answer
from worker.rollout.engine import Interrupted

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
"""Seconds between two checks of whether the answers are still needed."""

MAX_SHOWN_CHARACTERS = 200
"""Maximum number of characters shown of a server's error message."""


class Rejected(Exception):
    """Raised if a server refused a request in a way that a retry would not change."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BadResponse(Exception):
    """Raised for an answer that cannot be used. A retry may return a better one."""


class Request(NamedTuple):
    """One request and the function that reads its answer."""

    method: str
    path: str
    body: Mapping[str, Any] | None
    read: Callable[[Any], Any] | None
    """Function that returns the value in an answer's JSON or raises BadAnswer. If None, the answer is
    ignored.
    """


@dataclass(slots=True)
class EngineClient:
    """Client of the sampling servers."""

    urls: Sequence[str]
    api_key: str
    concurrency: int
    timeout_seconds: float
    retries: int
    max_bytes: int
    """Maximum size of one answer, in bytes."""
    title: str = "ENGINE_URL"
    """Name of the servers in messages, which do not reveal the operator's addresses."""
    socket: str = ""
    """Path of the unix socket of the only server, or "" if it is reached by its URL."""
    is_unwanted: Callable[[], bool] = lambda: False
    retried: int = 0
    """Number of failed tries that were followed by another one."""

    def send_all(self, requests: Sequence[Request]) -> list[Any]:
        """Distribute the requests among the servers, retry at the next server, and return the answers'
        values.

        Raise Rejected, EngineFailed after the last try, or Interrupted.
        """
        count = len(self.urls)
        server_orders = [
            [(first + offset) % count for offset in range(count)] for first in range(len(requests))
        ]
        return asyncio.run(self._send_jobs(list(zip(server_orders, requests, strict=True))))

    def send_to_each(self, request: Request) -> list[Any]:
        """Send one request to every server and return the value of each answer, or the Rejected that it
        raised.
        """
        jobs = [([server], request) for server in range(len(self.urls))]
        return asyncio.run(self._send_jobs(jobs, keeps_rejected=True))

    def server_name(self, server: int) -> str:
        """Return the name of a server for messages."""
        return self.title if len(self.urls) == 1 else f"server {server + 1} of {self.title}"

    async def _send_jobs(
        self, jobs: Sequence[tuple[list[int], Request]], *, keeps_rejected: bool = False
    ) -> list[Any]:
        semaphore = asyncio.Semaphore(self.concurrency)
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        limits = httpx2.Limits(max_connections=self.concurrency, max_keepalive_connections=self.concurrency)
        transport = httpx2.AsyncHTTPTransport(limits=limits, uds=self.socket) if self.socket else None
        async with httpx2.AsyncClient(
            headers=headers, limits=limits, timeout=None, transport=transport
        ) as client:

            async def send_request(places: list[int], request: Request) -> Any:
                try:
                    async with semaphore:
                        return await self._try_servers(client, places, request)
                except Rejected as error:
                    if keeps_rejected:
                        return error
                    raise

            return await self._gather([send_request(places, request) for places, request in jobs])

    async def _gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Return all results. At the first error, or once they are not wanted, cancel the other tasks."""
        tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
        pending = set(tasks)
        try:
            while pending:
                done, pending = await asyncio.wait(
                    pending, timeout=POLL_SECONDS, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in done:
                    task.result()
                if pending and self.is_unwanted():
                    raise Interrupted
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result() for task in tasks]

    async def _try_servers(self, client: httpx2.AsyncClient, servers: list[int], request: Request) -> Any:
        error, server = "was never asked", servers[0]
        for attempt in range(self.retries + 1):
            server, wait = servers[attempt % len(servers)], ""
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    status, headers, content = await self._send(client, server, request)
                if status == 200:
                    return (
                        None
                        if request.read is None
                        else request.read(_parse_json(content) if content else None)
                    )
                error = f"answered with status {status}{self._words(content)}"
                if status < 500 and status not in RETRIED_STATUSES:
                    raise Rejected(status, self._failure_text(server, request, error))
                wait = headers.get("retry-after", "")
            except TimeoutError:
                error = f"gave no answer within {self.timeout_seconds:g} seconds"
            except BadResponse as failure:
                error = f"gave an invalid response: {failure}"
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as failure:
                error = f"cannot be reached ({type(failure).__name__})"
            if attempt < self.retries:
                self.retried += 1
                logger.warning("%s; trying again", self._failure_text(server, request, error))
                await asyncio.sleep(pause_seconds(attempt, wait))
        tries = f" in {self.retries + 1} tries" if self.retries else ""
        raise EngineFailed(self._failure_text(server, request, error) + tries)

    async def _send(
        self, client: httpx2.AsyncClient, server: int, request: Request
    ) -> tuple[int, Mapping[str, str], bytes]:
        url = self.urls[server] + request.path
        body = None if request.body is None else json.dumps(request.body).encode()
        try:
            return await read_answer(client, request.method, url, content=body, max_bytes=self.max_bytes)
        except ResponseTooLong as error:
            raise BadResponse(str(error)) from error

    def _failure_text(self, server: int, request: Request, error: str) -> str:
        return f"the engine at {self.server_name(server)} {error}, asked for {request.path.partition('?')[0]}"

    def _words(self, content: bytes) -> str:
        """Return a server's error message on one line, without the key and shortened."""
        try:
            answer = _parse_json(content)
            error = answer.get("error", answer) if isinstance(answer, dict) else {}
            message = error.get("message", "") if isinstance(error, dict) else error
        except BadResponse:
            message = ""
        text = " ".join(clean_text(str(message)).split())
        if self.api_key:
            text = text.replace(self.api_key, "[secret]")
        return f" ({redact(text)[:MAX_SHOWN_CHARACTERS]})" if text else ""


def _parse_json(content: bytes) -> Any:
    try:
        return read_json(content)
    except ValueError:
        raise BadResponse("it is not JSON") from None
