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
        self.known: dict[int, str] = {}

    def pieces(self, ids: list[int]) -> tuple[str, ...]:
        """Return one string per id."""
        if self.is_context_free:
            pieces = tuple(self._decode_alone(index) for index in ids)
            if not any(BROKEN in piece for piece in pieces):
                return pieces
        return self._decode_in_context(ids)

    def _decode_alone(self, index: int) -> str:
        piece = self.known.get(index)
        if piece is None:
            piece = self.known[index] = self._decode([index])
        return piece

    def _decode_in_context(self, ids: list[int]) -> tuple[str, ...]:
        """Decode in a sliding window and return the text that each token adds to the complete characters
        before it.
        """
        pieces = [""] * len(ids)
        start, read = 0, 0
        for end in range(1, len(ids) + 1):
            before, after = self._decode(ids[start:read]), self._decode(ids[start:end])
            if after.endswith(BROKEN) and end < len(ids):
                if end - read < MAX_INCOMPLETE_TOKENS:
                    continue
                cut = self._cut(ids, start, end, after)
                after = self._decode(ids[start:cut])
            else:
                cut = end
            pieces[cut - 1] = after[len(before) :]
            start, read = read, cut
        return tuple(pieces)

    def _cut(self, ids: list[int], start: int, end: int, text: str) -> int:
        """Return the position at which incomplete tokens can be split without splitting a new character."""
        for cut in range(end - 1, end - CHARACTER_BYTES - 1, -1):
            if self._decode(ids[start:cut]) + self._decode(ids[cut:end]) == text:
                return cut
        return end

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _decoder_type(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = backend and backend.decoder
    return json.loads(decoder.__getstate__())["type"] if decoder else ""
