"""Checks that the sampling servers of ENGINE_URL answer this machine, in one sentence for the launch form.

Only the addresses that the operator has set are contacted, redirects are not followed, and nothing is sent.
"""

import http.client
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from backend.base.outgoing import fetch
from backend.base.settings import Settings
from backend.config.run import RunConfig

SECONDS = 1.5
"""Time that a server has to answer."""
REMEMBERED_SECONDS = 10.0
"""Seconds for which an answer is reused."""

_known: dict[str, tuple[float, str]] = {}
_lock = threading.Lock()


def engine_warnings(config: RunConfig, settings: Settings) -> list[str]:
    """Return a sentence if the run needs sampling servers that do not answer; nothing for another engine."""
    urls = settings.engine_urls
    if config.sampling.engine.type != "server" or not urls:
        return []
    reason_by_url = dict(zip(urls, _unreachable_reasons(urls), strict=True))
    if not (
        silent := [f"{_redact_address(url)} ({reason})" for url, reason in reason_by_url.items() if reason]
    ):
        return []
    servers = f"{len(silent)} of {len(urls)} sampling servers cannot be reached from the service"
    why = f"{', '.join(silent)}; a run fails if none answers its worker"
    return [f"sampling.engine: {servers}: {why}"]


def _unreachable_reasons(urls: Sequence[str]) -> list[str]:
    """Return why each server cannot be used; "" for a server that answers."""
    with _lock:  # one form asks at a time: the next one is told the same
        now = time.monotonic()
        due = [url for url in urls if url not in _known or now - _known[url][0] > REMEMBERED_SECONDS]
        if due:
            with ThreadPoolExecutor(min(8, len(due))) as threads:
                for url, reason in zip(due, threads.map(_ask, due), strict=True):
                    _known[url] = (time.monotonic(), reason)
        return [_known[url][1] for url in urls]


def _ask(url: str) -> str:
    try:
        status = fetch(f"{url.rstrip('/')}/health", max_bytes=0, seconds=SECONDS).status
    except TimeoutError:
        return f"no answer within {SECONDS:g} s"
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or type(reason).__name__).lower()
    return f"it answers with status {status}" if status >= http.client.INTERNAL_SERVER_ERROR else ""


def _redact_address(url: str) -> str:
    """Return the address without anything secret that it may contain."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
