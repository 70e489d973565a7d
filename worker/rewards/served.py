"""Rewards from the operator's servers: the bookkeeping that judges and reward models share."""

from collections.abc import Sequence

from backend.base.errors import RewardServerFailed
from backend.base.settings import Settings
from backend.config.served_rewards import JudgeReward, RewardModelReward
from worker.prompt import Prompt
from worker.rewards import judge, reward_model
from worker.rewards.endpoint import Endpoint, NoScore, Usage

SERVERS = {"judge": "JUDGE_URL", "reward_model": "REWARD_MODEL_URL"}


class ServedTerm:
    """One reward term whose scores come from a server.

    A completion that the server did not score in any try is left unscored and counted. A batch without
    any score ends the run, because the server is down or returns nonsense.
    """

    def __init__(self, term: JudgeReward | RewardModelReward, settings: Settings) -> None:
        if setting := settings.unserved_rewards.get(term.name):
            raise RewardServerFailed(f"the reward {term.name} asks a server, and {setting} is not set here")
        self.term = term
        self.prices = settings.served_prices[term.name]
        """Prices per million tokens that the server reads, and per million tokens that it writes."""
        self.failures = 0
        """Number of unscored completions so far."""
        self.last_failure = ""
        self._model = (
            judge.Judge(term, settings)
            if isinstance(term, JudgeReward)
            else reward_model.RewardModel(term, settings)
        )

    @property
    def endpoint(self) -> Endpoint:
        """The server's route."""
        return self._model.endpoint

    def take_usage(self) -> Usage:
        """Return the counters since the last call."""
        usage, self.endpoint.usage = self.endpoint.usage, Usage()
        prompt_price, completion_price = self.prices
        if prompt_price or completion_price:
            usage.cost = (
                usage.prompt_tokens * prompt_price + usage.completion_tokens * completion_price
            ) / 1_000_000
        return usage

    def rewards(self, pairs: Sequence[tuple[Prompt, str]]) -> list[float | None]:
        """Return one value per (prompt, completion text), or None if the server gave none.

        Raise RewardServerFailed if the server scored no completion at all.
        """
        scores = self._model.values(pairs)
        failures = [value for value in scores if isinstance(value, NoScore)]
        if failures:
            self.failures += len(failures)
            self.last_failure = f"reward {self.term.label!r}: {failures[-1]}"
            if len(failures) == len(scores):
                count = len(scores)
                detail = f"none of {count} completions was scored, see {SERVERS[self.term.name]}"
                raise RewardServerFailed(f"{self.last_failure}; {detail}")
        return [None if isinstance(value, NoScore) else value for value in scores]


def served_metrics(usages: Sequence[Usage]) -> dict[str, float]:
    """Return judge/* of one step, or nothing if there were no requests."""
    requests = sum(usage.requests for usage in usages)
    if not requests:
        return {}
    costs = [usage.cost for usage in usages if usage.cost is not None]
    return {
        "judge/requests": requests,
        "judge/cached_frac": sum(usage.cached for usage in usages) / requests,
        "judge/failed_frac": sum(usage.failed for usage in usages) / requests,
        "judge/prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "judge/completion_tokens": sum(usage.completion_tokens for usage in usages),
        "judge/unreported": sum(usage.unreported for usage in usages),
        **({"judge/cost": sum(costs)} if costs else {}),
    }
