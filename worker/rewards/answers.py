r"""Compare answers without computer algebra: normalized text, plain numbers and choices.

A comparison takes microseconds. It is lenient about the spelling of an answer ([spelling](spelling.py)) and
exact about its content:

- Case, a full stop at the end, forgotten braces, percent and degree signs, currency, units and thousands
  separators are ignored: `\$1,250` is 1250. Spaces in names are not: `Jo hn` is not `John`.
- An exact expected answer requires an exact answer: `0.5` is `1/2`, but no decimal is `1/3` or `\pi`. An
  expected decimal is matched by numbers that are equal to six places.
- A choice is its letter: `(C)`, `C.`, `\textbf{C}` and `C) Paris` are `C`. In `(B) 12` only 12 counts if the
  expected answer is not a letter, and either counts if the expected answer has both.
- A list may be in any order unless the question asks for an order. Brackets belong to the answer: `\{5\}` is
  not a number and `(1, 2)` is not a set. They may be missing, but must not differ.
- The base of a number may be omitted, because the question names it, but must not differ.
- Only ASCII digits and superscripts are digits.
"""

import re
from fractions import Fraction
from functools import lru_cache

from worker.rewards.spelling import (
    normalise_formula,
    normalise_words,
    strip_label,
    strip_label_and_unit,
    unwrap,
    visible_text,
)

MAX_ANSWER_CHARS = 2000
"""Maximum length of an answer, in characters. Longer answers are wrong, and a longer expected answer
matches nothing.
"""

_CHOICE = re.compile(r"(?P<open>\(?)(?P<letter>[A-Za-z])(?P<mark>\)?[.:]?|[.:)]\)?\s*\S.*)", re.DOTALL)
_CHOICE_WITH_TEXT = re.compile(
    r"\((?P<letter>[A-Z])\)\s+(?:-?[\w$.]|\\(?:[dt]?frac|sqrt|pi|\$)).*", re.DOTALL
)
_DECIMAL = r"[+-]?(?:\d{1,200}(?:\.\d{0,200})?|\.\d{1,200})"
_NUMBER = re.compile(rf"\(?({_DECIMAL})(?:e([+-]?\d{{1,3}}))?\)?(?:/\(?([+-]?\d{{1,200}})\)?)?")
_POWER = re.compile(rf"(?:({_DECIMAL})\*)?\(?(\d{{1,6}})\)?\*\*\(?(-?\d{{1,3}})\)?")
_SUM = re.compile(r"(-?)\(?(\d{1,200})\+(\d{1,200})/(\d{1,200})\)?")
_BASED = re.compile(r"([0-9a-z.]+)(?:_|base)\(?(\d{1,2})\)?")
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}")
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_UNREAD = re.compile(rf"{_FOREIGN_DIGIT.pattern}|\\boxed")
"""Non-ASCII digits, and a box within the box. Answers that contain them are compared only as text."""
_MATHEMATICAL = re.compile(r"\d|\\(?!text|mathrm|mathbf|mbox)[a-zA-Z]|[+*/^=<>|²³π]|^[a-zA-Z]$")
_VARIABLES = re.compile(r"\s*-?\s*[a-zA-Z]{1,2}(?:\s*-\s*[a-zA-Z]{1,2})+\s*|[b-df-hj-np-tv-z]{3}|[a-z]{2}")
_WORD = re.compile("[a-zA-Z]{2}")
_TWO_LETTER_WORDS = frozenset(
    [
        *["ad", "ah", "am", "an", "as", "at", "be", "by", "do", "eh", "ex", "go", "ha", "he", "hi", "id"],
        *["if", "in", "is", "it", "la", "lo", "ma", "me", "my", "no", "of", "oh", "ok", "on", "or", "ox"],
        *["pa", "pi", "pm", "re", "sh", "so", "to", "tv", "uh", "uk", "um", "un", "up", "us", "vs"],
        *["we", "ye", "yo"],
    ]
)
_SEPARATOR = re.compile(r",(?!\d{3}(?!\d))|;|,?(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])", re.IGNORECASE)
_BRACKET = re.compile(r"\\[{}]|[()\[\]]")
_MARKED_LETTER = re.compile(r"(?<!\w)\(([A-Za-z])\)(?!\w)")
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\s*")
_BUILT_SET = re.compile(r":|\||\\mid")
_LIST = re.compile(r"[,;]|\\pm|(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])|\\(?:emptyset|varnothing)")
_ORDER = re.compile(
    r"\b(?:(?:ascending|descending|increasing|decreasing|alphabetical|chronological|numerical|correct) order"
    r"|in order(?! to| that| for)|in that order|order(?:ed)? from"
    r"|from (?:the )?(?:least|smallest|lowest|shortest|greatest|largest|highest|longest|earliest|latest) to"
    r"|(?:arrange|rank|sort) (?:the|these|them|in|by|from))\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=256)
def asks_for_order(question: str) -> bool:
    """Return whether a question asks for an ordered list, as in `in increasing order` or `from least to
    greatest`.
    """
    return _ORDER.search(question) is not None


def parse_number(text: str) -> Fraction | None:
    """Return the value of a normalized integer, decimal, fraction or power, or None for anything else."""
    if match := _NUMBER.fullmatch(text):
        denominator = int(match[3] or 1)
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or 0) / denominator if denominator else None
    if match := _POWER.fullmatch(text):
        base, exponent = int(match[2]), int(match[3])
        return Fraction(match[1] or 1) * Fraction(base) ** exponent if base else None
    if (match := _SUM.fullmatch(text)) and int(match[4]):
        value = int(match[2]) + Fraction(int(match[3]), int(match[4]))
        return -value if match[1] else value
    return None


