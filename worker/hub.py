"""Downloads from the Hugging Face hub, limited to the listed size and the free disk space."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import get_session, snapshot_download
from huggingface_hub.errors import DryRunError
from huggingface_hub.utils._xet import abort_xet_session
from huggingface_hub.utils.tqdm import tqdm

from backend.base.text import size_text
from backend.catalog.policies.hub_models import cache_directory
from backend.storage.faults import free_bytes

UNLISTED_BYTES = 100_000_000
"""Bytes by which a download may exceed the listed size, because its protocol, xet, fetches files in
blocks."""

MAX_ANSWER_BYTES = 64_000_000
"""Maximum bytes of all answers about one repository together, which are held in memory."""

RESERVE_BYTES = 100_000_000
"""Bytes left free on the disk of the cache."""


class TooLarge(OSError):
    """A download that does not fit on the disk, or is larger than the hub lists; the message says which."""


def fetched(name: str, *, patterns: Sequence[str], revision: str | None, repo_type: str = "model") -> Path:
    """Return the directory of a repository's files, after downloading those that the cache lacks.

    Raises TooLarge and the errors of `snapshot_download`. Nearly all are OSError.
    """
    cache = cache_directory()
    session = get_session()
    session.event_hooks = session.event_hooks | {"response": [_answer_reader()]}
    try:
        files = snapshot_download(
            name,
            repo_type=repo_type,
            revision=revision,
            allow_patterns=list(patterns),
            cache_dir=cache,
            dry_run=True,
        )
        listed = sum(file.file_size or 0 for file in files if file.will_download)
    except DryRunError:  # the hub is unreachable, and the cache may have all files
        listed = 0
    _check_room(cache, listed)
    folder = snapshot_download(
        name,
        repo_type=repo_type,
        revision=revision,
        allow_patterns=list(patterns),
        cache_dir=cache,
        tqdm_class=_counter(listed),
    )
    return Path(folder)


def _answer_reader() -> Callable[[Any], None]:
    """Return a function that reads every answer except files, whose bytes are counted as they are written."""
    left = MAX_ANSWER_BYTES

    def read(response: Any) -> None:
        nonlocal left
        is_listing = "/api/" in response.request.url.path.partition("/resolve/")[0]
        if response.status_code < 300 and not is_listing:
            return
        blocks = []
        for block in response.iter_bytes():
            left -= len(block)
            if left < 0:
                raise TooLarge(f"the hub answers with more than {size_text(MAX_ANSWER_BYTES)} of listings")
            blocks.append(block)
        response._content = b"".join(blocks)  # noqa: SLF001 - what the response's own `read` keeps

    return read


def _check_room(cache: Path, listed: int) -> None:
    free = free_bytes(cache)
    if listed and free is not None and free < listed + UNLISTED_BYTES + RESERVE_BYTES:
        raise TooLarge(f"it has {size_text(listed)} to download, and {size_text(free)} are free on {cache}")


def _counter(listed: int) -> type[tqdm]:
    """Return a progress bar class that counts bytes before they are written, and raises TooLarge beyond
    the limit.
    """

    class Counter(tqdm):
        taken = 0.0

        def update(self, n: float | None = 1) -> bool | None:
            self.taken += n or 0
            if self.taken > listed + UNLISTED_BYTES:
                abort_xet_session()  # which calls this from threads that go on after an error
                raise TooLarge(f"the hub sends more than the {size_text(listed)} that it lists")
            return super().update(n)

    return Counter
