"""Forms of printed text: lines of verl, table cells, and mentions of a step."""

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
_NUMBERED_STEP_PATTERN = re.compile(rf"(?:{'|'.join(_WORDS)})(?:ation)?['\"]?[\s:=#\[(/-]{{0,14}}\d")
_STEP_PATTERN = re.compile(
    r"(?<![A-Za-z_])"
    r"(global[ _]?step|train(?:ing)?[ _/]?step|step|iter(?:ation)?|update|episode|rollout|batch"
    r"|it(?=\s?\d{1,9}\s?[:|/]))"
    r"(?:\b|(?=\d))['\"]?\s{0,2}(?:[:=#]|-(?=\d))?\s{0,10}[\[(]?\s{0,3}(\d{1,3}(?:,\d{3}){1,3}|\d{1,10})(?:\s?/\s{0,8}(\d{1,10}))?"
    r"(?![\d]*\.\d|\d|\w)",
    re.IGNORECASE,
)
_FUNCTION_PATTERN = re.compile(r"(?<![\w.])[\w.]{1,80}:[\w<>]{1,80}:\d{1,6} - ")
"""Pattern of the function and line that loguru prints."""
_TWO_COUNTERS_PATTERN = re.compile(
    r"^\s*\[\s*(\d{1,7})\s?/\s?\d{1,7}\s*\]\s?\[\s*(\d{1,10})\s?/\s?(\d{1,10})\s*\]"
)
_LOGGER_PATTERN = re.compile(
    r"\s{0,8}(?:\[?\d{4}-\d\d-\d\d[T ])?(?:\[?\d\d:\d\d:\d\d[.,\d]{0,10}Z?\]?)?\s{0,3}"
    r"(?:[|-]\s)?(?:[\w.]{1,60}\s[|-]\s)?[|\[\s-]{0,4}(?:DEBUG|INFO|SUCCESS|NOTICE)\b\s{0,6}[\]|:-]{0,2}\s?"
    r"(?:[\w.]{1,80}:[\w.<>]{1,80}:\d{1,6}\s[|-]\s{1,3}|[\w.]{1,80}\s[|-]\s{1,3}|(?<=:)[\w.]{1,80}:(?=\S))?"
)
"""Pattern of what a logger prints before a message."""
_COUNTER_PATTERN = re.compile(r"^\s*[\[(]\s*(\d{1,10})\s?/\s?(\d{1,10})\s*[\])]")
_EPOCH_PATTERN = re.compile(
    r"(?<![A-Za-z_])(?:epoch\b|ep(?=\s?\d{1,9}\s?[:|/]))\s{0,2}[:=#]?\s{0,2}[\[(]?(\d{1,7}(?:\.\d{1,12})?)(?:\s?/\s?\d{1,7})?[\])]?"
    r"(?:\s{0,2}[\[(](\d{1,10})/(\d{1,10})[\])])?",
    re.IGNORECASE,
)
_EPOCH_HEADING_PATTERN = re.compile(
    r"[\W_]{0,40}epoch\W{0,3}\d{1,7}(?:\s?/\s?\d{1,7})?[\W_]{0,40}", re.IGNORECASE
)
_SCALAR_PATTERN = re.compile(
    rf"\b(?:torch\.|np\.|numpy\.)?(?:tensor|float\d{{2}}|int\d{{2}}|[Aa]rray)\((?:\[({NUMBER})\]|({NUMBER}))"
    r"(?:, [^()]{0,200})?\)"
)
"""Pattern of a number that PyTorch, NumPy, JAX or MLX prints with its type."""
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
_RULE_PATTERN = re.compile(r"[\s|:+=\u2500-\u257f-]+")
_LINE_PATTERN = re.compile(r"[-=\u2500\u2501\u2550]")
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
    word: str = ""
    """What the step is called."""


def find_position(text: str) -> TrainingPosition:
    """Return the step, total steps and epoch that a line mentions, preferring a step of the training."""
    text = _FUNCTION_PATTERN.sub(" ", text, count=1)
    steps = list(_STEP_PATTERN.finditer(text))
    epoch = _EPOCH_PATTERN.search(text)
    if epoch is None and (position := _within_iteration(steps) or _within_brackets(text)):
        return position
    match = next((match for match in steps if len(match[1]) > len("iteration")), steps[0] if steps else None)
    if match is not None:
        step, total, word = _number(match[2]), int(match[3]) if match[3] else None, _word_of_step(match[1])
    elif (match := _COUNTER_PATTERN.match(text)) is not None:
        step, total, word = int(match[1]), int(match[2]), "count"
    elif epoch is not None and epoch[2]:
        step, total, word = int(epoch[2]), int(epoch[3]), "count"
    else:
        step, total, word = None, None, "epoch"
    return TrainingPosition(step, total, None if epoch is None else float(epoch[1]), word)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _word_of_step(word: str) -> str:
    """Return the word of a step in the form of `within_steps`."""
    word = word.lower()
    if word.endswith("step"):
        return "step"
    return "iteration" if word.startswith("it") else word


def _within_iteration(steps: list[re.Match[str]]) -> TrainingPosition | None:
    """Return the step of `Iteration 1/3, Step 12/500` or `iter 0, batch 12`, with the iteration as epoch."""
    words = [_word_of_step(match[1]) for match in steps[:2]]
    totals = [int(match[3] or 0) for match in steps[:2]]
    if words != ["iteration", "batch"] and not (words == ["iteration", "step"] and 0 < totals[0] < totals[1]):
        return None
    return TrainingPosition(_number(steps[1][2]), totals[1] or None, float(_number(steps[0][2])), words[1])


def _within_brackets(text: str) -> TrainingPosition | None:
    """Return the epoch and step of `[2/3][12/500]`."""
    match = _TWO_COUNTERS_PATTERN.match(text)
    return TrainingPosition(int(match[2]), int(match[3]), float(match[1]), "count") if match else None


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
    if len(text) > MAX_LINE_CHARACTERS or _RULE_PATTERN.fullmatch(text) is None:
        return False
    return _LINE_PATTERN.search(text) is not None


def without_types(text: str) -> str:
    """Return a text with the number in place of each `tensor(0.5, device='cuda:0')`."""
    return _SCALAR_PATTERN.sub(lambda scalar: scalar[1] or scalar[2], text) if "(" in text else text


def without_logger(text: str) -> str:
    """Return a line without the time, level and name that a logger prints before it."""
    match = _LOGGER_PATTERN.match(text)
    return text[match.end() :] if match else text


def is_bare_position(text: str) -> bool:
    """Return whether a line says only which step begins, such as `--- Step 5 ---`."""
    return not any(map(str.isalnum, _STEP_PATTERN.sub("", text)))


def is_epoch_heading(text: str) -> bool:
    """Return whether a line says only which epoch begins, such as `=== Epoch 2/3 ===`."""
    return _EPOCH_HEADING_PATTERN.fullmatch(text) is not None
