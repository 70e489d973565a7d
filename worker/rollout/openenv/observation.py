"""Convert an environment's JSON observations to the text that a policy reads."""

import json
from typing import Any

from worker.rollout.observations import ObservationEncoder
from worker.rollout.openenv.answers import Lost

CUT = " [cut]"


def render(observation: dict[str, Any], field: str) -> str:
    """Return the field of that name, else the only field, else all fields, as text or JSON.

    Raise Lost if there is no field of that name.
    """
    if field and field not in observation:
        raise Lost(
            f"its observation has no field {field!r}; it has {', '.join(map(repr, list(observation)[:8]))}"
        )
    [selected_value] = (
        [observation[field]] if field else observation.values() if len(observation) == 1 else [observation]
    )
    return (
        selected_value if isinstance(selected_value, str) else json.dumps(selected_value, ensure_ascii=False)
    )


def prompt_text(text: str, encoder: ObservationEncoder, *, limit: int) -> str:
    """Return a first observation as part of a prompt, shortened like any other observation.

    Names of control tokens are removed, because a prompt, unlike an observation, would encode them as such.
    """
    encoded_text = encoder.answer(text, limit=limit)
    decoded_text = str(encoder.tokenizer.decode(encoded_text.ids))
    while encoder.special_token is not None and encoder.special_token.search(decoded_text):
        decoded_text = encoder.special_token.sub(lambda match: f"{match[0][0]} {match[0][1:]}", decoded_text)
    return decoded_text + CUT if encoded_text.is_cut else decoded_text
