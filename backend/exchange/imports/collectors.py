"""Undo what log collectors add to each printed line: a time, a process or a container, or JSON around it."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any

import orjson

from backend.exchange.imports.lines import MAX_DOCUMENT_BYTES, document
from backend.exchange.imports.table import BadLog

MAX_LINE_BYTES = 1 << 20
"""Maximum length of a line that is unwrapped; longer lines are kept."""
HEAD_BYTES = 65_536
DOCKER_BYTES = 16_000
"""Length from which Docker splits a line."""
MIN_LINES = 8
MAX_LINES = 400
"""Numbers of lines that are looked at, which must nearly all be wrapped in the same way."""
MIN_SHARE = 0.95
MAX_TASK_SHARE = 0.125
"""Maximum number of different tasks as a share of lines, which tells `0: ` of srun from a step."""

_TIME = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_NO_STEP = rb"(?!(?:step|iter|epoch|update)[\w-]{0,10}\d)"
_TASK = re.compile(_NO_STEP + rb"(?: {0,3}|[A-Za-z][\w.-]{0,60})\d{1,4}: ")
"""Pattern of a task of srun or a host of pdsh."""
_SERVICE = re.compile(_NO_STEP + rb"(?:[\w.-]{1,80}-\d{1,4}|\d{1,4}\|[\w.-]{1,80}) {1,40}\| ")
"""Pattern of a service of Docker Compose or pm2, which also looks like the first cell of a table."""
_PREFIXES = (
    # times of Kubernetes, CRI, GitHub and `ts`, also in brackets; loguru's `| INFO |` after one is kept
    re.compile(
        rb"\[?\d{4}-\d\d-\d\d[T ]" + _TIME + rb"(?:Z|[+-]\d\d:?\d\d)?\]? (?:std(?:out|err) [FP] )?(?! ?\|)"
    ),
    re.compile(rb"[A-Z][a-z]{2} [ \d]\d " + _TIME + rb" (?:[\w.-]{1,80} [\w./@-]{1,80}(?:\[\d{1,9}\])?: )?"),
    re.compile(rb"\[?" + _TIME + rb"\]? (?! ?\|)"),
    _SERVICE,
    re.compile(rb"\[pod/[\w./-]{1,200}\] "),
    _TASK,
)
_LOGGER_KEYS = {
    "asctime", "created", "exc_info", "exception", "filename", "func_name", "funcName", "host", "hostname",
    "level", "levelname", "levelno", "lineno", "logger", "logger_name", "module", "msecs", "name", "pathname",
    "pid", "process", "processName", "rank", "relativeCreated", "severity", "stack_info", "taskName",
    "thread", "thread_id", "thread_name", "threadName", "time", "timestamp",
}  # fmt: skip
"""Attributes of a record of Python's logging and of structlog."""
_KEYS_BY_TEXT = {
    "data": {"stream_name", "time"},
    "@message": {"@ingestionTime", "@log", "@logStream", "@ptr", "@timestamp"},
    "log": {
        "@timestamp", "_p", "attrs", "container_id", "container_name", "date", "docker", "host", "kubernetes",
        "logtag", "source", "stream", "tag", "time",
    },
    "text": {"record"},
    "message": {"ingestionTime", "logStreamName", "eventId"} | _LOGGER_KEYS,
    "event": _LOGGER_KEYS,
    "textPayload": {
        "insertId", "labels", "logName", "receiveTimestamp", "resource", "severity", "sourceLocation",
        "spanId", "timestamp", "trace", "traceSampled",
    },
    "line": {"date", "fields", "id", "labels", "timestamp"},
}  # fmt: skip
"""Other keys of a line's object by the key of its text: in Kaggle, in Docker and Fluent Bit, in
loguru, in CloudWatch and python-json-logger, in structlog, in Google Cloud, and in Grafana.
"""
_ENTRIES = re.compile(
    rb'\s*(?:\{\s*"events"\s*:\s*)?\[\s*\{.*?"(?:textPayload|jsonPayload|line|@?message)"\s*:', re.DOTALL
)
"""Pattern of the start of a document with a list of entries, as Google Cloud, AWS and Grafana export it."""

_TEXT_COLUMNS = {"@message", "content", "line", "log", "message", "msg", "textpayload"}
_TIME_COLUMNS = ("timestamp", "@timestamp", "time", "date")
_ENTRY_COLUMNS = {
    *_TIME_COLUMNS, "@log", "@logstream", "container", "host", "id", "ingestiontime", "insertid", "labels",
    "level", "logname", "logstreamname", "name", "pod", "receivetimestamp", "service", "severity", "stream",
    "tsns",
}  # fmt: skip
"""Columns of an exported table of entries: that of the texts, and others."""

Unwrap = Callable[[bytes], bytes]


