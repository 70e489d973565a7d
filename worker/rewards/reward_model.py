"""Get scores from a reward model, through vLLM's route `/pooling`, which applies the model's chat template.

A model that scores the conversation returns one number. A model that scores each token returns one number per
token, and the last one counts.
"""

import math
from collections.abc import Sequence
from typing import Any

from backend.base.settings import Settings
from backend.config.served_rewards import RewardModelReward
from worker.prompt import Prompt
from worker.rewards.endpoint import Endpoint, NoScore
from worker.rewards.steps import AGGREGATES, split_steps


class RewardModel:
    """Requests the reward model's scores for one reward term."""

    def __init__(self, term: RewardModelReward, settings: Settings) -> None:
        self.term = term
        self._model = settings.reward_model_name
        self.endpoint = Endpoint(
            url=f"{settings.reward_model_url}/pooling",
            api_key=settings.reward_model_api_key,
            concurrency=settings.judge_concurrency,
            timeout_seconds=term.timeout_seconds,
            retries=term.retries,
            read=self._score,
        )

    def values(self, pairs: Sequence[tuple[Prompt, str]]) -> list[float | NoScore]:
        """Return a reward per (prompt, completion text), or the error.

        For rewards by step, each prefix of the completion that ends with a step is scored. Without any step
        the reward is 0.
        """
        prefix_lists = [self._list_prefixes(text) for _, text in pairs]
        bodies = [
            {"model": self._model, "messages": _turns(prompt.text, text)}
            for (prompt, _), prefixes in zip(pairs, prefix_lists, strict=True)
            for text in prefixes
        ]
        answers = iter(self.endpoint.ask_all(bodies))
        return [self._value([next(answers) for _ in prefixes]) for prefixes in prefix_lists]

    def _list_prefixes(self, text: str) -> list[str]:
        if self.term.per == "completion":
            return [text]
        steps = split_steps(text, self.term.delimiter)
        return [self.term.delimiter.join(steps[:count]) for count in range(1, len(steps) + 1)]

    def _value(self, scores: Sequence[float | NoScore]) -> float | NoScore:
        if missing_score := next((score for score in scores if isinstance(score, NoScore)), None):
            return missing_score
        step_scores = [score for score in scores if not isinstance(score, NoScore)]
        value = AGGREGATES[self.term.aggregate](step_scores) if step_scores else 0.0
        return value if math.isfinite(value) else NoScore("its scores have no finite aggregate")

    def _score(self, answer: Any) -> float:
        try:
            [row] = answer["data"]
            score = row["data"]
            while isinstance(score, list):
                is_wide = len(score) > 1 and not isinstance(score[0], list)
                if is_wide:
                    raise NoScore(f"expected one number for each text or token, got {len(score)}")
                score = score[-1]
        except (LookupError, TypeError, ValueError):
            raise NoScore("its answer is not a score") from None
        if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < 1e30:
            raise NoScore("its score is not a finite number")
        return _sigmoid(score) if self.term.scale == "sigmoid" else float(score)


def _turns(question: str, text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": text}]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
