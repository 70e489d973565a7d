"""Forms of printed metrics: lines of verl, `name: value` pairs, table cells, and mentions of a step."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from backend.exchange.imports.names import is_known
from backend.exchange.imports.table import MINUS_SIGN

MAX_LINE_CHARACTERS = 8_000
"""Maximum length of a line of pairs or of a table; longer lines are text."""
NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity)\b"
)

_WORDS = ("step", "epoch", "iter", "update", "episode", "rollout", "batch")
_NUMBERED_STEP_PATTERN = re.compile(rf"(?:{'|'.join(_WORDS)})(?:ation)?['\"]?[\s:=#\[(/]{{1,6}}\d")
_STEP_PATTERN = re.compile(
    r"(?<![A-Za-z_])"
    r"(global[ _]?step|train(?:ing)?[ _/]?step|step|iter(?:ation)?|update|episode|rollout|batch)"
    r"\b['\"]?\s{0,2}[:=#]?\s{0,2}[\[(]?\s{0,3}(\d{1,3}(?:,\d{3}){1,3}|\d{1,10})(?:\s?/\s?(\d{1,10}))?"
    r"(?![\d]*\.\d|\d|\w)",
    re.IGNORECASE,
)
_COUNTER_PATTERN = re.compile(r"^\s*[\[(]\s*(\d{1,10})\s?/\s?(\d{1,10})\s*[\])]")
_EPOCH_PATTERN = re.compile(
    r"(?<![A-Za-z_])epoch\b\s{0,2}[:=#]?\s{0,2}[\[(]?(\d{1,7}(?:\.\d{1,12})?)(?:\s?/\s?\d{1,7})?[\])]?"
    r"(?:\s{0,2}[\[(](\d{1,10})/(\d{1,10})[\])])?",
    re.IGNORECASE,
)
_PAIR_PATTERN = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@()%-]{0,79}(?: [A-Za-z_/][\w./@()%-]{0,39}){0,4})\s{0,2}([:=])\s{0,12}"
    rf"((?:{NUMBER})\s?%?)(?:\s?[A-Za-z/]{{1,8}})?(?=$|[\s,;|\])}}>±]|\.(?:\s|$))"
)
_SPACED_PAIR_PATTERN = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,79}(?: [A-Za-z_][\w./@-]{0,39}){0,3}) {1,12}"
    rf"((?:{NUMBER})\s?%?)(?=$|[\s,;|±])"
)
_ERROR_PATTERN = re.compile(rf"\s?(?:±|\+/-)\s?(?:{NUMBER})")
_AT_STEP_PATTERN = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,79}(?: [A-Za-z_][\w./@-]{0,39}){0,3}?) (?:of|at|in|for|after) "
    rf"(?:step|iteration|update|epoch|episode) \d{{1,10}}\s?[:=]\s?((?:{NUMBER})\s?%?)(?=$|[\s,;|±])",
    re.IGNORECASE,
)
"""Pattern of `Average reward after step 12: 0.3`."""
_SEPARATOR_PATTERN = re.compile(r"\s*(?:[|;]|[,:]\s|\s-\s)\s*")
_SEPARATORS = " ,;|-\t"
_BAR_PATTERN = re.compile(r"(\d{1,10})/(\d{1,10}) \[")
_NON_METRIC_NAMES = {
    "pid", "ip", "port", "rank", "local_rank", "seed", "eta", "epoch", "step", "global_step", "global step",
    "train step", "training step", "iter", "iteration", "update", "episode", "rollout", "batch",
}  # fmt: skip
"""Names before numbers that are not metrics."""

VERL_PATTERN = re.compile(r"(?:^|[\s)])step:\s?(\d{1,10}) - (?=\S+:)")
VERL_CONTINUATION_PATTERN = re.compile(
    r"^\s*- [\w./@-]+:[-\d.n]| - [A-Za-z_][\w./@-]*:[-\d.n]\S* - [A-Za-z_][\w./@-]*:[-\d.n]"
)
"""Pattern of cells in a continuation of a broken line of verl."""
_NUMPY = re.compile(r"^np\.\w+\((.*)\)$|^array\((.*)\)$")
_EVALUATION_PATTERN = re.compile(
    r"\bEvaluated (?:\S{1,200} on )?(?P<suite>[\w.@/+-]{1,80}) in [\d.]{1,12}s \((?P<results>.{1,1000})\)\s*$"
)
_MARKUP = re.compile(r"\*\*|`")
"""Marks of bold text and code in Markdown."""
_REMARK_PATTERN = re.compile(
    rf"((?:(?:{NUMBER})|[A-Za-z]{{1,10}}[-_ ]?\d{{1,10}})\s?%?)\s*"
    r"(?:\+/-|[(\[*\u00b1\u2190\u2191\u2193\u2020\u2605\u2713\u2b50\U0001f3c6]).{0,60}"
)
_BULLET = re.compile(r"^[\s•*+>-]+")
_GRID_CELL_PATTERN = re.compile(rf"[│|]\s*([\w./@-]{{1,200}})\s*[│|]\s*({NUMBER})\s*(?=[│|])")
_RULE_PATTERN = re.compile(r"^[\s|:+=\u2500-\u257f-]*[-=\u2500\u2501\u2550][\s|:+=\u2500-\u257f-]*$")
_BARS = str.maketrans("│┃║", "|||")


def may_name_step(text: str) -> bool:
    """Return whether a line has a word for a step followed by a number; faster than finding the step."""
    if text[:1] in "[( " and _COUNTER_PATTERN.match(text):
        return True
    lower_text = text.lower()
    return (
        any(step_word in lower_text for step_word in _WORDS)
        and _NUMBERED_STEP_PATTERN.search(lower_text) is not None
    )


class TrainingPosition(NamedTuple):
    """The position in the training that a line mentions."""

    step: int | None
    total: int | None = None
    epoch: float | None = None


def find_position(text: str) -> TrainingPosition:
    """Return the step, total steps and epoch that a line mentions, preferring a step of the training."""
    steps = list(_STEP_PATTERN.finditer(text))
    match = next((match for match in steps if len(match[1]) > len("iteration")), steps[0] if steps else None)
    if match is not None:
        step, total = int(match[2].replace(",", "")), int(match[3]) if match[3] else None
    elif (match := _COUNTER_PATTERN.match(text)) is not None:
        step, total = int(match[1]), int(match[2])
    else:
        step, total = None, None
    epoch = _EPOCH_PATTERN.search(text)
    if epoch is None:
        return TrainingPosition(step, total)
    if step is None and epoch[2]:
        step, total = int(epoch[2]), int(epoch[3])
    return TrainingPosition(step, total, float(epoch[1]))


def pairs(text: str) -> list[tuple[str, str]]:
    """Return all `name: number` and `name=number` pairs of a line."""
    cells = []
    for match in _PAIR_PATTERN.finditer(text):
        name = _without_sentence(match[1]) if match[2] == ":" else match[1].rsplit(" ", 1)[-1]
        is_place_in_code = match[2] == ":" and text[: match.start()].endswith(":") and match[3].isdecimal()
        if name.lower() not in _NON_METRIC_NAMES and not name.endswith(".py") and not is_place_in_code:
            cells.append((name, match[3].replace(",", "")))
    return cells or _spaced_pairs(text)


def _without_sentence(name: str) -> str:
    """Return a name without the end of a sentence before it; `Grad. Norm` is a name."""
    _, separator, following = name.rpartition(". ")
    return following if separator and is_known(following) else name


def _spaced_pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of `step 12 | reward 0.5 | kl 0.1`, if there are several or the metric is known."""
    cells = [
        (match[1], match[2].replace(",", ""))
        for segment in _SEPARATOR_PATTERN.split(_ERROR_PATTERN.sub("", text))
        if not _SPACED_PAIR_PATTERN.sub("", segment).strip()
        for match in _SPACED_PAIR_PATTERN.finditer(segment)
        if match[1].lower() not in _NON_METRIC_NAMES
    ]
    if len(cells) > 1 or (cells and is_known(cells[0][0])):
        return cells
    return [(match[1], match[2].replace(",", "")) for match in _AT_STEP_PATTERN.finditer(text)]


