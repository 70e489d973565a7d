"""Logging for every process: one line per event, as text or as JSON (`LOG_FORMAT`).

    time level logger message        always; the time is UTC, to the millisecond
    request_id                       while a request is answered: the answer's X-Request-ID
    run_id attempt                   while a run is supervised
    method path status ms            the access log
    exception                        a traceback

Secrets are replaced first, then long messages are truncated, then control characters are escaped.
"""

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

from backend.base.redaction import learn_secrets, redact
from backend.base.settings import Settings

APPLICATION_LOGGERS = ("backend", "worker", "uvicorn", "celery")
"""Loggers with the level INFO. All others have the level WARNING."""

MAX_MESSAGE_CHARACTERS = 10_000
MAX_EXCEPTION_CHARACTERS = 50_000

CONTROL_CHARACTER_PATTERN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that can move a terminal's cursor, begin a new line or reverse a text's direction."""

STANDARD_RECORD_FIELDS = set(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",
    "taskName",
    "data",
}

_about: ContextVar[dict[str, Any]] = ContextVar("about", default={})  # noqa: B039 - replaced, never changed

logger = logging.getLogger(__name__)


def set_up_logging(settings: Settings, *, is_json: bool | None = None, stream: TextIO | None = None) -> None:
    """Write all log messages and uncaught errors of this process to `stream`, by default standard error."""
    learn_secrets(settings)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(is_json=settings.log_format == "json" if is_json is None else is_json))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in APPLICATION_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    sys.excepthook = _report
    threading.excepthook = _report_thread


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add fields to every line that this thread or task logs inside the `with` block."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def request_id() -> str:
    """Return the id of the request in progress, or "" outside of a request."""
    return str(_about.get().get("request_id", ""))


def escape_controls(text: str) -> str:
    """Return the text as one line, with control characters escaped so that they cannot affect a terminal."""
    return CONTROL_CHARACTER_PATTERN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class LineFormatter(logging.Formatter):
    """Formats one line per event. In text format, a traceback follows on indented lines."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of this event."""
        time_text = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time_text.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shorten_middle(redact(record.getMessage()), MAX_MESSAGE_CHARACTERS),
        }
        line |= _about.get()
        if record.exc_info:
            traceback_text = redact(self.formatException(record.exc_info))
            line["exception"] = _shorten_middle(traceback_text, MAX_EXCEPTION_CHARACTERS)
        return self._json(record, line) if self._is_json else self._text(line)

    @staticmethod
    def _json(record: logging.LogRecord, line: dict[str, Any]) -> str:
        extras = {name: value for name, value in vars(record).items() if name not in STANDARD_RECORD_FIELDS}
        extras = {name: redact(value) if isinstance(value, str) else value for name, value in extras.items()}
        # ASCII, so control characters are escaped
        return json.dumps(extras | line, default=lambda value: redact(str(value)))

    @staticmethod
    def _text(line: dict[str, Any]) -> str:
        head_names = ("time", "level", "logger", "message", "exception")
        context = " ".join(f"{name}={value}" for name, value in line.items() if name not in head_names)
        head = f"{line['time']} {line['level'].upper():<7} {line['logger']}: {line['message']}"
        lines = [escape_controls(head + (f" [{context}]" if context else ""))]
        lines += [
            f"    | {escape_controls(trace_line)}" for trace_line in line.get("exception", "").splitlines()
        ]
        return "\n".join(lines)


def _shorten_middle(text: str, limit: int) -> str:
    """Return only the start and the end of a long text, because a traceback ends with the error."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]} [{len(text) - limit:,} characters left out] {text[-limit // 2 :]}"


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logger.critical("ended by an unexpected error", exc_info=(kind, error, trace))


def _report_thread(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_value is not None:
        name = failure.thread.name if failure.thread else "a thread"
        logger.critical(
            "%s ended by an unexpected error",
            name,
            exc_info=(failure.exc_type, failure.exc_value, failure.exc_traceback),
        )
