"""Secrets have no place in a run's config: it is shown to everybody who may read the run."""

import re
from collections.abc import Iterator
from typing import Any

from backend.errors import FieldError

SECRET = re.compile(r"\bhf_[A-Za-z0-9]{30,}|\bsk-[A-Za-z0-9_-]{20,}|://[^/\s:@]+:[^/\s@]+@")


def secret_errors(document: Any, path: str = "") -> Iterator[FieldError]:
    """One error for every text that looks like a token or an address with a password; it is not repeated."""
    if isinstance(document, str) and SECRET.search(document):
        yield FieldError(path, "looks like a secret: give it to the worker's environment, never to a config")
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from secret_errors(value, f"{path}.{key}" if path else str(key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from secret_errors(value, f"{path}.{number}")
