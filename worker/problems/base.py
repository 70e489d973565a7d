"""The interface between a source of problems and the trainer."""

from typing import Literal, Protocol

from worker.prompt import Prompt

Split = Literal["train", "eval"]


class Problem(Protocol):
    """An endless, deterministic supply of prompts with known answers.

    `sample(index, split)` depends only on the problem's own parameters (including its seed), the split and
    the index, so a resumed run continues with a cursor and gets the same prompts. No prompt of the eval split
    is ever returned for the train split.
    """

    name: str

    def sample(self, index: int, split: Split) -> Prompt:
        """Return prompt number `index` (0, 1, 2, ...) of a split."""
        ...
