"""Sandbox operations that convert parts of binary logs to numbers.

An answer contains the values of a part as base64 of packed numbers, which the importing process validates.
"""

import json
import math
import re
import struct
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from backend.base.sandbox.operation import Operation, Request
from backend.exchange.imports import leveldb_log, tfrecord
from backend.exchange.imports.protobuf import Value, fields, float32, float64, to_signed, varint

MAX_RUNS = 100
"""Maximum number of runs in one import."""
MAX_TEXT = 100_000
"""Maximum size of a config that is passed on, in bytes."""
MAX_PART_NAMES = 5_000


class Point(NamedTuple):
    """A value of a metric."""

    name: str
    step: int
    value: float
    time: float = math.nan
    """Time of the value in Unix time."""


class LogPart:
    """The contents of a part of a log."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._numbers, self._steps = array("i"), array("q")
        self._values, self._times = array("d"), array("d")
        self.facts: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add(self, point: Point) -> None:
        """Add a value, unless its step does not fit in 64 bits."""
        if not -(2**63) <= point.step < 2**63:
            return
        name = point.name
        if name not in self._names:
            name = name.encode(errors="replace").decode()  # a lone surrogate cannot be stored
        number = self._names.setdefault(name, len(self._names))
        if len(self._names) > MAX_PART_NAMES:
            raise ValueError(f"more than {MAX_PART_NAMES:,} names of metrics")
        self._numbers.append(number)
        self._steps.append(point.step)
        self._values.append(point.value)
        self._times.append(point.time)

    def answer(self, used_bytes: int) -> dict[str, Any]:
        """Return the answer for a part, of which the first `used_bytes` bytes were read."""
        columns = self._numbers, self._steps, self._values, self._times
        packed_columns = [b64encode(column.tobytes()).decode() for column in columns]
        return {
            "used": used_bytes,
            "names": list(self._names),
            "columns": packed_columns,
            "facts": self.facts,
        }


def read_part(
    framed_records: Iterator[tfrecord.Record], add_record: Callable[[LogPart, bytes], None]
) -> dict[str, Any]:
    """Return the answer for all complete records of a part."""
    log_part, used_bytes = LogPart(), 0
    for content, end in framed_records:
        add_record(log_part, content)
        used_bytes = end
    return log_part.answer(used_bytes)


# ---------------------------------------------------------------- TensorBoard

DT_FLOAT, DT_DOUBLE, DT_STRING, DT_INT64 = 1, 2, 7, 9
"""Types of a tensor's values, from tensorflow/core/framework/types.proto."""


_SCALAR = re.compile(
    rb"\x09(.{8})\x10([\x80-\xff]{0,9}[\0-\x7f])\x2a([\0-\x7f])\x0a([\0-\x7f])\x0a([\0-\x7f])(.*)\x15(.{4})",
    re.DOTALL,
)
"""Pattern of an event with one `simple_value`, which most are; four times as fast as reading the fields."""


def take_event(log_part: LogPart, content: bytes) -> None:
    """Read an `Event`: wall_time = 1, step = 2, summary = 5."""
    match = _SCALAR.fullmatch(content)
    if match is not None:
        time, step, *lengths, tag, value = match.groups()
        size = len(tag)
        if [length[0] for length in lengths] == [size + 9, size + 7, size]:
            name, step_number = tag.decode(errors="replace"), to_signed(varint(step, 0)[0])
            log_part.add(Point(name, step_number, *struct.unpack("<f", value), *struct.unpack("<d", time)))
            return
    _take_any_event(log_part, content)


def _take_any_event(log_part: LogPart, content: bytes) -> None:
    step, time, summary = 0, math.nan, b""
    for number, value in fields(content):
        if number == 1 and isinstance(value, int):
            time = float64(value)
        elif number == 2 and isinstance(value, int):
            step = to_signed(value)
        elif number == 5 and isinstance(value, bytes):
            summary = value
    for number, value in fields(summary):
        if number == 1 and isinstance(value, bytes):
            _take_summary_value(log_part, value, step, time)


def _take_summary_value(log_part: LogPart, content: bytes, step: int, time: float) -> None:
    """Read a `Summary.Value`: tag = 1, simple_value = 2, tensor = 8; images and histograms are ignored."""
    tag, scalar, text = "", None, b""
    for number, value in fields(content):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif number == 2 and isinstance(value, int):
            scalar = float32(value & 0xFFFFFFFF)
        elif number == 8 and isinstance(value, bytes):
            scalar, text = _tensor(value)
    if scalar is not None:
        log_part.add(Point(tag, step, scalar, time))
    elif text and tag in TEXTS and len(text) <= MAX_TEXT:
        log_part.facts[tag] = text.decode(errors="replace")


TEXTS = ("args/text_summary", "args")
"""Tags under which the callback of Hugging Face writes its arguments."""


