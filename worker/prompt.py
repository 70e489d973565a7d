"""The prompt class, in a separate module so that rewards can import it without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, as a text and as data for its rewards.

    Example: Prompt("sums/train/17", "3+4=?", "7", "sums", "math", index=17)
    """

    id: str
    """Stable id of the prompt. The same question has the same id in every step and every run."""
    text: str
    """Text of the prompt before any chat template, or the messages as readable text."""
    answer: str
    """Expected answer."""
    problem: str
    """Name of the prompt's problem source."""
    domain: str = ""
    """Domain of the source in the mixture, for example math. Reward terms may be limited to a domain."""
    index: int = 0
    """Position in its source. `Problem.sample(index, split)` returns this prompt again."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Additional columns of the row as JSON values, for rewards that need more than the answer."""
    messages: Sequence[Mapping[str, Any]] = ()
    """Messages of the conversation if the prompt is one, empty for plain text."""
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON Schemas of the functions for the chat template."""
    is_episode: bool = False
    """True if an environment generates the task from the prompt's id, so that prompts with equal text
    differ.
    """
    beginning: str = ""
    """Digest of the environment's first observation, with which the text ends, or "" if there is none."""

    @property
    def task(self) -> str:
        """The part of the prompt that distinguishes it from others: its id if it is an episode, else its
        text.
        """
        return self.id if self.is_episode else self.text