def strip_units(expected: str, answer: str) -> tuple[str, str]:
    """Return both answers without choice labels and units.

    If the expected answer is a number, a letter after the other number is a unit.
    """
    bare_expected = strip_label_and_unit(expected)
    return bare_expected, strip_label_and_unit(
        answer, is_number=parse_number(normalise_formula(bare_expected)) is not None
    )


def spelled_alike(answer: str) -> str | None:
    """Return a common spelling for answers that are equal as text or plain numbers, such as 0.5 and 1/2.

    Return None if the answer is empty or too long.
    """
    if not answer.strip() or len(answer) > MAX_ANSWER_CHARS:
        return None
    if not is_mathematical(answer):
        return normalise_words(strip_label(visible_text(answer))) or None
    text = normalise_formula(strip_label_and_unit(answer))
    number = None if _FOREIGN_DIGIT.search(answer) else parse_number(text)
    if number is None:
        return text or None
    return (
        f"{number.numerator:x}/{number.denominator:x}"  # Python refuses to write thousands of decimal digits
    )


def is_mathematical(answer: str) -> bool:
    """Return whether an expected answer needs computer algebra, as it has digits, operators or only
    variables.
    """
    text = visible_text(answer)
    if _DATE.fullmatch(text):
        return False
    if _MATHEMATICAL.search(text):
        return True
    words = {word.lower() for word in _WORD.findall(text)}
    return _VARIABLES.fullmatch(text) is not None and not words & _TWO_LETTER_WORDS


def quick_verdict(expected: str, answer: str, *, is_ordered: bool = False) -> bool | None:
    """Return whether answers are equal, or None if text and plain numbers cannot decide.

    If it `is_ordered`, the order of a list matters.
    """
    if max(len(expected), len(answer)) > MAX_ANSWER_CHARS:
        return False
    if _UNREAD.search(answer):
        return normalise_words(expected) == normalise_words(answer)
    if expected.isdecimal() and answer.isdecimal():
        return int(expected) == int(answer)
    for find_verdict in (_choice_verdict, _base_verdict, _bracket_verdict):
        if (verdict := find_verdict(expected, answer)) is not None:
            return verdict
    if not is_mathematical(expected):
        return _text_verdict(expected, answer, is_ordered=is_ordered or has_order(expected, answer))
    verdict = _number_verdict(*map(normalise_formula, strip_units(expected, answer)))
    return None if verdict is False and "%" in answer else verdict  # 50% equals both 50 and 1/2


def list_items(answer: str) -> list[str]:
    """Return the items of a list, which may be enclosed in one pair of brackets: 1, 2 and 3."""
    text = _MARKED_LETTER.sub(r"\1", _SIZES.sub("", unwrap(visible_text(answer))))
    if bracket := outer_bracket(text):
        text = text[len(bracket) : -len(bracket)]
    if _BRACKET.search(text):
        return [text]
    return [item.strip() for item in _SEPARATOR.split(text) if item.strip()]


