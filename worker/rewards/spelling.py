r"""Normalize the spelling of answers that differ only in notation.

- Only the visible part of LaTeX counts: colours, fonts, `\left`, `\text`, invisible characters and control
  tokens of chat templates are removed. Spaces are unified, and groups of three digits form one number.
- Units after a number are dropped: wrapped ones (`15\mbox{ cm}^2`, even if backslash or braces are missing),
  words (`7 apples`) and known short ones (`15cm2`). A single letter is a unit after a space. `5m` is a
  product, unless the expected answer is a number.
- A letter followed by a digit is a name: `x2` is `x_2` and not `2x`.
"""

import re

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>")
_COLOUR = re.compile(
    r"\\(?:textcolor|mathcolor|colorbox|color)(?![a-zA-Z])\s*(?:\[[^\[\]]*\])?\s*\{[^{}]*\}"
    r"|\\(?:displaystyle|textstyle|boldmath|bfseries|bf|rm|it|sf|tt|large|Large|huge)(?![a-zA-Z])"
)
_BLANK = re.compile(r"(?<!\\)(?:\\[,;: ]|\\q?quad(?![a-zA-Z])|~)|[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_GROUPED = re.compile(r"(?<![\w.,])(?<!\d )([1-9]\d{0,2})((?: \d{3}){1,60})(?! ?\d|/)")
_OUTER_BRACES = re.compile(r"\s*\{([^{}]*)\}\s*")
_LABEL = re.compile(
    r"(?:\([a-z]\)|[a-z][.)])\s+(?=\S)"
    r"(?![+*/^=<>!|)]|-\s|\\(?:cdot|times|div|cup|cap|in|le|ge|leq|geq|lt|gt|neq?|pm)(?![a-z]))",
    re.IGNORECASE,
)
_WRAPPERS = (
    r"(?:text(?:rm|bf|it|sf|tt|normal)?|math(?:rm|bf|it|sf|tt)|mbox|emph|boldsymbol|bm|underline|fbox)"
)
_WRAPPED = re.compile(rf"\\{_WRAPPERS}\s*\{{([^{{}}]*)\}}")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"\\[dt]?frac(\d)(\d)")
_ROOT = re.compile(r"\\sqrt\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DROPPED = re.compile(r"\\left|\\right|\\!|\^\{?\\circ\}?|\\degree|\\\(|\\\)|\\\[|\\\]|[°$%]|\\(?=[%$#&])")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_SPACES_OF_TEXT = re.compile(r"\s+(?=[^\w\s])|(?<=[^\w\s])\s+")
_TIMES = re.compile(r"\\cdot|\\times|·|×")
_MIXED = re.compile(r"(?<![\d.)}])(\d{1,200})\s+(\d{1,200}/\d{1,200})(?!\d)")
_SIGNS = str.maketrans({"−": "-", "–": "-", "÷": "/", "⁄": "/", "∕": "/"})
_RAISED = re.compile("⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_RAISED_SIGNS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SYMBOLS = str.maketrans({"π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "∪": r"\cup "})
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d{1,200}(?:\.\d{1,200})?)[eE]([+-]?\d{1,3})(?!\w)")
_DECIMAL = re.compile(r"(?:(\^)|(?<![\d.])(?<!\d,(?=\d{3}\.)))(\d{0,200})\.(\d{1,200})(?![\d.])")
_REPEATING = re.compile(r"(?<![\d.])(\d{0,200})\.(\d{0,200})\\overline\s*\{(\d{1,200})\}")
_INDEXED = re.compile(r"(\\[a-zA-Z]+\s*)|([a-zA-Z])(\d{1,20})(?![\d.])")

_SHORT_UNITS = (
    "mm|cm|dm|km|nm|in|ft|yd|mi|mg|kg|lbs?|oz|ms|secs?|mins?|hrs?|yrs?|days?|m[lL]|cl|dl|gal|mph|kmh|kph|cc|cups?"
    "|deg|rad|k?Hz|k?Pa|kJ|kWh?|mol|USD|EUR|pct|men|sq|cu|per"
)
_POWER_OF_UNIT = r"(?:\s?\^?\{?-?[1-4]\}?(?!\d))?"
_UNIT_ENDS = r"(?=\s*(?:[,;)]|\\\}|\.?\s*\Z))"
_WRAPPED_UNIT = re.compile(
    rf"(?:(?<=\S)\s*\\|(?<=[\d}})])\s*\\?\\?){_WRAPPERS}\s*"
    rf"(?:\{{(?P<words>[^{{}}\d]*)\}}|(?:{_SHORT_UNITS})(?![a-zA-Z])){_POWER_OF_UNIT}{_UNIT_ENDS}"
)


def _units(letter: str) -> re.Pattern[str]:
    unit = rf"(?:(?:{_SHORT_UNITS})(?![a-zA-Z])|(?<=\s)[a-zA-Z]{{4,40}}|{letter}[mgshlL](?![a-zA-Z]))"
    further_unit = rf"(?:\s*[/*]\s*[a-zA-Z]{{1,40}}|\s+{unit}){_POWER_OF_UNIT}"
    return re.compile(
        rf"(?:(?<=[\d}})])|(?<=\\pi))\s*(?P<words>{unit}{_POWER_OF_UNIT}(?:{further_unit}){{0,5}}){_UNIT_ENDS}"
    )


_UNIT = _units(letter=r"(?<=\s)")
_UNIT_OF_NUMBER = _units(letter="")
_NO_UNITS = re.compile(
    r"\b(?:and|or|to|half|halves|(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|quarter|dozen|hundred"
    r"|hundredth|thousand|thousandth|million|billion|trillion)s?|squared|cubed|factorial|plus|minus|times|over"
    r"|modulo|choose|base|less|more|than|remainder|sqrt|sinh|cosh|tanh|root|infinity|not|negative|zero)\b",
    re.IGNORECASE,
)
"""Pattern of words after a number that change its value."""


def visible_text(answer: str) -> str:
    """Return the visible text of an answer with unified spaces, minus signs and superscript digits."""
    text = _COLOUR.sub("", _INVISIBLE.sub("", _SPECIAL.sub("", answer)))
    text = _RAISED.sub(_raise_digits, _BLANK.sub(" ", text)).translate(_SIGNS).strip().removesuffix(r"\\")
    text = _OUTER_BRACES.sub(r"\1", text) if _OUTER_BRACES.fullmatch(text) else text
    return _GROUPED.sub(lambda match: match[0].replace(" ", ""), text).strip()


def strip_label_and_unit(answer: str, *, is_number: bool = False) -> str:
    """Return the visible text of an answer without choice label and units.

    If `is_number` is true, the answer is compared with a number, so a single letter after it can only be a
    unit.
    """
    text = strip_label(visible_text(answer))
    for pattern in (_WRAPPED_UNIT, _UNIT_OF_NUMBER if is_number else _UNIT):
        text = pattern.sub(_strip_unit, text)
    return text


def strip_label(text: str) -> str:
    r"""Return the visible text after the label of a choice, such as `12` for `\textbf{(B)} 12`."""
    label = _LABEL.match(unwrap(text))
    return unwrap(text)[label.end() :] if label else text


def normalise_formula(answer: str) -> str:
    """Return a common spelling for formulas that differ only in LaTeX, spaces or case."""
    text = unwrap(visible_text(answer))
    # A space between digits is significant.
    text = _SPACE.sub("", _MIXED.sub(r"(\1+\2)", _DROPPED.sub("", text)))
    text = _REPEATING.sub(_convert_repeating, _TIMES.sub("*", text))
    text = _SHORT_FRACTION.sub(r"(\1)/(\2)", _FRACTION.sub(r"(\1)/(\2)", text))
    text = _ROOT.sub(r"sqrt(\1)", text).replace("^", "**")
    text = _THOUSANDS.sub("", _THOUSANDS.sub("", text.replace("{,}", ",")))
    return text.replace("{", "").replace("}", "").lower().removesuffix(".")


def normalise_words(answer: str) -> str:
    """Return a common spelling for words, with the spaces between them."""
    text = _DROPPED.sub("", unwrap(visible_text(answer)))
    text = _SPACES_OF_TEXT.sub("", " ".join(text.split()))
    return text.replace("{", "").replace("}", "").casefold().removesuffix(".")


def for_algebra(answer: str) -> str:
    """Return the answer in LaTeX for computer algebra, without superscripts, `1e3`, `**` or mixed numbers."""
    text = visible_text(answer).translate(_SYMBOLS)
    text = _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text.replace("**", "^"))
    text = _REPEATING.sub(_convert_repeating, text)
    return _INDEXED.sub(_convert_index, _MIXED.sub(r"(\1+\2)", text))


