"""Logs of verl: the JSONL file of its `file` logger, and the lines that its `console` logger prints.

    {"step": 12, "data": {"actor/entropy": 0.3, ...}}
    (TaskRunner pid=7) step:12 - actor/entropy:0.3 - critic/score/mean:np.float64(0.5)

Format: verl.utils.tracking.FileLogger and verl.utils.logger.LocalLogger, versions 0.5 to 0.6.
"""

import re
from collections.abc import Iterator
from typing import IO, Any

from backend.imports.lines import text_lines
from backend.imports.table import BadLog, Log, Table, flat
from backend.imports.text_formats import records

CONSOLE_LINE = re.compile(r"(?:^|[\s)])step:(\d+) - (?=\S+:)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NUMPY = re.compile(r"^np\.\w+\((.*)\)$|^array\((.*)\)$")


def read_verl_file(file: IO[bytes]) -> Log:
    """The JSONL file; a line without `data` is left out."""
    table = Table()
    for line, row in records(file, table):
        data = row.get("data")
        if isinstance(data, dict):
            table.add(line, [("step", row.get("step")), *flat(data)])
        else:
            table.bad.add(line, "has no data")
    return Log(table, step="step")


def read_verl_console(file: IO[bytes]) -> Log:
    """Lines of metrics among whatever else was printed."""
    table, others = Table(), 0
    for line, text in text_lines(file):
        plain = _COLOURS.sub("", text)
        found = CONSOLE_LINE.search(plain)
        if found is None:
            others += 1
            continue
        table.add(line, [("step", float(found[1])), *_cells(plain[found.end() :])])
    if not len(table):
        raise BadLog("has no line like `step:12 - actor/entropy:0.3`, which verl prints")
    log = Log(table, step="step")
    if others:
        log.facts.notes.append(f"{others:,} other lines of output were passed over.")
    return log


def _cells(text: str) -> Iterator[tuple[str, Any]]:
    for part in text.rstrip().split(" - "):
        name, _, value = part.rpartition(":")
        if name:
            numpy = _NUMPY.match(value)
            yield name, (numpy[1] or numpy[2]) if numpy else value
