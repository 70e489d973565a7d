"""Download from the Hugging Face hub within the listed size and the free disk space."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import set_client_factory, snapshot_download
from huggingface_hub.errors import DryRunError
from huggingface_hub.utils._http import default_client_factory
from huggingface_hub.utils._xet import abort_xet_session
from huggingface_hub.utils.tqdm import tqdm

from backend.base.text import size_text
from backend.catalog.policies.hub_models import cache_directory
from backend.storage.faults import free_bytes

UNLISTED_BYTES = 100_000_000
"""Bytes by which a download may exceed the listed size, because the xet protocol fetches files in blocks."""

MAX_ANSWER_BYTES = 64_000_000
"""Maximum total size of all answers about one repository, in bytes, because they are held in memory."""

RESERVE_BYTES = 100_000_000
"""Bytes that stay free on the disk of the cache."""

FIRST_PATH = "grpolab_first_path"


class TooLarge(OSError):
    """Raised with the reason if a download does not fit on the disk or is larger than the hub lists."""


def fetch_files(
    name: str, *, patterns: Sequence[str], revision: str | None, repo_type: str = "model"
) -> Path:
    """Download the files of a repository that the cache lacks, and return the directory of all its files.

    Raise TooLarge and the errors of `snapshot_download`. Nearly all are OSError.
    """
    with _bounded_answers():
        return _fetch_files(name, patterns=patterns, revision=revision, repo_type=repo_type)


@contextmanager
def _bounded_answers() -> Iterator[None]:
    """Limit the answers of every client that the library creates in the block, even if it replaces a
    failed one.
    """
    read_bounded = _answer_reader()

    def bounded_client() -> Any:
        client = default_client_factory()
        hooks = client.event_hooks
        client.event_hooks = {
            "request": [*hooks["request"], _remember_path],
            "response": [*hooks["response"], read_bounded],
        }
        return client

    set_client_factory(bounded_client)
    try:
        yield
    finally:
        set_client_factory(default_client_factory)


def _fetch_files(name: str, *, patterns: Sequence[str], revision: str | None, repo_type: str) -> Path:
    cache = cache_directory()
    try:
        files = snapshot_download(
            name,
            repo_type=repo_type,
            revision=revision,
            allow_patterns=list(patterns),
            cache_dir=cache,
            dry_run=True,
        )
        listed_bytes = sum(file.file_size or 0 for file in files if file.will_download)
    except DryRunError:  # The hub is unreachable, and the cache may have all files.
        listed_bytes = 0
    _check_room(cache, listed_bytes)
    folder = snapshot_download(
        name,
        repo_type=repo_type,
        revision=revision,
        allow_patterns=list(patterns),
        cache_dir=cache,
        tqdm_class=_make_counter(listed_bytes),
    )
    return Path(folder)


def _remember_path(request: Any) -> None:
    """Keep the requested path, because a redirect, whose request has the same extensions, may lead
    anywhere.
    """
    request.extensions.setdefault(FIRST_PATH, request.url.path)


def _answer_reader() -> Callable[[Any], None]:
    """Return a function that reads every answer except files, whose bytes are counted when they are
    written.
    """
    left = MAX_ANSWER_BYTES

    def read(response: Any) -> None:
        nonlocal left
        if response.status_code < 300 and "/resolve/" in response.request.extensions[FIRST_PATH]:
            return
        blocks = []
        for block in response.iter_bytes():
            left -= len(block)
            if left < 0:
                raise TooLarge(f"the hub answers with more than {size_text(MAX_ANSWER_BYTES)} of listings")
            blocks.append(block)
        response._content = b"".join(blocks)  # noqa: SLF001 - the same attribute as the response's `read` sets

    return read


def _check_room(cache: Path, listed_bytes: int) -> None:
    available_bytes = free_bytes(cache)
    if (
        listed_bytes
        and available_bytes is not None
        and available_bytes < listed_bytes + UNLISTED_BYTES + RESERVE_BYTES
    ):
        raise TooLarge(
            f"it has {size_text(listed_bytes)} to download, "
            f"and {size_text(available_bytes)} are free on {cache}"
        )


def _make_counter(listed_bytes: int) -> type[tqdm]:
    """Return a progress bar class that counts bytes before they are written.

    It raises TooLarge if they exceed the limit.
    """

    class Counter(tqdm):
        received_bytes = 0.0

        def update(self, n: float | None = 1) -> bool | None:
            self.received_bytes += n or 0
            if self.received_bytes > listed_bytes + UNLISTED_BYTES:
                abort_xet_session()  # xet calls this method from threads that continue after an error
                raise TooLarge(f"the hub sends more than the {size_text(listed_bytes)} that it lists")
            return super().update(n)

    return Counter
