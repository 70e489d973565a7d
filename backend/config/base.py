"""The base class of all config models, and limits that they share."""

from typing import Any, Self

from pydantic import ConfigDict
from pydantic_core import PydanticCustomError

from backend.base.documented import StrictNumbers

MAX_STEPS = 10_000_000
"""Maximum number of training steps of one run."""

MAX_COMPLETIONS = 2**18
"""Maximum number of completions in a step or evaluation, ten times that of the largest published runs."""


MAX_NAME_CHARACTERS = 193
"""Maximum length of a hub name, `owner/name`, in characters. A limit in the pattern would compile slowly."""


class Frozen(StrictNumbers):
    """An immutable config model that refuses unknown keys, NaN and infinities."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # most models are built as parts of other models
    )

    def with_(self, **changes: Any) -> Self:
        """Return a validated copy with `changes`. (`model_copy` does not validate.)"""
        return type(self).model_validate(self.model_dump() | changes)


def combination_error(errors: list[tuple[str, str]]) -> PydanticCustomError:
    """Return an error for an invalid combination, from (path relative to the model, reason) pairs."""
    return PydanticCustomError(
        "combination",
        "{summary}",
        {"summary": "; ".join(f"{path}: {reason}" for path, reason in errors), "errors": errors},
    )


Problem = tuple[str, str]
"""Dotted path of a field and the reason why it is refused."""
