"""Printed pairs of a name and a number, such as `reward: 0.5`, and the words before them."""

import re
from itertools import islice
from typing import NamedTuple

from backend.exchange.imports.console.forms import NUMBER
from backend.exchange.imports.console.rows import TRAINING
from backend.exchange.imports.names import is_known
from backend.exchange.imports.splits import is_held_out_name
from backend.exchange.imports.table import number_in

MAX_NAME_WORDS = 3
"""Maximum number of words of a name before `=`."""
MAX_LABELS = 20
"""Maximum number of labels of evaluations in a line."""

_PAIR_PATTERN = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@()%-]{0,79}(?: [A-Za-z_/][\w./@()%-]{0,39}){0,4})\s{0,2}([:=])\s{0,12}"
    rf"(\d{{1,9}}/[1-9]\d{{0,9}}|(?:{NUMBER})\s?%?)(?:\s?(?!(?i:e?val|valid|test|train)\b)[A-Za-z/]{{1,8}}(?!\s{{0,3}}[:=]))?(?=$|[\s,;|\])}}>±]|\.(?:\s|$))"
)
_SPACED_PAIR_PATTERN = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,79}(?: [A-Za-z_][\w./@-]{0,39}){0,3}) {1,12}"
    rf"(\d{{1,9}}/[1-9]\d{{0,9}}|(?:{NUMBER})\s?%?)s?(?=$|[\s,;|±])"
)
_SPACED_VALUE_PATTERN = re.compile(r"[\w./@-] {1,12}[-+]?[\d.n]")
"""Pattern of a number after a space, without which a text has no pairs of that kind."""
_NUMBER_BEFORE_PATTERN = re.compile(
    r"(?:^|(?<=\s)|(?<=\])|(?<=[A-Za-z_]:))[#\[(]?\s?(\d{1,8})\s{0,2}[\])]?\s{0,2}[:|.,-]?\s{1,4}(?=[A-Za-z])"
)
"""Pattern of a number before pairs that may be their step; the seconds of a time are not."""
MAX_CHARACTERS_BEFORE, MAX_NUMBERS_BEFORE = 100, 4
_TWO_PAIRS_PATTERN = re.compile(r"[A-Za-z][:= ]{1,3}[-+]?[\d.].*[A-Za-z][:= ]{1,3}[-+]?[\d.n]")
_COUNTER_PATTERN = re.compile(r"[\[(]\s{0,3}\d{1,10}\s?/\s?\d{1,10}\s{0,3}[\])]")
_MEAN_PATTERN = re.compile(rf"\u03bc=({NUMBER}), \u03c3=(?:{NUMBER})")
"""Pattern of a mean and a standard deviation, as mlx-lm-lora prints them."""
_ERROR_PATTERN = re.compile(
    rf"\s?(?:±|\+/-)\s?(?:{NUMBER})|\(\s?(?:(?:±|\+/-|(?:std|sd|\u03c3)\s?[:=]?)\s?(?:{NUMBER})"
    r"|[\d.]{1,9}\s?(?:m?s|min|sec(?:onds)?))\s?\)|(?<=/\d|\d\d)\s=\s?[\d.]{1,8}\s?%"
)
"""Pattern of an error, or an error or a time in parentheses, after a value."""
_TIME_PATTERN = re.compile(
    r"(?:\b(?:eta|elapsed|took|time)\s{1,4})?(?<![\w.])"
    r"(?:\d{1,7}(?:\.\d{1,6})?\s?(?:ms|s|sec|min|h|it)(?:/\w{1,6})?(?!\w)|\d{1,3}:\d\d(?::\d\d)?(?![\w:]))",
    re.IGNORECASE,
)
_PARENT_PATTERN = re.compile(
    r"(?<![\w/])(?:rewards?|returns?|advantages?|kl|entropy|lengths?): (?=(?:mean|avg|std|min|max)\b)",
    re.IGNORECASE,
)
"""Pattern of the metric before its mean, as in `rewards: mean=0.3`."""
_AT_STEP_PATTERN = re.compile(
    r"(?<![\w./@-])([A-Za-z_][\w./@-]{0,79}(?: [A-Za-z_][\w./@-]{0,39}){0,3}?) (?:of|at|in|for|after) "
    rf"(?:step|iteration|update|epoch|episode) \d{{1,10}}\s?[:=]\s?((?:{NUMBER})\s?%?)(?=$|[\s,;|±])",
    re.IGNORECASE,
)
"""Pattern of `Average reward after step 12: 0.3`."""
_HELD_OUT_WORDS = {"eval", "evaluation", "val", "validation", "test", "held-out", "heldout", "holdout"}
"""Words before a name that say so; `dev` and `valid` also mean a deviation and a valid format."""
_HELD_OUT = "held out"
_INLINE_PATTERN = re.compile(
    r"(?<![\w./@-])(?:(?P<held_out>eval(?:uation)?|val(?:idation)?|test)|train(?:ing)?)"
    r"(?:\s?:\s{1,9}|\]\s{1,9}|\s?\|\s?|\()(?=[A-Za-z_])",
    re.IGNORECASE,
)
"""Pattern of a label before pairs, as in `train: reward=0.4 eval: reward=0.3`; others than those with a colon
only count if a line has labels of both kinds.
"""
_END_OF_LABEL_PATTERN = re.compile(r"[|;)\]]")
_STEP_PATTERN = re.compile(
    r"(?<![A-Za-z_])(?:global[ _]?step|train(?:ing)?[ _]step|step|iter(?:ation)?|it|epoch|update)"
    r"(?:-|\s{0,10})\d{1,10}(?:\s?/\s{0,8}\d{1,10})?(?![\d.])",
    re.IGNORECASE,
)
_SEPARATOR_PATTERN = re.compile(r"[|;]|[,:]\s|\s-\s")
_SEPARATORS = " ,;|-\t"
_NON_METRIC_NAMES = {
    "pid", "ip", "port", "rank", "local_rank", "seed", "eta", "ep", "epoch", "step", "global_step",
    "global step", "train step", "training step", "iter", "iteration", "it", "update", "episode", "rollout",
    "batch",
}  # fmt: skip
"""Names before numbers that are not metrics."""
_EVALUATION_PATTERN = re.compile(
    r"\bEvaluated (?:\S{1,200} on )?(?P<suite>[\w.@/+-]{1,80}) in [\d.]{1,12}s \((?P<results>.{1,1000})\)\s*$"
)
_BULLET = re.compile(r"^[\s•*+>-]+")
_GRID_CELL_PATTERN = re.compile(rf"[│|]\s*([\w./@-]{{1,200}})\s*[│|]\s*({NUMBER})\s*(?=[│|])")


