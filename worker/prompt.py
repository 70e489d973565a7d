"""A prompt for the policy, in a separate module so that a reward needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, as text and as data for its reward.

    Example: Prompt("sums/train/17", "3+4=?", "7", "sums", "math", index=17)
    """

    id: str
    """Stable id of the prompt: the same question has the same id in every step and every run."""
    text: str
    """Text of the prompt, before any chat template; messages as readable text."""
    answer: str
    """Expected answer."""
    problem: str
    """Name of the problem source it came from."""
    domain: str = ""
    """Domain of the source in the mixture, for example math; reward terms may be limited to one."""
    index: int = 0
    """Position in its source: `Problem.sample(index, split)` gives this prompt again."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Additional columns of the row as JSON values, for rewards that need more than the answer."""
    messages: Sequence[Mapping[str, Any]] = ()
    """Messages of the conversation, if the prompt is one; empty for plain text."""
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON Schemas of the functions that the chat template shows."""
    is_episode: bool = False
    """Whether an environment generates the task from the prompt's id, so that prompts of one text differ."""
    beginning: str = ""
    """Digest of the environment's first observation, with which the text ends; "" if there is none."""

    @property
    def task(self) -> str:
        """Return the part of the prompt that distinguishes it from others."""
        return self.id if self.is_episode else self.text
