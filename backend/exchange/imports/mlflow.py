"""Read the files in which MLflow stores a metric: `timestamp value step` on each line, without a header."""

import re

from backend.exchange.imports.lines import text_lines
from backend.exchange.imports.log import Log
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import Table

_METRICS_PATTERN = re.compile(r"(?:^|/)metrics(?:/.*)?$", re.DOTALL)
_NAME_PATTERN = re.compile(r"^.*?(?:^|/)metrics/|^.*/", re.DOTALL)
"""Pattern of the path before the name of a metric, which may contain slashes."""
_LINE_PATTERN = re.compile(r"\d{12,14} [-+\d.naifeE]{1,40} \d{1,10}\s*")


def run_directory(directory: str) -> str:
    """Return the directory of the run whose metric files are in a directory of an archive."""
    return _METRICS_PATTERN.sub("", directory)


def is_metric_file(first: str, following: str) -> bool:
    """Return whether the first two lines of a text are values of MLflow."""
    second = following.partition("\n")[0]
    return _LINE_PATTERN.fullmatch(first) is not None and (
        not second or _LINE_PATTERN.fullmatch(second) is not None
    )


def read_metric_file(file: LogFile) -> list[Log]:
    """Return the curve of a metric, whose name is the file's path within the directory of metrics."""
    path = file.name.replace("\\", "/")
    name = _NAME_PATTERN.sub("", path) or "value"
    table = Table(file.max_values)
    for line, text in text_lines(file.content):
        if _LINE_PATTERN.fullmatch(text):
            _, value, step = text.split()
            table.add(line, [("step", step), (name, value)])
        elif text.strip():
            table.bad.add(line, "is not `timestamp value step`")
    return [Log(table, step="step")]