def _tensor(content: bytes) -> tuple[float | None, bytes]:
    """Return scalar and text of a `TensorProto`: dtype 1, content 4, float 5, double 6, text 8, int64 10."""
    kind, packed_values, scalar, text = 0, b"", None, b""
    for number, value in fields(content):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            packed_values = value
        elif number in (5, 6, 10):
            scalar = _scalar(number, value)
        elif number == 8 and isinstance(value, bytes):
            text = text or value
    if scalar is None and packed_values:
        shape = {DT_FLOAT: ("<f", 4), DT_DOUBLE: ("<d", 8), DT_INT64: ("<q", 8)}.get(kind)
        scalar = (
            float(struct.unpack(shape[0], packed_values)[0])
            if shape and len(packed_values) == shape[1]
            else None
        )
    return scalar, text


def _scalar(number: int, value: Value) -> float | None:
    if isinstance(value, int):
        return (
            float32(value & 0xFFFFFFFF)
            if number == 5
            else float64(value)
            if number == 6
            else float(to_signed(value))
        )
    shape = {5: ("<f", 4), 6: ("<d", 8)}.get(number)
    return float(struct.unpack(shape[0], value)[0]) if shape and len(value) == shape[1] else None


# ---------------------------------------------------------------- W&B


def take_wandb_record(log_part: LogPart, content: bytes) -> None:
    """Read a `Record`: history = 2, config = 5, run = 17, exit = 18."""
    for number, value in fields(content):
        if not isinstance(value, bytes):
            continue
        if number == 2:
            _take_history(log_part, value)
        elif number == 5:
            _take_config(log_part, value)
        elif number == 17:
            _take_run(log_part, value)
        elif number == 18:
            codes = [to_signed(code) for name, code in fields(value) if name == 1 and isinstance(code, int)]
            log_part.facts["exit_code"] = codes[-1] if codes else 0


def _take_history(log_part: LogPart, content: bytes) -> None:
    """Read a `HistoryRecord`: item = 1, step = 2 {num = 1}."""
    step, row = None, list[tuple[str, float]]()
    for number, value in fields(content):
        if number == 1 and isinstance(value, bytes):
            row += _item(value)
        elif number == 2 and isinstance(value, bytes):
            step = next(
                (to_signed(num) for name, num in fields(value) if name == 1 and isinstance(num, int)), 0
            )
    value_by_name = dict(row)
    step = (
        int(value_by_name["_step"])
        if step is None and math.isfinite(value_by_name.get("_step", math.nan))
        else step or 0
    )
    for name, item_value in row:
        log_part.add(Point(name, step, item_value))


_PLAIN_ITEM = re.compile(
    rb"[\x0a\x12]([\x01-\x7f])(.+)\x82\x01([\0-\x7f])(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|NaN)", re.DOTALL
)
"""Pattern of an item with one key and a number as JSON, which most items are."""


def _item(content: bytes) -> list[tuple[str, float]]:
    """Return a `HistoryItem`: key 1, nested_key 2, boolean 4, integer 5, number 6, json 8, value_json 16."""
    match = _PLAIN_ITEM.fullmatch(content)
    if match is not None and (match[1][0], match[3][0]) == (len(match[2]), len(match[4])):
        return [(match[2].decode(errors="replace"), float(match[4]))]
    path, item_value = list[str](), None
    for number, value in fields(content):
        if number in (1, 2) and isinstance(value, bytes) and value:
            path.append(value.decode(errors="replace"))
        elif number in (8, 16) and isinstance(value, bytes):
            item_value = _json_number(value)
        elif number in (4, 5) and isinstance(value, int):
            item_value = float(to_signed(value))
        elif number == 6 and isinstance(value, int):
            item_value = float64(value)
    return [("/".join(path), item_value)] if path and item_value is not None else []


def _json_number(text: bytes) -> float | None:
    """Return a JSON number, or one of the names of numbers that JSON lacks; None for other values."""
    if len(text) > 64:
        return None
    try:
        value = json.loads(text)
        return float(WORDS.get(value, "")) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


WORDS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def _take_config(log_part: LogPart, content: bytes) -> None:
    """Read a `ConfigRecord`: update = 1 {key = 1, nested_key = 2, value_json = 16}."""
    config = log_part.facts.setdefault("config", {})
    for number, update in fields(content):
        if number != 1 or not isinstance(update, bytes) or len(update) > MAX_TEXT:
            continue
        config_item = {name: value for name, value in fields(update) if isinstance(value, bytes)}
        key = config_item.get(1, config_item.get(2, b"")).decode(errors="replace")
        try:
            config[key] = json.loads(config_item.get(16, b"null"))
        except (ValueError, RecursionError):
            continue


