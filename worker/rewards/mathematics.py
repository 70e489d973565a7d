"""Equality of mathematical answers by math-verify. It may hang: only the checking process calls it."""

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from worker.rewards.answers import for_algebra

EXTRACTION = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]


def is_equal(*, expected: str, found: str) -> bool:
    """Whether two answers, LaTeX or plain, mean the same: 1/2 and 0.5, 2x+2 and 2(x+1), {1,2} and {2,1}."""
    # math-verify's own limits need signals of the main thread and cannot interrupt C code: they are off
    sides = [
        parse(f"\\boxed{{{for_algebra(text)}}}", EXTRACTION, parsing_timeout=None)
        for text in (expected, found)
    ]
    return bool(verify(*sides, timeout_seconds=None))
