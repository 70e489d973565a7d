"""Observations as text that a policy reads, made from the JSON that an environment sends."""

import json
from typing import Any

from worker.rollout.observations import ObservationEncoder
from worker.rollout.openenv.answers import Lost

CUT = " [cut]"


def render(observation: dict[str, Any], field: str) -> str:
    """Return the field of that name, else the only field, else all fields as JSON; text is unchanged.

    Raises Lost if there is no field of that name.
    """
    if field and field not in observation:
        raise Lost(
            f"its observation has no field {field!r}; it has {', '.join(map(repr, list(observation)[:8]))}"
        )
    [only] = (
        [observation[field]] if field else observation.values() if len(observation) == 1 else [observation]
    )
    return only if isinstance(only, str) else json.dumps(only, ensure_ascii=False)


def prompt_text(text: str, encoder: ObservationEncoder, *, limit: int) -> str:
    """Return a first observation as part of a prompt, cut like any other.

    Names of control tokens are removed, because a prompt, unlike an observation, would encode them as such.
    """
    told = encoder.answer(text, limit=limit)
    plain = str(encoder.tokenizer.decode(told.ids))
    while encoder.word is not None and encoder.word.search(plain):
        plain = encoder.word.sub(lambda match: f"{match[0][0]} {match[0][1:]}", plain)
    return plain + CUT if told.is_cut else plain