def bar_pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs after the times of a progress bar: `3/9 [00:12<01:02, 3.1s/it, reward=0.5]`."""
    return pairs(text[text.rfind("[") :])


def evaluation_cells(text: str) -> list[tuple[str, str]]:
    """Return the results that prime-rl prints after an evaluation, named `eval/<suite>/<result>`."""
    match = _EVALUATION_PATTERN.search(text)
    if match is None:
        return []
    return [
        (f"eval/{match['suite']}/{name.lower().replace(' ', '_')}", value)
        for name, value in pairs(match["results"])
    ]


def lone_pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a line without other content: a list item, or cells of a grid."""
    if "│" in text:
        return [(match[1], match[2]) for match in _GRID_CELL_PATTERN.finditer(text)]
    bare_text = _BULLET.sub("", text)
    first = _PAIR_PATTERN.search(bare_text)
    if first is None or bare_text[: first.start()].strip(_SEPARATORS):
        return []
    return [] if _PAIR_PATTERN.sub("", bare_text).strip(_SEPARATORS) else pairs(bare_text)


def verl_cells(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the cells that verl prints after the step."""
    for metric_text in text.rstrip(" -\r\n").split(" - "):
        name, _, value = metric_text.rpartition(":")
        if name:
            numpy = _NUMPY.match(value)
            yield name.strip(), (numpy[1] or numpy[2]) if numpy else value


def table_cells(text: str) -> list[str]:
    """Return the cells of a table line, separated by bars, tabs, spaces or commas, or none."""
    if len(text) > MAX_LINE_CHARACTERS:
        return []
    bare_text = text.translate(_BARS).strip("# \t\r\n")
    if "|" in bare_text:
        cells = bare_text.strip("|").split("|")
    elif "\t" in text:
        cells = text.rstrip("\n").split("\t")
    elif "  " in bare_text:
        cells = re.split(r" {2,}", bare_text)
    else:
        cells = bare_text.split(",") if "," in bare_text else bare_text.split(" ")
    return [_clean_cell(cell) for cell in cells] if len(cells) > 1 else []


def _clean_cell(cell: str) -> str:
    """Return the text of a cell without marks of Markdown, with a hyphen for a typeset minus sign."""
    return _MARKUP.sub("", cell).strip(" \t*").replace(MINUS_SIGN, "-")


def without_remark(cell: str) -> str:
    """Return the number or step of a cell such as `0.83 (peak)`, `0.83 ± 0.02`, `0.83 ↑` or `step 3 (best)`;
    any other cell is unchanged.
    """
    match = _REMARK_PATTERN.fullmatch(cell)
    return match[1] if match else cell


def is_rule(text: str) -> bool:
    """Return whether a line only separates the header of a table from its rows."""
    return len(text) <= MAX_LINE_CHARACTERS and _RULE_PATTERN.match(text) is not None


def bar_counter(text: str) -> tuple[int, int] | None:
    """Return (count, total) of the last progress bar in a text, or None."""
    counters = _BAR_PATTERN.findall(text[-2_000:])
    return (int(counters[-1][0]), int(counters[-1][1])) if counters else None
