"""Episodes of an environment, which share an instruction and differ in the episode's seed."""

from worker.problems.base import Split
from worker.prompt import Prompt


class Episodes:
    """An endless supply of different episodes. The eval split does not depend on the seed."""

    name = "episodes"

    def __init__(self, *, seed: int, instruction: str, domain: str) -> None:
        self.seed, self.instruction, self.domain = seed, instruction, domain

    def sample(self, index: int, split: Split) -> Prompt:
        """Return episode number `index` of a split. The environment's seed is derived from its id."""
        stream = "test" if split == "eval" else f"train/{self.seed}"
        return Prompt(
            id=f"episodes/{stream}/{index}",
            text=self.instruction,
            answer="",
            problem=self.name,
            domain=self.domain,
            index=index,
            is_episode=True,
        )
