"""The interface between a problem source and the trainer."""

from typing import Literal, Protocol

from worker.prompt import Prompt

Split = Literal["train", "eval"]


class Problem(Protocol):
    """An endless, deterministic supply of prompts with known answers.

    `sample(index, split)` depends on nothing but the problem's own parameters (its seed among them),
    the split and the index: a resumed run continues with a cursor and asks for the same prompts again.
    No prompt of the eval split is ever returned for the train split.
    """

    name: str

    def sample(self, index: int, split: Split) -> Prompt:
        """Prompt number `index` (0, 1, 2, ...) of a split."""
        ...
