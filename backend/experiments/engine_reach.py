"""Check whether the sampling servers of ENGINE_URL respond, and report failures in the launch form.

Only the addresses that the operator has configured are contacted, redirects are not followed, and no data are
sent.
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

TIMEOUT_SECONDS = 1.5
"""Timeout of a request, in seconds."""
CACHE_SECONDS = 10.0
"""Number of seconds for which a result is cached."""

_known: dict[str, tuple[float, str]] = {}
_lock = threading.Lock()


def engine_warnings(config: RunConfig, settings: Settings) -> list[str]:
    """Return a warning if the run uses sampling servers that do not respond; empty for other engines."""
    urls = settings.engine_urls
    if config.sampling.engine.type != "server" or not urls:
        return []
    reason_by_url = dict(zip(urls, _unreachable_reasons(urls), strict=True))
    if not (
        unreachable_urls := [
            f"{_redact_address(url)} ({reason})" for url, reason in reason_by_url.items() if reason
        ]
    ):
        return []
    servers = f"{len(unreachable_urls)} of {len(urls)} sampling servers cannot be reached from the service"
    consequence = f"{', '.join(unreachable_urls)}; a run fails if none answers its worker"
    return [f"sampling.engine: {servers}: {consequence}"]


def _unreachable_reasons(urls: Sequence[str]) -> list[str]:
    """Return the reason why each server cannot be used; empty for a server that responds."""
    with _lock:  # one check at a time; the next request uses the cached results
        now = time.monotonic()
        expired_urls = [url for url in urls if url not in _known or now - _known[url][0] > CACHE_SECONDS]
        if expired_urls:
            with ThreadPoolExecutor(min(8, len(expired_urls))) as threads:
                for url, reason in zip(expired_urls, threads.map(_query_server, expired_urls), strict=True):
                    _known[url] = (time.monotonic(), reason)
        return [_known[url][1] for url in urls]


def _query_server(url: str) -> str:
    try:
        status = fetch(f"{url.rstrip('/')}/health", max_bytes=0, seconds=TIMEOUT_SECONDS).status
    except TimeoutError:
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or type(reason).__name__).lower()
    return f"it answers with status {status}" if status >= http.client.INTERNAL_SERVER_ERROR else ""


def _redact_address(url: str) -> str:
    """Return the address without credentials, path and query."""
    url_parts = urlsplit(url)
    return f"{url_parts.scheme}://{url_parts.hostname}" + (f":{url_parts.port}" if url_parts.port else "")