def has_order(expected: str, answer: str) -> bool:
    """Return whether the given answer orders a list that may be in any order, such as `(1, 2)` for `1, 2`."""
    return outer_bracket(answer) == "(" and not outer_bracket(expected) and len(list_items(answer)) > 1


def _text_verdict(expected: str, answer: str, *, is_ordered: bool) -> bool | None:
    texts = [normalise_words(strip_label(visible_text(text))) for text in (expected, answer)]
    if texts[0] == texts[1] != "":
        return True
    expected_items, answer_items = (
        [_choice_letter(item) or normalise_words(item) for item in list_items(text)]
        for text in (expected, answer)
    )
    if not is_ordered and outer_bracket(expected) != "(":
        expected_items, answer_items = sorted(expected_items), sorted(answer_items)
    return True if len(expected_items) > 1 and expected_items == answer_items else None


def _number_verdict(expected: str, answer: str) -> bool | None:
    if expected == answer:
        return bool(expected)
    numbers = parse_number(expected), parse_number(answer)
    if numbers[0] is None or numbers[1] is None:
        return None
    if numbers[0] == numbers[1]:
        return True
    return None if "." in expected else False


def _choice_verdict(expected: str, answer: str) -> bool | None:
    """Compare only letters if the expected answer is one. The verdict is final if it is marked as a
    choice.
    """
    expected, answer = (unwrap(visible_text(text)) for text in (expected, answer))
    letter = _choice_letter(answer)
    if labelled_choice := _CHOICE_WITH_TEXT.fullmatch(expected):
        return letter == labelled_choice["letter"].lower() if letter else None
    choice = _CHOICE.fullmatch(expected)
    if choice is None or len(choice[0]) > 4 or not choice["letter"].isupper():
        return None
    if letter == choice["letter"].lower():
        return True
    is_marked = bool(choice["open"] or choice["mark"])
    return False if is_marked else None


def _choice_letter(text: str) -> str | None:
    choice = _CHOICE.fullmatch(unwrap(visible_text(text)))
    return choice and choice["letter"].lower()


def _base_verdict(expected: str, answer: str) -> bool | None:
    """Compare digits and base if one of the answers names a base, else return None."""
    expected_digits, answer_digits = _digits_and_base(expected), _digits_and_base(answer)
    if expected_digits is None:
        return (
            False
            if answer_digits
            and parse_number(normalise_formula(expected)) is not None
            and answer_digits[1] != "10"
            else None
        )
    if answer_digits is None:
        return normalise_formula(answer).lstrip("0") == expected_digits[0]
    return answer_digits == expected_digits


def _digits_and_base(answer: str) -> tuple[str, str] | None:
    match = _BASED.fullmatch(normalise_formula(answer))
    return (match[1].lstrip("0"), match[2]) if match and _is_in_base(match[1], int(match[2])) else None


def _is_in_base(digits: str, base: int) -> bool:
    values = [int(digit, 36) for digit in digits if digit != "."]
    has_digit = any(digit.isdecimal() for digit in digits)
    return 2 <= base <= 36 and has_digit and all(value < base for value in values)


def _bracket_verdict(expected: str, answer: str) -> bool | None:
    """Return False if the given answer has brackets that the expected one lacks, or different ones."""
    expected_bracket, answer_bracket = outer_bracket(expected), outer_bracket(answer)
    if expected_bracket == answer_bracket or _BUILT_SET.search(answer):
        return None
    if answer_bracket == r"\{":
        return None if not expected_bracket and _LIST.search(expected) else False
    is_other_list = bool(expected_bracket == r"\{" and answer_bracket and _LIST.search(answer))
    is_one_in_a_list = not expected_bracket and answer_bracket == "[" and not _LIST.search(answer)
    return False if is_other_list or is_one_in_a_list else None


def outer_bracket(answer: str) -> str:
    """Return the bracket that closes at the end of the answer, or "" if there is none."""
    text = _SIZES.sub("", visible_text(answer))
    first, depth = "", 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0][-1] in "({[" else -1
        first = first or (bracket[0] if bracket.start() == 0 else " ")
        if depth <= 0:
            return first.strip() if bracket.end() == len(text) else ""
    return ""