def convert_decimals(text: str) -> str:
    """Convert the decimals in a formula to fractions, which are compared exactly: 0.5 becomes 5/10."""
    return _DECIMAL.sub(_convert_fraction, text)


def unwrap(text: str) -> str:
    r"""Return a text without `\text{}` and similar commands around words, up to two levels deep."""
    return _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", text)).strip()


def _strip_unit(match: re.Match[str]) -> str:
    return match[0] if _NO_UNITS.search(match["words"] or "") else ""


def _raise_digits(match: re.Match[str]) -> str:
    digits = match[0].translate(_RAISED_SIGNS)
    return f"^{digits}" if len(digits) == 1 else f"^{{{digits}}}"


def _convert_fraction(match: re.Match[str]) -> str:
    fraction = f"\\frac{{{match[2]}{match[3]}}}{{1{'0' * len(match[3])}}}"
    return f"^{{{fraction}}}" if match[1] else fraction


def _convert_repeating(match: re.Match[str]) -> str:
    """Convert a repeating decimal to a fraction: 1.2(34 repeating) is (1234 - 12) / 990."""
    digits, period = f"{match[1]}{match[2]}", match[3]
    return f"\\frac{{{int(digits + period) - int(digits or 0)}}}{{{'9' * len(period)}{'0' * len(match[2])}}}"


def _convert_index(match: re.Match[str]) -> str:
    return match[1] or f"{match[2]}_{{{match[3]}}}"
