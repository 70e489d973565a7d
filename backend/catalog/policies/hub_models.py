"""Read the config and weight shapes of a Hugging Face model without downloading its weights.

They come from the local cache of the hub or from the network: config.json, the index of the weights and the
first bytes of each weight file. Responses of the hub are untrusted, so their size and time are limited.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote

from backend.catalog.policies.directories import MAX_CONFIG_BYTES, parse_config, read_config
from backend.catalog.policies.weight_files import (
    MAX_FILES,
    MAX_HEADER_BYTES,
    UnreadableWeights,
    Weight,
    join_headers,
    parse_header,
    read_weights,
)
from backend.config.hub import ask_hub

WEIGHT_INDEX_FILE = "model.safetensors.index.json"
SINGLE_WEIGHT_FILE = "model.safetensors"

MAX_REQUEST_SECONDS = 8.0
"""Time limit for all requests about a model, in seconds."""

FAILURE_SECONDS = 60.0
"""Seconds until a failed request is repeated. The form validates at every key press."""

MAX_CACHED_ANSWERS = 64
FIRST_READ_BYTES = 2**18
"""Number of bytes that are first read from a weight file. The headers of most files are shorter."""

MAX_CONCURRENT_REQUESTS = 8
"""Maximum number of concurrent requests."""


class HubModelError(ValueError):
    """The hub is unreachable or has no such model."""


class HubModel(NamedTuple):
    """The config of a model and the shapes of its weights."""

    config: dict[str, Any]
    weights: tuple[Weight, ...]


def hub_model(name: str, commit: str) -> HubModel:
    """Return a model at a commit, which never changes. Raises HubModelError with the reason of a failure."""
    with _one_at_a_time:
        key = (name, commit)
        cached_answer = _answers.get(key)
        if cached_answer is None or (
            isinstance(cached_answer.answer, str) and time.monotonic() > cached_answer.valid_until
        ):
            _answers.pop(key, None)
            cached_answer = _answers[key] = _cached_answer(name, commit)
            while len(_answers) > MAX_CACHED_ANSWERS:
                del _answers[next(iter(_answers))]
    if isinstance(cached_answer.answer, str):
        raise HubModelError(cached_answer.answer)
    return cached_answer.answer


class _CachedResponse(NamedTuple):
    answer: HubModel | str
    """The model, or the reason why it is not available."""
    valid_until: float
    """Monotonic time until which a failure is cached."""


_answers: dict[tuple[str, str], _CachedResponse] = {}
_one_at_a_time = Lock()


def _cached_answer(name: str, commit: str) -> _CachedResponse:
    try:
        return _CachedResponse(cached_model(name, commit) or _HubRequests(name, commit).model(), 0.0)
    except (HubModelError, UnreadableWeights) as error:
        return _CachedResponse(str(error), time.monotonic() + FAILURE_SECONDS)


def cache_directory() -> Path:
    """Return the directory in which huggingface_hub caches downloaded files."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def cached_model(name: str, commit: str) -> HubModel | None:
    """Return the model from the cache of this machine, or None if it is missing or incomplete."""
    directory = cache_directory() / f"models--{name.replace('/', '--')}" / "snapshots" / commit
    config = read_config(directory)
    if config is None:
        return None
    files = _weight_files(read_config(directory, WEIGHT_INDEX_FILE))
    if not all((directory / file).is_file() for file in files):
        return None
    return HubModel(config, read_weights(directory))


def _weight_files(index: Mapping[str, Any] | None) -> list[str]:
    """Return the weight files that an index names, or the single file if there is no index."""
    if index is None:
        return [SINGLE_WEIGHT_FILE]
    files_by_weight = index.get("weight_map")
    files = (
        set(files_by_weight.values())
        if isinstance(files_by_weight, dict) and _are_file_names(files_by_weight.values())
        else set()
    )
    if not 0 < len(files) <= MAX_FILES:
        raise HubModelError(f"{WEIGHT_INDEX_FILE} names no weight files")
    return sorted(files)


def _are_file_names(values: Any) -> bool:
    return all(
        isinstance(value, str) and value.isascii() and value.endswith(".safetensors") for value in values
    )


class _HubRequests:
    """Requests to the hub about one model, with MAX_REQUEST_SECONDS in total."""

    def __init__(self, name: str, commit: str) -> None:
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        if not endpoint.startswith(("https://", "http://")):
            raise HubModelError(f"HF_ENDPOINT: expected an address with https://, got {endpoint[:60]!r}")
        self.name = name
        self.base = f"{endpoint}/{quote(name)}/resolve/{commit}"
        self.deadline = time.monotonic() + MAX_REQUEST_SECONDS

    def model(self) -> HubModel:
        """Request and return the model. Raises HubModelError or UnreadableWeights."""
        config = parse_config(self._read("config.json", MAX_CONFIG_BYTES) or b"")
        if config is None:
            raise HubModelError(
                f"the hub has no public model {self.name!r} with a config.json at this commit"
            )
        index = self._read(WEIGHT_INDEX_FILE, MAX_HEADER_BYTES)
        files = _weight_files(None if index is None else _json_object(index))
        return HubModel(config, join_headers(self._headers(files)))

    def _headers(self, files: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
        with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as pool:
            return list(zip(files, pool.map(self._header, files), strict=True))

    def _header(self, file: str) -> dict[str, Any]:
        content_start = self._read(file, FIRST_READ_BYTES)
        if content_start is None:
            raise HubModelError(f"the hub has no {file[:80]} of {self.name!r} at this commit")
        header_end = 8 + int.from_bytes(content_start[:8], "little")
        if len(content_start) < 8 or not 10 <= header_end <= MAX_HEADER_BYTES + 8:
            raise UnreadableWeights(f"{file[:80]} has no header of a safetensors file")
        content = content_start if header_end <= len(content_start) else self._read(file, header_end) or b""
        return parse_header(content[8:header_end], file)

    def _read(self, file: str, limit: int) -> bytes | None:
        """Return at most the first `limit` bytes of a file, or None if it does not exist or is not public."""
        address, headers = f"{self.base}/{quote(file)}", {"Range": f"bytes=0-{limit - 1}"}
        try:
            status, content = ask_hub(address, max_bytes=limit, seconds=self._seconds_left(), headers=headers)
        except TimeoutError as error:
            raise self._timeout_error() from error
        except (OSError, HTTPException) as error:
            raise HubModelError(
                f"the Hugging Face hub cannot be reached ({getattr(error, 'reason', error)}): "
                f"the memory that {self.name!r} takes is unknown until its files are here"
            ) from error
        if status in (401, 403, 404):
            return None
        if status >= 300:
            raise HubModelError(f"the Hugging Face hub responded with {status}: its size is unknown")
        return content

    def _seconds_left(self) -> float:
        """Return the remaining time in seconds. Raises HubModelError after the deadline."""
        remaining_seconds = self.deadline - time.monotonic()
        if remaining_seconds <= 0:
            raise self._timeout_error()
        return remaining_seconds

    def _timeout_error(self) -> HubModelError:
        return HubModelError(
            f"the Hugging Face hub did not describe {self.name!r} within {MAX_REQUEST_SECONDS:.0f} seconds"
        )


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HubModelError(f"{WEIGHT_INDEX_FILE} is not JSON") from error
    if not isinstance(document, dict):
        raise HubModelError(f"{WEIGHT_INDEX_FILE} is not a JSON object")
    return document
