r"""Comparing answers without computer algebra: normalised text, plain numbers and choices, in microseconds.

Deliberately lenient, in the order in which people expect it of a grader of boxed answers:

- Case, spaces in formulas, `\left`, `\text`, braces, `$`, a full stop at the end and the marks of a chat
  template do not count; names and sentences keep their spaces (`Jo hn` is not `John`).
- Percent and degree signs, currency and thousands separators do not count: `50%` is 50, `\$1,250` is 1250.
  Nor do units: computer algebra drops those it knows, so `10 cm` is 10.
- A choice is its letter: `(C)`, `C.`, `\textbf{C}` and `C) Paris` are `C`. Of `c. 3` only the 3 counts where
  the expected answer is no letter.
- A number in a base needs the same base, where the expected answer names one: `11_2` is not `11`.
- Decimals are compared with fractions to six places, and `x = 3` is 3.
"""

import re
from fractions import Fraction

MAX_ANSWER_CHARS = 2000
"""Longer answers are wrong, and an expected answer that is longer matches nothing: nobody boxes a page."""

_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>")
_LABEL = re.compile(r"^\(?[a-z][.)]\s+(?=\S)", re.IGNORECASE)
_CHOICE = re.compile(r"(?P<open>\(?)(?P<letter>[A-Za-z])(?P<mark>\)?[.:]?|[.:)]\)?\s*\S.*)", re.DOTALL)
_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"\\[dt]?frac(\d)(\d)")
_ROOT = re.compile(r"\\sqrt\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DROPPED = re.compile(
    r"\\left|\\right|\\[,;:! ]|\^\{?\\circ\}?|\\degree|\\\(|\\\)|\\\[|\\\]|[°$%]|\\(?=[%$#&])"
)
_THIN_SPACE = re.compile(r"\\[,;: ]|~")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_SPACES_OF_TEXT = re.compile(r"\s+(?=[^\w\s])|(?<=[^\w\s])\s+")
_TIMES = re.compile(r"\\cdot|\\times|·|×")
_MIXED = re.compile(r"(?<![\d.)}])(\d{1,200})\s+(\d{1,200}/\d{1,200})(?!\d)")
_SIGNS = str.maketrans({"−": "-", "–": "-", "÷": "/", "⁄": "/", "∕": "/"})
_RAISED = re.compile("⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_RAISED_SIGNS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SYMBOLS = str.maketrans({"π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "∪": r"\cup "})
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d{1,200}(?:\.\d{1,200})?)[eE]([+-]?\d{1,3})(?!\w)")
_DECIMAL = r"[+-]?(?:\d{1,200}(?:\.\d{0,200})?|\.\d{1,200})"
_NUMBER = re.compile(rf"\(?({_DECIMAL})(?:e([+-]?\d{{1,3}}))?\)?(?:/\(?([+-]?\d{{1,200}})\)?)?")
_POWER = re.compile(rf"(?:({_DECIMAL})\*)?\(?(\d{{1,6}})\)?\*\*\(?(-?\d{{1,3}})\)?")
_SUM = re.compile(r"(-?)\(?(\d{1,200})\+(\d{1,200})/(\d{1,200})\)?")
_BASED = re.compile(r"([0-9a-z.]+)_\(?(\d{1,2})\)?")
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}")
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


def normalised(answer: str) -> str:
    """One spelling for formulas that differ only in LaTeX, spaces or case."""
    text = _plain(answer)
    # a space between digits means something
    text = _SPACE.sub("", _MIXED.sub(r"(\1+\2)", _DROPPED.sub("", text)))
    text = _TIMES.sub("*", text)
    text = _SHORT_FRACTION.sub(r"(\1)/(\2)", _FRACTION.sub(r"(\1)/(\2)", text))
    text = _ROOT.sub(r"sqrt(\1)", text).replace("^", "**")
    text = _THOUSANDS.sub("", _THOUSANDS.sub("", text.replace("{,}", ",")))
    return text.replace("{", "").replace("}", "").lower().removesuffix(".")


def as_text(answer: str) -> str:
    """One spelling for words, which keep the spaces between them."""
    text = _DROPPED.sub("", _THIN_SPACE.sub(" ", _plain(answer)))
    text = _SPACES_OF_TEXT.sub("", " ".join(text.split()))
    return text.replace("{", "").replace("}", "").casefold().removesuffix(".")


