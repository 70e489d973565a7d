"""Encode observations as token ids. Tool answers are untrusted text and may contain no control tokens."""

import re
from typing import NamedTuple

from backend.base.text import clean_text
from worker.policy.model import Policy

CHARACTERS_PER_TOKEN = 16
"""Number of characters that are read of an answer per token of its limit, so that long answers cost
little.
"""

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Invisible control characters, except tab and newline."""


class EncodedObservation(NamedTuple):
    """An observation as token ids."""

    ids: list[int]
    is_cut: bool
    """True if the answer was cut."""


class ObservationEncoder:
    """Encodes the output of tools for one policy."""

    def __init__(self, policy: Policy) -> None:
        self.tokenizer, self.form = policy.tokenizer, policy.form
        added_vocabulary = dict(policy.tokenizer.get_added_vocab())
        self.controls = {*added_vocabulary.values(), *policy.stop_ids, policy.pad_id}
        """Token ids that no answer may contain: all tokens added to the vocabulary."""
        special_tokens = sorted(filter(None, added_vocabulary), key=len, reverse=True)
        self.special_token = re.compile("|".join(map(re.escape, special_tokens))) if special_tokens else None

    def answer(self, text: str, *, limit: int, frame: tuple[str, str] = ("", "")) -> EncodedObservation:
        """Return the ids of an answer, at most `limit`, between those of its frame.

        Names of control tokens in the answer are encoded as plain letters. The frame is the trainer's text
        before and after the answer, in which control tokens are intended.
        """
        read_text = text[: limit * CHARACTERS_PER_TOKEN]
        plain_text = CONTROLS.sub("", clean_text(read_text).replace("\r\n", "\n").replace("\r", "\n"))
        frame_start, frame_end, *segments = self.form.encode_all(
            [*frame, *self._split_text(plain_text)], add_special_tokens=False
        )
        ids = [index for segment in segments for index in segment if index not in self.controls]
        return EncodedObservation(
            [*frame_start, *ids[:limit], *frame_end], is_cut=len(ids) > limit or len(read_text) < len(text)
        )

    def _split_text(self, text: str) -> list[str]:
        """Cut the text after the first letter of each control token's name, so that no piece contains a
        name.
        """
        if self.special_token is None:
            return [text]
        segments, start = [], 0
        while match := self.special_token.search(text, start):
            segment_end = match.start() + 1
            segments.append(text[start:segment_end])
            start = segment_end
        return [*segments, text[start:]]