class _Pair(NamedTuple):
    start: int
    """Position of the name in the line."""
    name: str
    number: str
    is_held_out: bool = False
    """Whether the word before the name says that it is of an evaluation."""


def pairs(text: str) -> list[tuple[str, str]]:
    """Return all `name: number` and `name=number` pairs of a line."""
    return [(pair.name, pair.number) for pair in _pairs(text)]


class SplitPairs(NamedTuple):
    """The pairs of a line by what the words before them say."""

    training: list[tuple[str, str]]
    held_out: list[tuple[str, str]]
    is_labelled: bool
    """Whether the pairs of the training have a label as well."""


def pairs_by_split(text: str) -> SplitPairs:
    """Return the pairs of a line, and apart from them those that are of an evaluation.

    In `step 5: reward=0.4, eval accuracy=0.3` and `step 5: reward=0.4 | val: reward=0.3`, these are the
    second pairs.
    """
    line_pairs = _pairs(text)
    is_label = bool(line_pairs) and is_held_out_name(line_pairs[0].name) and " " in line_pairs[0].name
    if is_label and _PAIR_PATTERN.search(text) is None:  # `step 10 eval reward 0.1 accuracy 0.3`
        return SplitPairs([], [(pair.name, pair.number) for pair in line_pairs], is_labelled=False)
    spans = _labelled_spans(text) if line_pairs else []
    labels = [
        next((word for start, end, word in spans if start < pair.start < end), "") for pair in line_pairs
    ]
    cells_by_label: dict[str, list[tuple[str, str]]] = {"": [], TRAINING: [], _HELD_OUT: []}
    for pair, label in zip(line_pairs, labels, strict=True):
        cells_by_label[_HELD_OUT if pair.is_held_out else label].append((pair.name, pair.number))
    training = cells_by_label[""] + cells_by_label[TRAINING]
    return SplitPairs(training, cells_by_label[_HELD_OUT], bool(training) and not cells_by_label[""])


