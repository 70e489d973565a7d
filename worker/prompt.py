"""A question for the policy; apart from the other values of a step, so that a reward needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, as text and as the data its reward needs.

    Example: Prompt("sums/train/17", "3+4=?", "7", "sums", "math", index=17)
    """

    id: str
    """Stable name of the prompt: the same question has the same id in every step and every run."""
    text: str
    """What the policy is asked, before any chat template."""
    answer: str
    """The expected answer."""
    problem: str
    """Name of the problem source it came from."""
    domain: str = ""
    """Domain of the source in the mixture, e.g. math; reward terms may be limited to one."""
    index: int = 0
    """Position in its source: `Problem.sample(index, split)` gives this prompt again."""
    data: Mapping[str, object] = field(default_factory=dict)
    """Further fields of the row, for rewards that need more than the answer."""
