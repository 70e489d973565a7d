"""Generate the tables of the pages in docs/: `make docs`.

Each table is in one page, between `<!-- NAME -->` and `<!-- /NAME -->`; everything else is written by hand.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backend.analysis.diagnosis.detectors import DETECTORS
from backend.analysis.diagnosis.remedies import REMEDIES
from backend.analysis.diagnosis.signs import TITLES
from backend.base.documented import field_descriptions
from backend.base.locations import CODE_ROOT
from backend.base.settings import Settings
from backend.catalog.policies.architectures import REFUSED_MODEL_TYPES, TESTED_MODEL_TYPES
from backend.config.fields import Row, Section, sections
from backend.config.metrics import FAMILIES, METRICS, Metric
from backend.config.presets import PRESETS
from backend.service.docs.memory_table import CHANGES_BY_COLUMN, memory_rows
from backend.service.monitoring.prometheus import GAUGES

FOLDER = CODE_ROOT / "docs"
SECTION_PATTERN = re.compile(r"(<!-- ([^/\n][^\n]*) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
"""Pattern of a generated table in a page."""


def main() -> None:
    """Write the tables into docs/."""
    for page, text in update_tables(pages()).items():
        page.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Return the text of every page with a table."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
    return {page: text for page, text in texts.items() if SECTION_PATTERN.search(text)}


def update_tables(texts: Mapping[Path, str]) -> dict[Path, str]:
    """Return the pages with all tables updated; raise SystemExit unless each table is in one page."""
    text_by_name = tables()
    names = [match[2] for text in texts.values() for match in SECTION_PATTERN.finditer(text)]
    for name in text_by_name:
        if names.count(name) != 1:
            raise SystemExit(
                f"docs/ has {names.count(name)} places for the table {name}: "
                f"write <!-- {name} --> and <!-- /{name} --> into one page"
            )
    return {
        page: SECTION_PATTERN.sub(lambda match: _fill_table(match, text_by_name), text)
        for page, text in texts.items()
    }


def _fill_table(match: re.Match[str], table_by_name: Mapping[str, str]) -> str:
    start, name, end = match.groups()
    if name not in table_by_name:
        raise SystemExit(f"nothing writes the table {name}, which docs/ has a place for")
    return f"{start}{table_by_name[name]}\n{end}"


def tables() -> dict[str, str]:
    """Return all generated tables by name."""
    tables_by_name = {
        "presets": presets(),
        "fields": fields(),
        "metrics": metrics(),
        "aliases": aliases(),
        "gauges": gauges(),
        "settings": settings(),
        "causes": causes(),
        "architectures": architectures(),
        "memory": _table(["model", *CHANGES_BY_COLUMN], memory_rows()),
    }
    return tables_by_name | benchmark_tables() | fault_totals()


def benchmark_tables() -> dict[str, str]:
    """Return the tables of the last benchmark runs in `benchmarks/NAME/results*.md`."""
    files = sorted((CODE_ROOT / "benchmarks").glob("*/results*.md"))
    names = {file: f"benchmark {file.parent.name}{file.stem.removeprefix('results')}" for file in files}
    return {names[file]: _relative_to_docs(file.read_text(encoding="utf-8")) for file in files}


def _relative_to_docs(text: str) -> str:
    """Return the text with links relative to docs/ instead of the root of the project."""
    return text.strip().replace("](docs/", "](")


def fault_totals() -> dict[str, str]:
    """Return the totals of the fault-injection rounds, which `make faults` writes."""
    return {"faults": (CODE_ROOT / "tests/faults/results.md").read_text(encoding="utf-8").strip()}


def presets() -> str:
    """Return a table with a row per preset: its differences from the defaults, and its source."""
    rows = (
        [f"`{name}`", preset.title, _changes(preset.changes), preset.source]
        for name, preset in PRESETS.items()
    )
    return _table(["preset", "name", "what it sets", "source"], rows)


def metrics() -> str:
    """Return a table with a row per metric of the catalog."""
    rows = (
        [f"`{metric.name}`", metric.unit, _band(metric), metric.better, metric.meaning]
        for metric in (*METRICS.values(), *FAMILIES)
    )
    return _table(["metric", "unit", "healthy", "better", "meaning"], rows)


def aliases() -> str:
    """Return a table with a row per metric that other trainers log under other names."""
    rows = (
        [f"`{metric.name}`", ", ".join(f"`{name}`" for name in metric.aliases)]
        for metric in (*METRICS.values(), *FAMILIES)
        if metric.aliases
    )
    return _table(["metric", "names in other trainers"], rows)


def settings() -> str:
    """Return a table with a row per environment variable."""
    texts = field_descriptions(Settings)
    rows = (
        [f"`{name.upper()}`", _value(field.default), _one_line(texts.get(name, ""))]
        for name, field in Settings.model_fields.items()
    )
    return _table(["variable", "default", "meaning"], rows)


def causes() -> str:
    """Return a table with a row per cause that a diagnosis can name."""
    rows = (
        [TITLES[name], _one_line(detector.__doc__ or ""), *REMEDIES[name]]
        for name, detector in DETECTORS.items()
    )
    return _table(["cause", "what speaks for it", "what to try first", "source"], rows)


def gauges() -> str:
    """Return a table with a row per value of /metrics."""
    rows = [[f"`{name}`", ", ".join(gauge.labels), gauge.description] for name, gauge in GAUGES.items()]
    times = [
        "`grpolab_http_request_duration_seconds`",
        "method, route, status",
        "Histogram: time to the first byte.",
    ]
    process = ["`process_*`", "", "Processor time, memory and open files of the service."]
    return _table(["name", "labels", "meaning"], [*rows, times, process])


def architectures() -> str:
    """Return a list of the tested model types and a table of the refused ones."""
    tested_types = " ".join(f"`{kind}`" for kind in sorted(TESTED_MODEL_TYPES))
    rows = [[f"`{kind}`", reason] for kind, reason in sorted(REFUSED_MODEL_TYPES.items())]
    return (
        f"Tested model types: {tested_types}.\n\n"
        f"Not supported (the launch form rejects them):\n\n{_table(['model type', 'why'], rows)}"
    )


def fields() -> str:
    """Return all fields of a run's config by section: options, defaults, values and meanings."""
    sections_by_path = sections()
    rows = [pair for section in sections_by_path.values() for pair in section.rows.items()]
    rows_by_path = {
        path: {row: options for row, options in rows if row.path == path} for path in sections_by_path
    }
    path_by_options = {
        tuple(section.options.items()): path for path, section in reversed(sections_by_path.items())
    }
    texts = []
    for path, section in sections_by_path.items():
        first_path = path_by_options[tuple(section.options.items())]
        if section.options and first_path != path:
            texts.append(f"### `{path}`\n\nThe options and fields of [`{first_path}`](#{first_path}).")
        else:
            texts.append(_section(section, rows_by_path[path]))
    return "\n\n".join(texts)