def for_algebra(answer: str) -> str:
    """The answer in the LaTeX that computer algebra reads: no raised digits, `1e3`, `**` or mixed numbers."""
    text = _RAISED.sub(_raised, _SPECIAL.sub("", answer)).translate(_SIGNS).translate(_SYMBOLS)
    text = _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text.replace("**", "^"))
    return _MIXED.sub(r"(\1+\2)", text)


def as_number(text: str) -> Fraction | None:
    """The value of a normalised whole number, decimal, fraction or power; None for anything else."""
    if match := _NUMBER.fullmatch(text):
        below = int(match[3] or 1)
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or 0) / below if below else None
    if match := _POWER.fullmatch(text):
        base, exponent = int(match[2]), int(match[3])
        return Fraction(match[1] or 1) * Fraction(base) ** exponent if base else None
    if (match := _SUM.fullmatch(text)) and int(match[4]):
        value = int(match[2]) + Fraction(int(match[3]), int(match[4]))
        return -value if match[1] else value
    return None


def spelled_alike(answer: str) -> str | None:
    """One spelling for answers that text and plain numbers show to be equal: 0.5 and 1/2, 1,000 and 1000.

    None for an empty answer or one that is too long to be one.
    """
    if not answer.strip() or len(answer) > MAX_ANSWER_CHARS:
        return None
    if not is_mathematical(answer):
        return as_text(answer) or None
    text = normalised(answer)
    number = as_number(text)
    if number is None:
        return text or None
    return f"{number.numerator:x}/{number.denominator:x}"  # Python refuses to write thousands of decimals


def is_mathematical(answer: str) -> bool:
    """Whether an expected answer is worth computer algebra: it has digits, operators or only variables."""
    text = answer.strip()
    if _DATE.fullmatch(text):
        return False
    if _MATHEMATICAL.search(text):
        return True
    words = {word.lower() for word in _WORD.findall(text)}
    return _VARIABLES.fullmatch(text) is not None and not words & _TWO_LETTER_WORDS


def quick_verdict(expected: str, found: str) -> bool | None:
    """Equal, different, or None: text and plain numbers cannot tell."""
    if max(len(expected), len(found)) > MAX_ANSWER_CHARS:
        return False
    if expected.isdecimal() and found.isdecimal():
        return int(expected) == int(found)
    for verdict_of in (_choice_verdict, _based_verdict):
        if (verdict := verdict_of(expected, found)) is not None:
            return verdict
    if not is_mathematical(expected):
        return True if as_text(expected) == as_text(found) != "" else None
    return _number_verdict(normalised(expected), normalised(found))


def _number_verdict(left: str, right: str) -> bool | None:
    if left == right:
        return bool(left)
    numbers = as_number(left), as_number(right)
    if numbers[0] is None or numbers[1] is None:
        return None
    if numbers[0] == numbers[1]:
        return True
    both_whole = numbers[0].denominator == numbers[1].denominator == 1
    return False if both_whole else None


def _choice_verdict(expected: str, found: str) -> bool | None:
    """By the letter alone, where the expected answer is one; final where it is marked as a choice."""
    wanted, given = _CHOICE.fullmatch(_unwrapped(expected)), _CHOICE.fullmatch(_unwrapped(found))
    if wanted is None or len(wanted[0]) > 4 or not wanted["letter"].isupper():
        return None
    if given is not None and given["letter"].upper() == wanted["letter"]:
        return True
    is_marked = bool(wanted["open"] or wanted["mark"])
    return False if is_marked else None


def _based_verdict(expected: str, found: str) -> bool | None:
    """Digits and base, where the expected answer names a base; None where it names none."""
    wanted = _BASED.fullmatch(normalised(expected))
    if wanted is None or not _is_in_base(wanted[1], int(wanted[2])):
        return None
    given = _BASED.fullmatch(normalised(found))
    return given is not None and (given[1].lstrip("0"), given[2]) == (wanted[1].lstrip("0"), wanted[2])


def _is_in_base(digits: str, base: int) -> bool:
    values = [int(digit, 36) for digit in digits if digit != "."]
    return 2 <= base <= 36 and digits[0].isdecimal() and all(value < base for value in values)


def _plain(answer: str) -> str:
    """The answer without a template's marks, a label and wrappers of text, its signs as ASCII has them."""
    text = _LABEL.sub("", _SPECIAL.sub("", answer).strip())
    return _RAISED.sub(_raised, _unwrapped(text)).translate(_SIGNS)


def _unwrapped(text: str) -> str:
    return _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", text)).strip()


def _raised(match: re.Match[str]) -> str:
    digits = match[0].translate(_RAISED_SIGNS)
    return f"^{digits}" if len(digits) == 1 else f"^{{{digits}}}"
