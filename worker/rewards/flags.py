"""Flags of conspicuous completions, by which rollouts can be filtered."""

from backend.config.boxed import last_boxed
from backend.rollouts.repetition import distinct_gram_share
from backend.rollouts.script import script_share
from backend.rollouts.tags import CLOSE_TAG, OPEN_TAG

REPETITIVE_BELOW = 1 / 3
SCRIPT_BELOW = 1 / 2


def completion_flags(
    text: str,
    *,
    prompt: str,
    is_scored: bool,
    is_truncated: bool,
    is_correct: bool | None,
    expects_think: bool,
) -> tuple[str, ...]:
    r"""Return the flags of a completion in this order:

    truncated    it was cut at the length limit
    wrong        it was graded as not correct
    unparsed     it has no complete \boxed{}
    no_think     thinking tags are rewarded, but missing or unpaired
    repetitive   its text repeats itself
    language     most of its letters are not of the prompt's script
    unscored     a reward had no value for it
    """
    is_raised_by_flag = {
        "truncated": is_truncated,
        "wrong": is_correct is False,
        "unparsed": last_boxed(text) is None,
        "no_think": expects_think and not (OPEN_TAG in text and CLOSE_TAG in text),
        "repetitive": distinct_gram_share(text) < REPETITIVE_BELOW,
        "language": not (prompt.isascii() and text.isascii()) and script_share(prompt, text) < SCRIPT_BELOW,
        "unscored": not is_scored,
    }
    return tuple(flag for flag, is_raised in is_raised_by_flag.items() if is_raised)
