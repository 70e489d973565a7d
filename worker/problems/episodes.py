"""Episodes of an environment: one instruction for all of them; what differs is the seed of the episode."""

from worker.problems.base import Split
from worker.prompt import Prompt


class Episodes:
    """Different episodes without end. The eval split ignores the seed, as that of sums."""

    name = "episodes"

    def __init__(self, *, seed: int, instruction: str, domain: str) -> None:
        self.seed, self.instruction, self.domain = seed, instruction, domain

    def sample(self, index: int, split: Split) -> Prompt:
        """Episode number `index` of a split; its id is what the environment's seed is made of."""
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