def unwrapped_lines(file: IO[bytes]) -> Iterator[bytes] | None:
    """Return the text of a file without what a collector added, or None if there is nothing."""
    file.seek(0)
    head = file.read(HEAD_BYTES)
    if unwrap := _find_wrapper(head):
        return _unwrap_lines(file, unwrap)
    if _ENTRIES.match(head):
        return _unwrap_document(file)
    # a table of entries, such as an export of Grafana, CloudWatch or Datadog
    header = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    names = {name.strip(' "\r').lower() for name in header.split(",")}
    if len(names & _TEXT_COLUMNS) == 1 and names - _TEXT_COLUMNS and names <= _TEXT_COLUMNS | _ENTRY_COLUMNS:
        return _unwrap_csv(file)
    return None


def _unwrap_csv(file: IO[bytes]) -> Iterator[bytes] | None:
    """Return the texts of a table of entries as lines in the order of their times."""
    if file.seek(0, io.SEEK_END) > MAX_DOCUMENT_BYTES:
        return None
    file.seek(0)
    rows = csv.reader(line.decode("utf-8-sig", errors="replace") for line in file)
    try:
        header = [name.strip().lower() for name in next(rows)]
        entries = [row for row in rows if len(row) == len(header)]
    except (csv.Error, StopIteration):
        return None
    column = next((number for number, name in enumerate(header) if name in _TEXT_COLUMNS), None)
    if column is None:
        return None
    time = next((number for number, name in enumerate(header) if name in _TIME_COLUMNS), None)
    texts = [f"{row[column]}\n".encode(errors="replace") for row in entries]
    return _in_order(texts, [entry[time] for entry in entries[:1] + entries[-1:]] if time is not None else [])


def _unwrap_document(file: IO[bytes]) -> Iterator[bytes] | None:
    """Return the texts of a list of entries as lines in the order of their times, which may be descending."""
    try:
        entries = document(file)
    except BadLog:
        return None
    entries = entries["events"] if isinstance(entries, dict) else entries
    if not isinstance(entries, list):
        return None
    texts = [text for entry in entries if (text := _text_of(entry)) is not None]
    if len(entries) < MIN_LINES or len(texts) < MIN_SHARE * len(entries):
        return None
    times = [
        str(entry.get("timestamp", entry.get("@timestamp")))
        for entry in (entries[0], entries[-1])
        if isinstance(entry, dict)
    ]
    return _in_order(texts, times)


def _in_order(texts: list[bytes], times: list[str]) -> Iterator[bytes]:
    """Return texts in the order of their times, given those of the first and the last."""
    return iter(texts if times == sorted(times) else texts[::-1])


def _find_wrapper(head: bytes) -> Unwrap | None:
    """Return a function that undoes what a collector added to each line, or None if there is nothing."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()][:MAX_LINES]
    if len(lines) < MIN_LINES:
        return None
    needed = MIN_SHARE * len(lines)
    if sum(_text_in_json(line) is not None for line in lines) >= needed:
        return _unwrap_json
    for pattern in _PREFIXES:
        prefixes = [match[0] for line in lines if (match := pattern.match(line))]
        is_counter = pattern is _TASK and len(set(prefixes)) > MAX_TASK_SHARE * len(lines)
        if len(prefixes) >= (len(lines) if pattern is _SERVICE else needed) and not is_counter:
            return partial(_without_prefix, pattern)
    return None


def _without_prefix(pattern: re.Pattern[bytes], line: bytes) -> bytes:
    match = pattern.match(line)
    return line[match.end() :] if match else line


def _unwrap_lines(file: IO[bytes], unwrap: Unwrap) -> Iterator[bytes]:
    """Yield the text of a file, line by line, without what the collector added."""
    file.seek(0)
    is_start = True
    while line := file.readline(MAX_LINE_BYTES):
        is_end = len(line) < MAX_LINE_BYTES
        yield unwrap(line) if is_start and is_end else line
        is_start = is_end


def _unwrap_json(line: bytes) -> bytes:
    text = _text_in_json(line)
    return (b"" if line.strip() in {b"[", b"]"} else line) if text is None else text


def _text_in_json(line: bytes) -> bytes | None:
    """Return the text in the object of a line, with its line break, or None if it is no such object."""
    try:
        return _text_of(orjson.loads(line.strip(b"[,] \t\r\n")))
    except orjson.JSONDecodeError:
        return None


def _text_of(row: Any) -> bytes | None:
    """Return the text of an entry, with its line break, or None if it is no entry of a collector."""
    if not isinstance(row, dict):
        return None
    if isinstance(payload := row.get("jsonPayload"), dict):  # an object that was printed to Google Cloud
        is_message = payload.keys() - _LOGGER_KEYS == {"message"}
        try:
            text = payload["message"] if is_message else orjson.dumps(payload).decode()
        except TypeError:  # nested too deeply
            return None
        row = {"textPayload": text} | {key: value for key, value in row.items() if key != "jsonPayload"}
    for key, other_keys in _KEYS_BY_TEXT.items():
        text = row.get(key)
        is_alone = len(row) == 1 and key != "message"
        if isinstance(text, str) and row.keys() - {key} <= other_keys and not is_alone:
            is_continued = key == "data" or len(text) >= DOCKER_BYTES or text.endswith("\n")
            return text.encode(errors="replace") + (b"" if is_continued else b"\n")
    return None
