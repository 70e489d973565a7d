"""Words in printed text that say that metrics are of an evaluation on held-out problems.

A word only counts where people put a label: in brackets, alone between separators, as the value of `split` or
`phase`, at the beginning of a line, or in a heading. Whether the label is trusted is decided in `trust.py`.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from backend.exchange.imports.console.rows import TRAINING
from backend.exchange.imports.name_words import HELD_OUT_WORDS
from backend.exchange.imports.splits import is_split_name

MAX_HEADING_CHARACTERS = 80
"""Maximum length of a line that is a heading."""

_HELD_OUT = (
    r"(?:evals?|evaluat(?:e|ed|ing|ion)|val|validat(?:e|ed|ing|ion)|test(?:ing)?|dev|held[-_ ]?out|holdout"
    r"|评估|验证|测试)"
    r"(?![A-Za-z])"
)
_TRAINING_LABELS = {"train", "training"}
_HELD_OUT_LABELS = {*HELD_OUT_WORDS, "held_out", "held-out", "evaluate"}
_HINTS = ("val", "test", "dev", "held", "holdout", "train", "评估", "验证", "测试")
"""Parts of these words and of `train`, which are faster to search for."""
_TRAINING_PATTERN = re.compile(
    r"(?<!\w)\[[^\w\[\]]{0,8}train(?:ing)?(?!\w)[^\[\]]{0,40}\]|\(train(?:ing)?\)"
    r"|(?:[|;]|\s[-\u2013\u2014]\s)\s?train(?:ing)?\s{0,9}(?=[|;:]|\s[-\u2013\u2014]\s|$)"
    r"|\b(?:split|phase|mode|stage)['\"]?\s?[=:]\s?['\"]?train(?:ing)?(?![\w./@-])",
    re.IGNORECASE,
)
_STEP = r"(?:step|iter(?:ation)?|epoch|update)"
_BETWEEN_WORDS_PATTERN = re.compile(r"[\W_]+")
_PREFIX_PATTERN = re.compile(
    r"[^A-Za-z评验测]*(?:(?:INFO|DEBUG|WARNING|SUCCESS|NOTICE)\b[^A-Za-z]*)?"
    r"(?:[\w.]{1,80}:[\w.<>]{1,80}:\d{1,6}\b[^A-Za-z]*)?"
)
"""Pattern of what loggers print before a message."""
_BRACKETS_PATTERN = re.compile(
    rf"(?<!\w)[\[【][^\w\[\]]{{0,8}}(?P<word>{_HELD_OUT})"
    r"(?:[ /:_-](?P<suite>[\w.@-]{1,40})\s?|[^\[\]【】]{0,40})[\]】]"
    rf"|(?<!\w)\[(?P<suite_before>[\w.]{{1,40}})[-_ /](?P<word_after>{_HELD_OUT})\]"
    rf"|\((?P<word_before>{_HELD_OUT})\)(?=\s*$|\s?[:|-])|(?<=\d)\s?\((?P<word_of_step>{_HELD_OUT})\)",
    re.IGNORECASE,
)
_FUNCTION_PATTERN = re.compile(
    rf"(?<![\w.])[\w.]{{1,80}}:_{{0,2}}(?P<word>{_HELD_OUT})(?:_\w{{1,40}})?:\d{{1,6}}\b", re.IGNORECASE
)
"""Pattern of the function that loguru prints."""
_SEGMENT_PATTERN = re.compile(
    rf"(?:[|;]|\s[-\u2013\u2014]\s)\s?(?P<word>{_HELD_OUT})\s{{0,9}}(?=[|;]|\s[-\u2013\u2014]\s|$)",
    re.IGNORECASE,
)
_LABEL_PATTERN = re.compile(
    rf"\b(?:split|phase|mode|stage)['\"]?\s?[=:]\s?['\"]?(?P<word>{_HELD_OUT}|valid)"
    r"(?:[_-](?P<suite>[\w.@-]{1,40}))?(?![\w./@-])",
    re.IGNORECASE,
)
_START_PATTERN = re.compile(
    rf"(?:final\s)?(?P<word>{_HELD_OUT})(?:\s(?:results?|metrics?|set|run))?(?:\son\s[\w ./@-]{{1,40}})?"
    rf"\s{{0,9}}(?:[|:]|-\s|\s\w{{1,40}}\s?="
    rf"|[(\[]?(?:(?:at|after|for|on|@)\s)?(?:the\s)?(?:train(?:ing)?\s)?(?:global[ _])?{_STEP}\b|@\s?\d)",
    re.IGNORECASE,
)
_RESULTS_PATTERN = re.compile(
    rf"(?:final\s)?{_HELD_OUT}(?:\s(?:results?|metrics?|set|done|finished|complete)"
    r"|\son\s[\w ./@-]{1,60}(?=\s?:)|\son\s[\w./@-]{1,60}|\s?@\s?\d{1,10})?"
    r"\s?[\])]?\s{0,9}(?:[|:]|->?)?\s{0,9}(?=[A-Za-z_])",
    re.IGNORECASE,
)
_REMARK_PATTERN = re.compile(r"\s?\([^()]{0,40}\)")
_HEADING_WORDS_PATTERN = re.compile(
    rf"(?P<word>{_HELD_OUT})(?:\s(?:results?|metrics?|set|phase|stage|timing))?", re.IGNORECASE
)


class Tag(NamedTuple):
    """A label of an evaluation, or of the training."""

    word: str
    suite: str = ""
    """Name of the set of problems, if the label contains it."""


def may_have_tag(text: str) -> bool:
    """Return whether a text may contain a word of an evaluation; faster than finding it."""
    lower_text = text.lower()
    return any(hint in lower_text for hint in _HINTS)


def find_tag(text: str) -> Tag | None:
    """Return the label of a line with metrics, such as `[eval] step 5` or `step 5 | val |`."""
    if not may_have_tag(text):
        return None
    if _TRAINING_PATTERN.search(text):
        return Tag(TRAINING)
    match = (
        _LABEL_PATTERN.search(text)
        or _BRACKETS_PATTERN.search(text)
        or _SEGMENT_PATTERN.search(text)
        or _FUNCTION_PATTERN.search(text)
        or _START_PATTERN.match(text, _start(text))
    )
    return _tag(match) if match else None


def tag_of_labels(cells: Iterable[tuple[str, Any]]) -> Tag | None:
    """Return the label of a row whose column `split`, `phase` or the like contains one."""
    values = (value for name, value in cells if is_split_name(name) and isinstance(value, str))
    labels = {value.partition("(")[0].strip().lower() for value in values}
    if not labels.isdisjoint(_TRAINING_LABELS):
        return Tag(TRAINING)
    if labels.isdisjoint(_HELD_OUT_LABELS):
        return None
    return Tag("split", "test" if "test" in labels else "")


def tag_of_heading(text: str) -> Tag | None:
    """Return the label of a heading, which names a step or not: `** Evaluation at step 5 **`, `[val]`."""
    start = _start(text)
    match = _START_PATTERN.match(text, start) or _HEADING_WORDS_PATTERN.fullmatch(_words(text))
    if match is None or text.strip().lower() in {"test:", "dev:"}:  # may be in a completion
        return None
    return _tag(match)


def is_heading(text: str) -> bool:
    """Return whether a line only names what follows: it ends with a colon, or a few words are decorated."""
    if len(text) > MAX_HEADING_CHARACTERS:
        return False
    bare_text, words = text.strip(), _words(text)
    is_marked = bare_text.endswith(":") or words.isupper() or not (bare_text[:1] + bare_text[-1:]).isalnum()
    if bare_text.endswith(":") and tag_of_heading(text) is not None:
        return True
    return is_marked and 0 < len(words.split()) <= 4 and not any(map(str.isdigit, words))


def results_after_tag(text: str) -> str:
    """Return the part of a line without a step that may contain the results of an evaluation, else nothing.

    `10:00:01 INFO Validation: accuracy=0.4, reward=0.3` is such a line.
    """
    match = _RESULTS_PATTERN.match(text, _start(text)) if may_have_tag(text) else None
    return _REMARK_PATTERN.sub("", text[match.end() :]) if match else ""


def _start(text: str) -> int:
    match = _PREFIX_PATTERN.match(text)
    return match.end() if match else 0


def _words(text: str) -> str:
    return _BETWEEN_WORDS_PATTERN.sub(" ", text).strip()


def _tag(match: re.Match[str]) -> Tag:
    groups = match.groupdict()
    word = next(groups[name] for name in groups if name.startswith("word") and groups[name]).lower()
    suite = groups.get("suite") or groups.get("suite_before") or ("test" if word.startswith("test") else "")
    return Tag(word, suite)
