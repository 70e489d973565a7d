"""Forms of printed text: lines of verl, table cells, progress bars, and mentions of a step."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from backend.exchange.imports.table import MINUS_SIGN

MAX_LINE_CHARACTERS = 8_000
"""Maximum length of a line of pairs or of a table; longer lines are text."""
NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity)\b"
)

_WORDS = ("step", "epoch", "iter", "update", "episode", "rollout", "batch")
_SHORT_STEP_PATTERN = re.compile(r"(?<![\w'])(?:it|ep)\s?\d{1,9}\s?[:|/]")
_NUMBERED_STEP_PATTERN = re.compile(rf"(?:{'|'.join(_WORDS)})(?:ation)?['\"]?[\s:=#\[(/]{{1,6}}\d")
_STEP_PATTERN = re.compile(
    r"(?<![A-Za-z_])"
    r"(global[ _]?step|train(?:ing)?[ _/]?step|step|iter(?:ation)?|update|episode|rollout|batch"
    r"|it(?=\s?\d{1,9}\s?[:|/]))"
    r"\b['\"]?\s{0,2}[:=#]?\s{0,2}[\[(]?\s{0,3}(\d{1,3}(?:,\d{3}){1,3}|\d{1,10})(?:\s?/\s?(\d{1,10}))?"
    r"(?![\d]*\.\d|\d|\w)",
    re.IGNORECASE,
)
_FUNCTION_PATTERN = re.compile(r"(?<![\w.])[\w.]{1,80}:[\w<>]{1,80}:\d{1,6} - ")
"""Pattern of the function and line that loguru prints."""
_COUNTER_PATTERN = re.compile(r"^\s*[\[(]\s*(\d{1,10})\s?/\s?(\d{1,10})\s*[\])]")
_EPOCH_PATTERN = re.compile(
    r"(?<![A-Za-z_])(?:epoch\b|ep(?=\s?\d{1,9}\s?[:|/]))\s{0,2}[:=#]?\s{0,2}[\[(]?(\d{1,7}(?:\.\d{1,12})?)(?:\s?/\s?\d{1,7})?[\])]?"
    r"(?:\s{0,2}[\[(](\d{1,10})/(\d{1,10})[\])])?",
    re.IGNORECASE,
)
_BAR_PATTERN = re.compile(r"(\d{1,10})(?:/(\d{1,10})|it) \[")
_BAR_START_PATTERN = re.compile(r"\d{1,3}%\||\d{1,10}it \[")
"""Pattern of the start of a progress bar with or without a total, after its description."""
BAR_VALUE_PATTERN = re.compile(r"=|[A-Za-z](?:: ?| )-?\d{0,9}\.\d")
"""Pattern of a metric in the description or in the brackets of a progress bar."""
_SCALAR_PATTERN = re.compile(
    rf"\b(?:torch\.|np\.|numpy\.)?(?:tensor|float\d{{2}}|int\d{{2}}|[Aa]rray)\((?:\[({NUMBER})\]|({NUMBER}))"
    r"(?:, [^()]{0,200})?\)"
)
"""Pattern of a number that PyTorch, NumPy, JAX or MLX prints with its type."""
_WHOLE_BAR_PATTERN = re.compile(
    r"(?:%\|[^|]{0,300}\|\s{0,9}\d{1,10}/\d{1,10}|\d{1,10}it) \[[^\[\]]{0,2000}\]"
)
VERL_PATTERN = re.compile(r"(?:^|[\s)])step:\s?(\d{1,10}) - (?=\S+:)")
VERL_CONTINUATION_PATTERN = re.compile(
    r"^\s*- [\w./@-]+:[-\d.n]| - [A-Za-z_][\w./@-]*:[-\d.n]\S* - [A-Za-z_][\w./@-]*:[-\d.n]"
)
"""Pattern of cells in a continuation of a broken line of verl."""
_NUMPY = re.compile(r"^np\.\w+\((.*)\)$|^array\((.*)\)$")
_MARKUP = re.compile(r"\*\*|`")
"""Marks of bold text and code in Markdown."""
_REMARK_PATTERN = re.compile(
    rf"((?:(?:{NUMBER})(?:\s?/\s?\d{{1,10}})?|[A-Za-z]{{1,10}}[-_ ]?\d{{1,10}})\s?%?)\s*"
    r"(?:\+/-|[(\[*\u00b1\u2190\u2191\u2193\u2020\u2605\u2713\u2b50\U0001f3c6]).{0,60}"
)
_RULE_PATTERN = re.compile(r"^[\s|:+=\u2500-\u257f-]*[-=\u2500\u2501\u2550][\s|:+=\u2500-\u257f-]*$")
_BARS = str.maketrans("│┃║", "|||")


def may_name_step(text: str) -> bool:
    """Return whether a line has a word for a step followed by a number; faster than finding the step."""
    if text[:1] in "[( " and _COUNTER_PATTERN.match(text):
        return True
    lower_text = text.lower()
    if ("it " in lower_text or "ep " in lower_text) and _SHORT_STEP_PATTERN.search(lower_text):
        return True
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
    text = _FUNCTION_PATTERN.sub(" ", text, count=1)
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
        return _within_iteration(steps) or TrainingPosition(step, total)
    if step is None and epoch[2]:
        step, total = int(epoch[2]), int(epoch[3])
    return TrainingPosition(step, total, float(epoch[1]))


def _within_iteration(steps: list[re.Match[str]]) -> TrainingPosition | None:
    """Return the step of `Iteration 1/3, Step 12/500`, where an iteration is what others call an epoch."""
    if len(steps) < 2 or not steps[0][1].lower().startswith("iter") or steps[1][1].lower() != "step":
        return None
    totals = [int(match[3] or 0) for match in steps[:2]]
    if not 0 < totals[0] < totals[1]:
        return None
    return TrainingPosition(int(steps[1][2].replace(",", "")), totals[1], float(steps[0][2].replace(",", "")))


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


def without_types(text: str) -> str:
    """Return a text with the number in place of each `tensor(0.5, device='cuda:0')`."""
    return _SCALAR_PATTERN.sub(lambda scalar: scalar[1] or scalar[2], text) if "(" in text else text


def has_bar(text: str) -> bool:
    """Return whether a text contains a progress bar, with or without a total."""
    return "%|" in text or ("it [" in text and _BAR_START_PATTERN.search(text) is not None)


def bar_texts(text: str) -> tuple[str, str]:
    """Return the description before the last progress bar of a text, and the brackets after its counter."""
    starts = [match.start() for match in _BAR_START_PATTERN.finditer(text)] or [0]
    end_of_previous = text.rfind("]", 0, starts[-1]) + 1 if len(starts) > 1 else 0
    return text[end_of_previous : starts[-1]].rstrip(": "), text[text.rfind("[") :]


def bar_counter(text: str) -> tuple[int, int] | None:
    """Return (count, total) of the last progress bar in a text, or None."""
    counters = _BAR_PATTERN.findall(text[-2_000:])
    return (int(counters[-1][0]), int(counters[-1][1] or 0)) if counters else None


def split_after_bar(text: str) -> tuple[str, str]:
    """Return the progress bars of a text, and what was printed after the last one without a line break."""
    if text.endswith("]"):
        return text, ""
    end = max((match.end() for match in _WHOLE_BAR_PATTERN.finditer(text)), default=len(text))
    return text[:end], text[end:].strip()
