"""A question for the policy; apart from the other values of a step, so that a reward needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, as text and as the data its reward needs.

    Example: Prompt("sums/train/17", "3+4=?", "7", "sums", "math", index=17)
    """

    id: str
    """Stable name of the prompt: the same question has the same id in every step and every run."""
    text: str
    """What the policy is asked, before any chat template; messages as a text to read."""
    answer: str
    """The expected answer."""
    problem: str
    """Name of the problem source it came from."""
    domain: str = ""
    """Domain of the source in the mixture, e.g. math; reward terms may be limited to one."""
    index: int = 0
    """Position in its source: `Problem.sample(index, split)` gives this prompt again."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the row as JSON values, for rewards that need more than the answer."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The conversation, where the prompt is one; empty for plain text."""
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON Schemas of the functions that the chat template shows."""
    is_episode: bool = False
    """Whether an environment makes the task from the prompt's id: then prompts of one text are different."""
    beginning: str = ""
    """Digest of the environment's first observation, which the text ends with; empty: it has none."""

    @property
    def task(self) -> str:
        """The part of it by which prompts are told apart."""
        return self.id if self.is_episode else self.text