def _section(section: Section, options_by_row: Mapping[Row, Iterable[str]]) -> str:
    """Return a heading, the description of the section, the options of a union, and the table of fields."""
    title = f"`{section.path}`" if section.path else "The run"
    options = "\n".join(f"- `{name}`: {_prose(description)}" for name, description in section.options.items())
    paragraphs = [f"### {title}", _section_text(options_by_row), options, _field_table(section)]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _section_text(options_by_row: Mapping[Row, Iterable[str]]) -> str:
    """Return the meaning and default of a section; if defaults differ, they are listed with their options."""
    meanings = {_prose(row.description) for row in options_by_row}
    defaults: dict[str, list[str]] = {}
    for row, options in options_by_row.items():
        defaults.setdefault(row.default, []).extend(options)
    texts = [f"`{default}`" for default in defaults if default]
    if len(texts) > 1:
        texts = [f"`{default}` with {_codes(options)}" for default, options in defaults.items()]
    default = f"Default: {'; '.join(texts)}." if texts else ""
    return " ".join([*(meanings if len(meanings) == 1 else ()), default]).strip()


def _field_table(section: Section) -> str:
    if not section.rows:
        return ""
    head = ["field", "default", "values", "meaning"]
    rows = [[f"`{row.path}`", _default(row), row.values, _prose(row.description)] for row in section.rows]
    if section.options:
        head.insert(1, "option")
        for cells, options in zip(rows, section.rows.values(), strict=True):
            cells.insert(1, _codes(options))
    return _table(head, rows)


def _default(row: Row) -> str:
    return "required" if row.required else _value(row.default)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _prose(text: str) -> str:
    """Return a docstring on one line, with `<` escaped outside of code."""
    segments = _one_line(text).split("`")
    return "`".join(
        segment if index % 2 else segment.replace("<", "\\<") for index, segment in enumerate(segments)
    )


def _changes(changes: Mapping[str, Any]) -> str:
    """Return `{"objective": {"aggregation": {"type": "token_mean"}}}` as `aggregation token_mean`."""
    change_texts = [change for key, value in changes.items() for change in _flatten(key, value)]
    return "; ".join(change_texts).replace("objective.", "")


def _flatten(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path} {_plain(value)}"]
    changes = [change for key, child in value.items() if key != "type" for change in _flatten(key, child)]
    if "type" in value:
        return [f"{path} {value['type']}" + (f" ({', '.join(changes)})" if changes else "")]
    return [change for key, child in value.items() for change in _flatten(f"{path}.{key}", child)]


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_term_text(element) for element in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _term_text(value: Any) -> str:
    """Return a reward term as `correctness x 1`; other values stay unchanged."""
    if isinstance(value, Mapping) and "name" in value:
        return f"{value['name']} x {value.get('weight', 1):g}"
    return str(value)


def _band(metric: Metric) -> str:
    low = "" if metric.low is None else f"{metric.low:g}"
    high = "" if metric.high is None else f"{metric.high:g}"
    return f"{low} .. {high}" if low or high else ""


def _value(value: Any) -> str:
    text = "" if value in ("", ()) else str(value)
    return f"`{text}`" if text else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )
