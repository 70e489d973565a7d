"""Detect the script of a completion by counting letters, without a language model."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from backend.rollouts.tags import CLOSE_TAG

_MARKUP_PATTERN = re.compile(r"\\[A-Za-z]+|</?[A-Za-z_]+>")
_VARIABLE_PATTERN = re.compile(r"(?<![^\W\d_])[A-Za-z](?![^\W\d_])")
_SCRIPTS = {"CJK": "HAN", "HIRAGANA": "HAN", "KATAKANA": "HAN"}
_SYMBOLS = {"GREEK", "MATHEMATICAL", "MODIFIER", "SCRIPT", "DOUBLE-STRUCK", "BLACK-LETTER", "MICRO"}
"""First words of the Unicode names of letters that are formula symbols in any language."""


def script_share(prompt: str, text: str) -> float:
    """Return the share of the text's letters that are in the script of the prompt; 1 for a text without
    letters.

    Source: language consistency reward, DeepSeek-R1, arXiv:2501.12948, section 2.3.2, by script.
    """
    letters = _letters(text)
    script = _main_script(_letters(prompt)) or _main_script(letters)
    return letters[script] / letters.total() if letters else 1.0


def script_consistent(prompt: str, text: str) -> float:
    """Return 1 if thoughts and answer are both mostly in the script of the prompt, else 0.

    A part without letters matches any script. Source: Magistral, arXiv:2506.10910, section 2.2.4.
    """
    thoughts, _, answer = text.rpartition(CLOSE_TAG)
    scripts = {_main_script(_letters(passage)) for passage in (prompt, thoughts, answer)}
    return float(len(scripts - {""}) <= 1)


def _letters(text: str) -> Counter[str]:
    """Count the letters by script, without markup, formula symbols and single Latin letters."""
    prose = _VARIABLE_PATTERN.sub(" ", _MARKUP_PATTERN.sub(" ", text))
    return Counter(_scripts(prose))


def _scripts(text: str) -> Iterator[str]:
    for character in text:
        if character.isalpha() and (script := _script(character)):
            yield script


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    """Return the script of a character, the first word of its name; empty for formula symbols."""
    first = unicodedata.name(character, "").partition(" ")[0]
    return "" if first in _SYMBOLS else _SCRIPTS.get(first, first)


def _main_script(letters: Counter[str]) -> str:
    """Return the script with the most letters; empty if there are no letters."""
    return letters.most_common(1)[0][0] if letters else ""
