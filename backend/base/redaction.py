"""Redaction of secrets in everything that other people may read: configs, run records, logs, answers.

`secret_errors` yields an error for each secret in a document. `redact` replaces all text that looks like a
secret, and the secrets of this process (`learn_secrets`). The token files are checked at each call, so that a
process that runs for weeks knows a token as soon as another process has created it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from backend.base.errors import FieldError, InvalidRequest
from backend.base.settings import Settings

REDACTED = "[secret]"


SECRET_PATTERNS = tuple(
    (re.compile(pattern), offset)
    for pattern, offset in (
        (r"hf_(?<!\whf_)[A-Za-z0-9]{30,}", 0),
        (r"sk-(?<!\wsk-)[A-Za-z0-9_-]{20,}", 0),
        (r"://[^/\s:@]*:[^/\s@]+(?=@)", 3),  # user and password of an address
        (r"writer\.(?<!\wwriter\.)[\w-]{1,64}\.[0-9a-f]{64}\b", 0),
        # the ticket of a one-time link, a cookie
        (r"\.(?<=\b\d{10}\.)(?:[\w-]{16,43}\.)?[0-9a-f]{64}\b", -10),
    )
)
"""Patterns of secrets, each with the offset at which the secret begins within the match.

Each pattern begins with fixed characters, because `re` searches for these twenty times as fast as for a set.
"""

SECRET_NAME_PATTERN = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|_KEY|CREDENTIALS?|CONNECTION_STRING)$", re.IGNORECASE
)
"""Names of environment variables whose values are secrets."""

MAX_SECRET_CHARACTERS = 512
"""Maximum length of a secret, in characters. The windows that are searched overlap by this length."""

WINDOW_CHARACTERS = 100_000
"""Number of characters that are searched in one call, because a search blocks all other threads."""

MIN_SECRET_CHARACTERS = 8
"""Minimum length of a secret. Shorter values may be ordinary words, whose redaction would reveal them."""

TOKEN_FILES = ("token", "viewer-token", "writer-key")
"""Names of the files in the state directory that hold the generated tokens."""

Stamp = tuple[int, int, int]
"""Inode, modification time and size of a file. They change when the file is created or replaced."""

_known: set[str] = set()
_stamp_by_token_file: dict[Path, Stamp | None] = {}
"""Stamp of each token file, or None if the file does not exist yet."""


def learn_secrets(settings: Settings, environment: Mapping[str, str] | None = None) -> None:
    """Make `redact` recognise the tokens of this installation and the passwords in its addresses."""
    environment = os.environ if environment is None else environment
    secret_values = [value for name, value in environment.items() if SECRET_NAME_PATTERN.search(name)]
    secret_values += [_password(settings.database_url), _password(settings.broker_url)]
    access_tokens = (settings.grpolab_token, settings.grpolab_viewer_token, settings.grpolab_writer_key)
    server_keys = (settings.judge_api_key, settings.reward_model_api_key, settings.engine_api_key)
    add_secrets(
        *access_tokens,
        *server_keys,
        *settings.openenv_secrets.values(),
        settings.grpolab_webhook_url,
        settings.grpolab_webhook_secret,
        *secret_values,
    )
    _stamp_by_token_file.clear()  # a process has one installation
    _stamp_by_token_file.update(dict.fromkeys(settings.state / name for name in TOKEN_FILES))
    _learn_token_files()


def _learn_token_files() -> None:
    """Add the content of token files that were created or replaced since the last check."""
    for path, known_stamp in list(_stamp_by_token_file.items()):
        if (stamp := _stamp(path)) != known_stamp:
            add_secrets(_read_text(path))
            # set last, so that no other thread skips the file before its secrets are added
            _stamp_by_token_file[path] = stamp


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def add_secrets(*values: str) -> None:
    """Add strings that `redact` will replace, including their URL-encoded forms."""
    global _known  # noqa: PLW0603 - one set for the process
    new_secrets = set[str]()
    for value in values:
        if MIN_SECRET_CHARACTERS <= len(value) <= MAX_SECRET_CHARACTERS:
            decoded = unquote(value)
            new_secrets |= {
                value,
                decoded,
                quote(value, safe=""),
                quote(decoded, safe=""),
                quote_plus(decoded),
            }
    _known |= new_secrets  # a new set, because another thread may be iterating over the old one


def redact(text: str) -> str:
    """Return the text with every secret replaced. Call this before truncating, which may split a secret."""
    _learn_token_files()
    return _redact_text(text)


def redact_document(document: Any) -> Any:
    """Return a JSON document of any depth with the secrets in all strings and field names replaced."""
    _learn_token_files()
    names: dict[Any, Any] = {}
    holder = [document]
    containers: list[Any] = [holder]
    while containers:
        container = containers.pop()
        items = list(container.items() if isinstance(container, dict) else enumerate(container))
        if isinstance(container, dict):
            container.clear()
        for key, value in items:
            if key not in names:
                names[key] = _redact_text(key) if isinstance(key, str) else key
            container[names[key]] = redacted_value = _redact_value(value)
            if isinstance(redacted_value, dict | list):
                containers.append(redacted_value)
    return holder[0]


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return _redact_text(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, list) else value


def _redact_text(text: str) -> str:
    chunks, redacted_until = [], 0
    for secret_begin, secret_end in sorted(_find_secrets(text)):
        if secret_begin >= redacted_until:
            chunks += [text[redacted_until:secret_begin], REDACTED]
        redacted_until = max(redacted_until, secret_end)
    return "".join([*chunks, text[redacted_until:]]) if chunks else text


def _find_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the (begin, end) offsets of every secret. The ranges may overlap."""
    if len(text) < MIN_SECRET_CHARACTERS and "://" not in text:
        return
    for secret in _known:
        secret_begin = text.find(secret)
        while secret_begin >= 0:
            yield secret_begin, secret_begin + len(secret)
            secret_begin = text.find(secret, secret_begin + 1)
    match_ends = dict.fromkeys(SECRET_PATTERNS, 0)
    for start in range(0, len(text), WINDOW_CHARACTERS):  # other threads can run between windows
        for pattern, offset in SECRET_PATTERNS:
            for candidate in pattern.finditer(text, start, start + WINDOW_CHARACTERS + MAX_SECRET_CHARACTERS):
                if candidate.start() < match_ends[pattern, offset]:
                    continue  # part of a longer secret that began earlier
                if (match := pattern.match(text, candidate.start())) is not None:
                    match_ends[pattern, offset] = match.end()
                    yield match.start() + offset, match.end()


def secret_errors(document: Any, path: str = "") -> Iterator[FieldError]:
    """Yield an error for each string that looks like a secret. The error does not contain the string."""
    _learn_token_files()
    yield from _secret_errors(document, path)


def _secret_errors(document: Any, path: str) -> Iterator[FieldError]:
    if isinstance(document, str) and next(_find_secrets(document), None):
        reason = "looks like a secret: set it in the environment of the service or worker, never in a run"
        yield FieldError(path, reason)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from _secret_errors(str(key), path)
            yield from _secret_errors(value, f"{path}.{key}" if path else str(key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from _secret_errors(value, f"{path}.{number}")


def refuse_secrets(text: str, path: str) -> None:
    """Raise InvalidRequest if a text looks like a secret."""
    if errors := list(secret_errors(text, path)):
        raise InvalidRequest(errors)


def _password(url: str) -> str:
    """Return the password of an address, even if it is not percent-encoded, or "" if there is none."""
    match = re.search(r"://[^/:@]*:(.+)@", url)
    return match[1] if match else ""


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
