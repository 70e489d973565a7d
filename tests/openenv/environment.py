"""An OpenEnv environment with two questions, of which the second follows the first answer.

    python tests/openenv/environment.py PORT SESSIONS

It asks for a sum, replies to any answer with another sum, and rewards the answer to that, so that no
single turn can be right. It runs where `openenv` is installed, and imports nothing of this project."""

import random
import re
import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Answer(Action):  # type: ignore[misc]
    """The policy's answer."""

    text: str


class Question(Observation):  # type: ignore[misc]
    """The question to the policy."""

    text: str


class TwoQuestions(Environment[Answer, Question, State]):  # type: ignore[misc]
    """One episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[tuple[int, int]] = []
        self.asked = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Question:  # noqa: ARG002
        """Draw both questions from the seed."""
        draw = random.Random(seed)
        self.sums = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in range(2)]
        self.asked = 1
        return Question(text=self._question())

    def step(self, action: Answer, timeout_s: float | None = None, **_: Any) -> Question:  # noqa: ARG002
        """Ask the second question, then grade its answer."""
        if self.asked == 1:
            self.asked = 2
            return Question(text=self._question(), reward=0.0)
        numbers = re.findall(r"\d+", action.text)
        is_right = bool(numbers) and numbers[-1] == str(sum(self.sums[1]))
        return Question(text="", reward=float(is_right), done=True)

    @property
    def state(self) -> State:
        """State of the episode, which only has the number of questions."""
        return State(step_count=self.asked)

    def _question(self) -> str:
        first, second = self.sums[self.asked - 1]
        return f"{first}+{second}=?"


if __name__ == "__main__":
    app = create_fastapi_app(TwoQuestions, Answer, Question, max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
