"""Comparing answers without computer algebra: normalised text and plain numbers, in microseconds."""

import re
from fractions import Fraction

MAX_ANSWER_CHARS = 2000
"""Longer answers are wrong; nobody boxes a page."""

_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>")
_CHOICE = re.compile(r"^\(?[a-z][.)]\s+(?=\S)", re.IGNORECASE)
_WHOLE_TEXT = re.compile(r"^\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}$")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"\\[dt]?frac(\d)(\d)")
_ROOT = re.compile(r"\\sqrt\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DROPPED = re.compile(
    r"\\left|\\right|\\[,;:! ]|\^\{?\\circ\}?|\\degree|\\\(|\\\)|\\\[|\\\]|[°$%]|\\(?=[%$#&])"
)
_MIXED = re.compile(r"(?<=\d)\s+(?=\d+/\d)")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_TIMES = re.compile(r"\\cdot|\\times|·|×")
_NUMBER = re.compile(r"\(?([+-]?\d{1,200}(?:\.\d{1,200})?)\)?(?:/\(?(\d{1,200})\)?)?")
_SUPERSCRIPTS = str.maketrans({sign: f"**{digit}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})
_MATHEMATICAL = re.compile(r"\d|\\(?!text|mathrm)[a-zA-Z]|[+*/^=<>|]|^[a-zA-Z]$")


def normalised(answer: str) -> str:
    """One spelling for answers that differ only in LaTeX, spaces or case (the book's list, section 3)."""
    text = _CHOICE.sub("", _SPECIAL.sub("", answer).strip())
    text = _WHOLE_TEXT.sub(r"\1", text)
    text = _SPACE.sub("", _MIXED.sub("+", _DROPPED.sub("", text)))  # a space between digits means something
    text = _TIMES.sub("*", text)
    text = _SHORT_FRACTION.sub(r"(\1)/(\2)", _FRACTION.sub(r"(\1)/(\2)", text))
    text = _ROOT.sub(r"sqrt(\1)", text).translate(_SUPERSCRIPTS).replace("^", "**")
    return _THOUSANDS.sub("", text).replace("{", "").replace("}", "").lower().removesuffix(".")


def as_number(text: str) -> Fraction | None:
    """The value of a normalised integer, decimal or simple fraction; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    below = int(match[2] or 1)
    return Fraction(match[1]) / below if below else None


def is_mathematical(answer: str) -> bool:
    """Whether an expected answer is worth computer algebra: digits, operators, LaTeX, or one variable."""
    return _MATHEMATICAL.search(answer.strip()) is not None


def quick_verdict(expected: str, found: str) -> bool | None:
    """Equal, different, or None: text and plain numbers cannot tell."""
    if len(found) > MAX_ANSWER_CHARS:
        return False
    if expected.isdecimal() and found.isdecimal():
        return int(expected) == int(found)
    left, right = normalised(expected), normalised(found)
    if left == right:
        return bool(left)
    numbers = as_number(left), as_number(right)
    if numbers[0] is None or numbers[1] is None:
        return None
    if numbers[0] == numbers[1]:
        return True
    both_whole = numbers[0].denominator == numbers[1].denominator == 1
    return False if both_whole else None
