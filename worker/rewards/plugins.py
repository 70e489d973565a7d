"""Reward plugins: entry points of the group `grpolab.rewards`, each called in a separate sandbox.

    def brevity(prompt: Prompt, completion_text: str, *, limit: int = 100) -> float | None:
        return float(len(completion_text) <= limit)

    def accuracy(completions: list[str], answer: list[str], **columns) -> list[float | None]:
        return [float(found == right) for found, right in zip(completions, answer)]

Both may be `async`. None means that the completion could not be scored and is left out of the update. If a
call raises, hangs, ends its process or does not return a number, its completions are unscored too. Several
such calls in a row end the run.

The module is imported once. Each call is a fork, so changes made by one call do not affect the next. The
completions of a batch share a fork, and so do the completions of an `async` function.
The plugin has access to the interpreter, its packages and its code, but not to the network, other files and
environment variables, unless the operator grants it by the plugin's name in PLUGIN_PERMISSIONS.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import PluginFailed
from backend.base.plugin_permissions import Permissions
from backend.base.sandbox.errors import SandboxError, Unusable, excerpt
from backend.base.sandbox.process import Sandbox
from backend.base.settings import Settings
from backend.config.plugins import REWARDS_GROUP, find_plugin
from backend.config.rewards import PluginReward
from worker.prompt import Prompt
from worker.rewards.steps import AGGREGATES

CALLS = "worker.rewards.plugin_calls"

MAX_CONSECUTIVE_FAILURES = 5
"""Number of consecutive failed calls after which the run fails, because the plugin itself is broken."""


class PluginTerm:
    """The parent side of a reward plugin, which calls the sandboxed process and checks its answers."""

    def __init__(self, term: PluginReward) -> None:
        self.term = term
        self.failures = 0
        """Number of completions that are unscored because of failed calls."""
        self.last_failure = ""
        self._in_a_row = 0
        self._kind = ""
        settings = Settings()
        self._sandbox = Sandbox(
            CALLS,
            permissions=settings.permissions.get(term.entry_point, Permissions()),
            plugin=_plugin_module(term.entry_point),
            settings=settings,
        )

    def rewards(
        self, pairs: Sequence[tuple[Prompt, str]], token_ids: Sequence[NDArray[np.int64]] = ()
    ) -> list[float | None]:
        """Return one value per (prompt, completion text), or None if the call failed.

        A batch function also gets the completions' `token_ids` if it has a parameter `completion_ids`. Raise
        PluginFailed if the plugin cannot be called at all, or fails repeatedly.
        """
        if not pairs:
            return []
        try:
            self._kind = self._kind or self._ask("kind", seconds=self.term.timeout_seconds)
            if self._kind == "batch":
                return self._batch_rewards(pairs, token_ids)
            values = self._async_values(pairs) if self._kind == "async" else self._single_values(pairs)
            return [self._reward(prompt, value) for (prompt, _), value in zip(pairs, values, strict=True)]
        except Unusable as error:
            raise PluginFailed(self._words(pairs[0][0], error)) from error

    def close(self) -> None:
        """End the plugin's process."""
        self._sandbox.close()

    def _ask(self, op: str, *, seconds: float, **request: Any) -> Any:
        common = {"entry_point": self.term.entry_point, "params": self.term.params}
        return self._sandbox.run_operation(op, seconds=seconds, **common, **request)

    def _single_values(self, pairs: Sequence[tuple[Prompt, str]]) -> Iterator[Any]:
        """Yield the function's values, or the errors of calls. Each call is a separate fork."""
        return self._sandbox.ask_each(
            "single",
            [{"prompt": asdict(prompt), "text": text} for prompt, text in pairs],
            seconds=self.term.timeout_seconds,
            at_a_time=self.term.concurrency,
            entry_point=self.term.entry_point,
            params=self.term.params,
        )

    def _async_values(self, pairs: Sequence[tuple[Prompt, str]]) -> Iterator[Any]:
        """Yield the values of an `async` function, or errors. One fork awaits all calls."""
        term = self.term
        try:
            reply = self._ask(
                "async",
                seconds=term.timeout_seconds * math.ceil(len(pairs) / term.concurrency) + 1,
                each_seconds=term.timeout_seconds,
                concurrency=term.concurrency,
                prompts=[asdict(prompt) for prompt, _ in pairs],
                texts=[text for _, text in pairs],
            )
            outcomes = _check_list(reply, len(pairs))
        except (SandboxError, ValueError) as error:
            outcomes = [error] * len(pairs)
        for outcome in outcomes:
            match outcome:
                case {"value": value}:
                    yield value
                case {"error": words}:
                    yield SandboxError(excerpt(words))
                case _:
                    yield outcome if isinstance(outcome, Exception) else SandboxError("an invalid message")

    def _batch_rewards(
        self, pairs: Sequence[tuple[Prompt, str]], token_ids: Sequence[NDArray[np.int64]]
    ) -> list[float | None]:
        """Return the values of one call of a batch function. If it fails, it fails for all completions."""
        try:
            reply = self._ask(
                "batch",
                seconds=self.term.timeout_seconds,
                prompts=[asdict(prompt) for prompt, _ in pairs],
                texts=[text for _, text in pairs],
                completion_ids=[ids.tolist() for ids in token_ids],
                messages=self.term.messages,
            )
            values = _check_list(reply, len(pairs))
        except (SandboxError, ValueError) as error:
            self._take_failure(self._words(pairs[0][0], error), completions=len(pairs))
            return [None] * len(pairs)
        return [self._reward(prompt, value) for (prompt, _), value in zip(pairs, values, strict=True)]

    def _reward(self, prompt: Prompt, outcome: Any) -> float | None:
        try:
            if isinstance(outcome, Exception):
                raise outcome
            value = self._number(outcome)
        except (SandboxError, ValueError) as error:
            self._take_failure(self._words(prompt, error))
            return None
        self._in_a_row = 0
        return value

    def _number(self, returned_value: Any) -> float | None:
        if self.term.per == "completion" or returned_value is None:
            return _check_number(returned_value)
        if not isinstance(returned_value, list) or not returned_value:
            raise ValueError(f"expected a list of numbers, one for each step, got {returned_value!r:.100}")
        scores = [_check_number(score) for score in returned_value]
        numbers = [score for score in scores if score is not None]
        if len(numbers) < len(scores):
            return None
        return _check_number(AGGREGATES[self.term.aggregate](numbers))

    def _take_failure(self, failure: str, *, completions: int = 1) -> None:
        self.failures += completions
        self._in_a_row += 1
        self.last_failure = failure
        if self._in_a_row >= MAX_CONSECUTIVE_FAILURES:
            raise PluginFailed(f"{failure} ({MAX_CONSECUTIVE_FAILURES} failed calls in a row)")

    def _words(self, prompt: Prompt, error: Exception) -> str:
        return f"reward plugin {self.term.entry_point!r} on prompt {prompt.id!r}: {error}"


def _check_list(reply: Any, count: int) -> list[Any]:
    """Return a reply if it is a list of `count` values, else raise ValueError."""
    if isinstance(reply, list) and len(reply) == count:
        return reply
    got = f"{len(reply)} of them" if isinstance(reply, list) else f"{reply!r:.100}"
    raise ValueError(f"expected a list of {count} numbers, one for each completion, got {got}")


def _check_number(value: Any) -> float | None:
    """Return a plugin's value if it is None or a finite number, else raise ValueError."""
    if value is None:
        return None
    if (
        isinstance(value, bool | int | float) and abs(value) <= sys.float_info.max
    ):  # this comparison also works for 10**400
        return float(value)
    raise ValueError(f"expected a finite number or None, got {value!r:.100}")


def _plugin_module(name: str) -> str:
    """Return the module of a plugin, or "" if it is not installed, which its first call reports."""
    try:
        return find_plugin(REWARDS_GROUP, name).module
    except ValueError:
        return ""
