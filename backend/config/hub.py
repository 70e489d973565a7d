"""Requests to the Hugging Face hub, such as for the newest commit of a dataset."""

import json
import os
import re
from collections.abc import Mapping
from http.client import HTTPException
from threading import Condition
from types import MappingProxyType
from urllib.parse import quote, urlsplit

from cachetools import TTLCache, cached

from backend.base.outgoing import Response, fetch

PARQUET_BRANCH = "refs/convert/parquet"
"""Branch in which the hub stores every public dataset as `<subset>/<split>/*.parquet`."""

MAX_REQUEST_SECONDS = 10.0
CACHE_SECONDS = 300.0
"""Seconds for which a commit is cached, because the form validates at every key press."""

MAX_CACHED_COMMITS = 64

MAX_RESPONSE_BYTES = 50_000_000
COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")


class HubError(ValueError):
    """The hub is unreachable or has no such dataset."""


@cached(TTLCache(MAX_CACHED_COMMITS, CACHE_SECONDS), condition=Condition())
def newest_commit(dataset: str) -> str:
    """Return the newest commit of the dataset's Parquet branch. Raises HubError if it is not available."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise HubError(f"HF_ENDPOINT: expected an address with https://, got {endpoint[:60]!r}")
    address = f"{endpoint}/api/datasets/{quote(dataset)}/revision/{quote(PARQUET_BRANCH, safe='')}"
    try:
        status, content = ask_hub(address, max_bytes=MAX_RESPONSE_BYTES, seconds=MAX_REQUEST_SECONDS)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise HubError(
            f"the Hugging Face hub cannot be reached ({reason}): name a revision that workers have already "
            "fetched, or upload the dataset as a file"
        ) from error
    if status in (401, 403, 404):
        raise HubError(f"the Hugging Face hub has no public dataset {dataset!r} in Parquet")
    if status >= 300:
        raise HubError(f"the Hugging Face hub responded with {status}: try again, or name a revision")
    try:
        commit = json.loads(content)["sha"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HubError("the Hugging Face hub sent an invalid response") from None
    if not isinstance(commit, str) or not COMMIT_PATTERN.fullmatch(commit):
        raise HubError("the Hugging Face hub sent an invalid response")
    return commit


def ask_hub(
    address: str, *, max_bytes: int, seconds: float, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Send a request to the hub and return the response.

    Redirects, which the hub uses for renamed repositories and large files, are followed to https:// addresses
    or to the hub itself. Raises OSError or HTTPException if the request fails.
    """
    split_address = urlsplit(address)
    hub = f"{split_address.scheme}://{split_address.netloc}/"
    return fetch(
        address,
        max_bytes=max_bytes,
        seconds=seconds,
        headers=headers,
        may_redirect_to=lambda target: target.startswith(("https://", hub)),
        uses_proxies=True,
    )