def _take_run(log_part: LogPart, content: bytes) -> None:
    """Read a `RunRecord`: run_id 1, project 3, config 4, display_name 8, start_time 17 {seconds 1}."""
    for number, value in fields(content):
        if not isinstance(value, bytes):
            continue
        if number in (1, 3, 8):
            log_part.facts[{1: "run_id", 3: "project", 8: "name"}[number]] = value.decode(errors="replace")[
                :200
            ]
        elif number == 4:
            _take_config(log_part, value)
        elif number == 17:
            seconds = [to_signed(num) for name, num in fields(value) if name == 1 and isinstance(num, int)]
            log_part.facts["started_at"] = float(seconds[0]) if seconds else None


# ---------------------------------------------------------------- SwanLab

SWANLAB_SYSTEM = "__swanlab__"
"""Prefix of metrics of the machine, whose steps are those of their own clock."""
SWANLAB_WORDS = ("NaN", "INF")
SWANLAB_FAILURES = {2: "crashed", 3: "was aborted"}


def take_swanlab_record(log_part: LogPart, content: bytes) -> None:
    """Read a `Record`: start = 10, finish = 11, scalar = 13; or its predecessor in JSON."""
    if content.startswith(b"{"):
        _take_swanlab_json(log_part, _json(content))
        return
    for number, value in fields(content):
        if not isinstance(value, bytes):
            continue
        if number == 10:
            texts = {name: text for name, text in fields(value) if isinstance(text, bytes)}
            log_part.facts["name"] = texts.get(4, b"").decode(errors="replace")[:200]
        elif number == 11:
            _take_swanlab_end(log_part, value)
        elif number == 13:
            _take_swanlab_scalar(log_part, value)


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("a record is not valid JSON") from None


def _take_swanlab_scalar(log_part: LogPart, content: bytes) -> None:
    """Read a `ScalarRecord`: key = 1, step = 2, timestamp = 4, value = 5 {number = 1}; zeros are omitted."""
    key, step, time, number = "", 0, math.nan, None
    for field, value in fields(content):
        if field == 1 and isinstance(value, bytes):
            key = value.decode(errors="replace")
        elif field == 2 and isinstance(value, int):
            step = to_signed(value)
        elif field == 4 and isinstance(value, bytes):
            parts = {name: part for name, part in fields(value) if isinstance(part, int)}
            time = to_signed(parts.get(1, 0)) + parts.get(2, 0) / 1e9
        elif field == 5 and isinstance(value, bytes):
            bits = next((bits for name, bits in fields(value) if name == 1 and isinstance(bits, int)), 0)
            number = float64(bits)
    if number is not None and not key.startswith(SWANLAB_SYSTEM):
        log_part.add(Point(key, step, number, time))


def _take_swanlab_end(log_part: LogPart, content: bytes) -> None:
    """Read a `FinishRecord`: state = 1, error = 2."""
    parts = dict(fields(content))
    state, error = parts.get(1), parts.get(2, b"")
    if state in SWANLAB_FAILURES:
        lines = error.decode(errors="replace").strip().splitlines() if isinstance(error, bytes) else []
        log_part.facts["failure"] = (
            lines[-1][:300] if lines else f"SwanLab recorded that the run {SWANLAB_FAILURES[state]}"
        )


def _take_swanlab_json(log_part: LogPart, record: Any) -> None:
    """Read a record of versions 0.6 and 0.7, `{"model_type": "Scalar", "data": {...}}`."""
    data = record.get("data") if isinstance(record, dict) else None
    if not isinstance(data, dict):
        return
    match record.get("model_type"):
        case "Experiment":
            log_part.facts["name"] = str(data.get("name") or "")[:200]
        case "Footer":
            if data.get("success") is False:
                log_part.facts["failure"] = "SwanLab recorded that the run failed"
        case "Scalar":
            _take_swanlab_json_scalar(log_part, data)


def _take_swanlab_json_scalar(log_part: LogPart, data: dict[str, Any]) -> None:
    metric, key, step = data.get("metric"), data.get("key"), data.get("step")
    if not isinstance(metric, dict) or not isinstance(key, str) or type(step) is not int:
        return
    number = metric.get("data")
    if key.startswith(SWANLAB_SYSTEM) or not (isinstance(number, int | float) or number in SWANLAB_WORDS):
        return
    with suppress(OverflowError):
        log_part.add(Point(key, step, float(number), unix_time(metric.get("create_time"))))


def unix_time(text: Any) -> float:
    """Return the Unix time of a time in ISO 8601, or NaN."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def _events(request: Request) -> dict[str, Any]:
    return read_part(tfrecord.records(b64decode(request["data"])), take_event)


def _wandb(request: Request) -> dict[str, Any]:
    window, offset = b64decode(request["data"]), int(request["offset"])
    return read_part(leveldb_log.records(window, offset), take_wandb_record)


def _swanlab(request: Request) -> dict[str, Any]:
    window, offset = b64decode(request["data"]), int(request["offset"])
    return read_part(leveldb_log.records(window, offset), take_swanlab_record)


OPERATIONS = {
    "tensorboard": Operation(_events),
    "wandb": Operation(_wandb),
    "swanlab": Operation(_swanlab),
}
