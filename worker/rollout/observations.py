"""Observations as token ids: answers of tools are hostile text, in which nothing is a control token."""

import re
from typing import NamedTuple

from backend.base.text import clean_text
from worker.policy.model import Policy

CHARACTERS_PER_TOKEN = 16
"""Characters of an answer that are read for each token it may have: a flood costs nothing."""

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that are not to be seen, but for tab and newline."""


class Encoded(NamedTuple):
    """An answer as token ids."""

    ids: list[int]
    is_cut: bool
    """Whether it was longer."""


class ObservationEncoder:
    """Encodes the text of tools for one policy."""

    def __init__(self, policy: Policy) -> None:
        self.tokenizer, self.form = policy.tokenizer, policy.form
        added = dict(policy.tokenizer.get_added_vocab())
        self.controls = {*added.values(), *policy.stop_ids, policy.pad_id}
        """Ids that no answer may have: everything that was added to the vocabulary."""
        words = sorted(filter(None, added), key=len, reverse=True)
        self.word = re.compile("|".join(map(re.escape, words))) if words else None

    def answer(self, text: str, *, most: int) -> Encoded:
        """The ids of an answer, at most so many. The names of control tokens become plain letters."""
        looked_at = text[: most * CHARACTERS_PER_TOKEN]
        plain = CONTROLS.sub("", clean_text(looked_at).replace("\r\n", "\n").replace("\r", "\n"))
        ids = [
            index for part in self._parts(plain) for index in self._encode(part) if index not in self.controls
        ]
        return Encoded(ids[:most], len(ids) > most or len(looked_at) < len(text))

    def frame(self, text: str) -> list[int]:
        """The ids of the trainer's own text around an answer; here control tokens are meant."""
        return self._encode(text) if text else []

    def _parts(self, text: str) -> list[str]:
        """The text cut behind the first letter of each name of a control token: no part holds one."""
        if self.word is None:
            return [text] if text else []
        parts, start = [], 0
        while match := self.word.search(text, start):
            cut = match.start() + 1
            parts.append(text[start:cut])
            start = cut
        return [part for part in (*parts, text[start:]) if part]

    def _encode(self, text: str) -> list[int]:
        return self.form.encode(text, add_special_tokens=False)
