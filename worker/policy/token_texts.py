"""Decode token ids piece by piece, so that the joined pieces of a completion are its text."""

import json
from typing import Any

BROKEN = "\N{REPLACEMENT CHARACTER}"
CONTEXT_FREE = {"Fuse", "ByteLevel"}
"""Decoders of the tokenizers library for which a token's text does not depend on its context."""

CHARACTER_BYTES = 4
"""Maximum length of a UTF-8 character, in bytes."""

MAX_INCOMPLETE_TOKENS = 16
"""Number of tokens without a complete character after which the text counts as broken and is decoded
anyway.
"""


class TokenTexts:
    """Decodes every generated token to a text.

    A character that spans several tokens belongs to the last one. The earlier tokens get an empty piece.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.is_context_free = _decoder_type(tokenizer) in CONTEXT_FREE
        self.text_by_id: dict[int, str] = {}

    def decode_each(self, ids: list[int]) -> tuple[str, ...]:
        """Return one string per id."""
        if self.is_context_free:
            texts = tuple(self._decode_alone(index) for index in ids)
            if not any(BROKEN in text for text in texts):
                return texts
        return self._decode_in_context(ids)

    def _decode_alone(self, index: int) -> str:
        text = self.text_by_id.get(index)
        if text is None:
            text = self.text_by_id[index] = self._decode([index])
        return text

    def _decode_in_context(self, ids: list[int]) -> tuple[str, ...]:
        """Decode in a sliding window and return the text that each token adds to the complete characters
        before it.
        """
        texts = [""] * len(ids)
        start, complete_end = 0, 0
        for end in range(1, len(ids) + 1):
            known_text, window_text = self._decode(ids[start:complete_end]), self._decode(ids[start:end])
            if window_text.endswith(BROKEN) and end < len(ids):
                if end - complete_end < MAX_INCOMPLETE_TOKENS:
                    continue
                boundary = self._cut(ids, start, end, window_text)
                window_text = self._decode(ids[start:boundary])
            else:
                boundary = end
            texts[boundary - 1] = window_text[len(known_text) :]
            start, complete_end = complete_end, boundary
        return tuple(texts)

    def _cut(self, ids: list[int], start: int, end: int, text: str) -> int:
        """Return the position at which incomplete tokens can be split without splitting a new character."""
        for boundary in range(end - 1, end - CHARACTER_BYTES - 1, -1):
            if self._decode(ids[start:boundary]) + self._decode(ids[boundary:end]) == text:
                return boundary
        return end

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _decoder_type(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = backend and backend.decoder
    return json.loads(decoder.__getstate__())["type"] if decoder else ""