def _labelled_spans(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, label) of the parts of a line that follow a label."""
    matches = list(islice(_INLINE_PATTERN.finditer(text), MAX_LABELS))
    has_both = len({bool(match["held_out"]) for match in matches}) > 1
    labels = [match for match in matches if has_both or match[0].rstrip().endswith(":")]
    ends = [match.start() for match in labels[1:]] + [len(text)]
    spans = []
    for match, next_start in zip(labels, ends, strict=False):
        is_segment = match[0].rstrip().endswith(("|", "]"))
        separator = None if is_segment else _END_OF_LABEL_PATTERN.search(text, match.end(), next_start)
        end = separator.start() if separator else next_start
        spans.append((match.start(), end, _HELD_OUT if match["held_out"] else TRAINING))
    return spans


def _pairs(text: str) -> list[_Pair]:
    line_pairs = []
    text = _PARENT_PATTERN.sub(lambda parent: parent[0][:-2] + "__", _MEAN_PATTERN.sub(r"\1", text))
    for match in _PAIR_PATTERN.finditer(text):
        words, name = "", match[1]
        if match[2] == ":":
            name = _without_sentence(name)
        else:
            words, name = _split_name(name)
        is_place_in_code = match[2] == ":" and text[: match.start()].endswith(":") and match[3].isdecimal()
        is_share = "/" in match[3] and number_in(name, match[3]) is None
        is_metric = name.lower() not in _NON_METRIC_NAMES and not name.endswith(".py") and not is_share
        if is_metric and not is_place_in_code:
            is_value = " " not in words and text[: match.start()].endswith("=")  # of `dataset=test`
            is_held_out = words.rpartition(" ")[2].lower() in _HELD_OUT_WORDS and not is_value
            number = match[3].replace(",", "")
            line_pairs.append(_Pair(match.end(1) - len(name), name, number, is_held_out))
    other_text = _PAIR_PATTERN.sub(lambda match: " " * len(match[0]), text)
    if line_pairs and _SPACED_VALUE_PATTERN.search(_STEP_PATTERN.sub("", other_text)) is None:
        return line_pairs
    step = _STEP_PATTERN.search(text)
    other_pairs = max(
        _spaced_pairs(other_text), _spaced_pairs(other_text, step.end()) if step else [], key=len
    )
    return line_pairs + [pair for pair in other_pairs if is_known(pair.name) or not line_pairs]


def _split_name(text: str) -> tuple[str, str]:
    """Return the words before a name, and the name: the longest known one, or else the last word."""
    words = text.split(" ")
    if len(words) == 1:
        return "", text
    starts = range(max(0, len(words) - MAX_NAME_WORDS), len(words) - 1)
    start = next(
        (
            start
            for start in starts
            if words[start].lower() not in _HELD_OUT_WORDS and is_known(" ".join(words[start:]))
        ),
        len(words) - 1,
    )
    return " ".join(words[:start]), " ".join(words[start:])


def _without_sentence(name: str) -> str:
    """Return a name without the end of a sentence before it; `Grad. Norm` is a name."""
    _, separator, following = name.rpartition(". ")
    return following if separator and is_known(following) else name


def _spaced_pairs(text: str, start: int = 0) -> list[_Pair]:
    """Return the pairs of `step 12 | reward 0.5 | kl 0.1`, if there are several or the metric is known.

    Text before the offset `start` is left out, such as the prefix of a logger.
    """
    line_pairs: list[_Pair] = []
    line = text
    for pattern in (_ERROR_PATTERN, _COUNTER_PATTERN, _STEP_PATTERN, _TIME_PATTERN):
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    separators = [match.span() for match in _SEPARATOR_PATTERN.finditer(text, start)]
    starts, ends = [start, *(end for _, end in separators)], [*(start for start, _ in separators), len(text)]
    for segment_start, end in zip(starts, ends, strict=True):
        segment_pairs = list(_SPACED_PAIR_PATTERN.finditer(text, segment_start, end))
        if not _SPACED_PAIR_PATTERN.sub("", text[segment_start:end]).strip():
            line_pairs += [
                _Pair(match.start(1), match[1], match[2].replace(",", ""))
                for match in segment_pairs
                if match[1].lower() not in _NON_METRIC_NAMES and number_in(match[1], match[2]) is not None
            ]
    if len(line_pairs) > 1 or (line_pairs and is_known(line_pairs[0].name)):
        return line_pairs
    return [
        _Pair(match.start(), match[1], match[2].replace(",", "")) for match in _AT_STEP_PATTERN.finditer(line)
    ]


def only_pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a text without other content, also those without signs, or none."""
    if cells := lone_pairs(text):
        return cells
    return [] if _SPACED_PAIR_PATTERN.sub("", text).strip(_SEPARATORS) else pairs(text)


class NumberedPairs(NamedTuple):
    """The pairs of a line and the number before them."""

    number: int
    pairs: list[tuple[str, str]]


def numbered_pairs(text: str) -> NumberedPairs | None:
    """Return the pairs of lines such as `#12 loss 0.5 reward 0.3` and `INFO [12] loss=0.5 reward=0.3`."""
    if _TWO_PAIRS_PATTERN.search(text) is None:
        return None
    for match in islice(_NUMBER_BEFORE_PATTERN.finditer(text, 0, MAX_CHARACTERS_BEFORE), MAX_NUMBERS_BEFORE):
        cells = only_pairs(text[match.end() :])
        if len(cells) > 1 and any(is_known(name) for name, _ in cells):
            return NumberedPairs(int(match[1]), cells)
    return None


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
    bare_text = _BULLET.sub("", _ERROR_PATTERN.sub("", _MEAN_PATTERN.sub(r"\1", text)))
    first = _PAIR_PATTERN.search(bare_text)
    if first is None or bare_text[: first.start()].strip(_SEPARATORS):
        return []
    return [] if _PAIR_PATTERN.sub("", bare_text).strip(_SEPARATORS) else pairs(bare_text)
