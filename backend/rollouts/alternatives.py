"""Read the most likely alternative tokens at each position of a completion."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.rollouts.packing import Tokens
from backend.rollouts.token_values import alternative_names
from backend.storage.numbers import spell

MAX_ALTERNATIVES = 8
"""Maximum number of alternatives per token, which is also the maximum of `recording.alternatives`."""


def read_alternatives(tokens: Tokens, group_tokens: Sequence[Tokens]) -> dict[str, Any] | None:
    """Return the most likely tokens at each position as `schemas.Alternatives`, or None if they are not
    stored.

    The strings of token ids are taken from the completions of the same group.
    """
    ranks = [alternative_names(rank) for rank in range(MAX_ALTERNATIVES)]
    stored_ranks = [names for names in ranks if all(name in tokens.arrays for name in names)]
    if not stored_ranks:
        return None
    ids = np.stack([tokens.arrays[name].astype(np.int64) for name, _ in stored_ranks], axis=1)
    logprobs = np.stack([tokens.arrays[name] for _, name in stored_ranks], axis=1)
    shown_ids = set(np.unique(ids[np.isfinite(logprobs)]).tolist())
    strings = {
        id_: string
        for completion in group_tokens
        for id_, string in zip(completion.ids.tolist(), completion.strings, strict=True)
        if id_ in shown_ids and string
    }
    return {
        "ids": ids.tolist(),
        "logprobs": [[spell(value) for value in row] for row in logprobs.tolist()],
        "strings": {str(id_): string for id_, string in strings.items()},
    }
