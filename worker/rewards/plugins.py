"""Rewards of a user's own: entry points of the group `grpolab.rewards`, called in a process of their own.

    def brevity(prompt: Prompt, completion_text: str, *, limit: int = 100) -> float | None:
        return float(len(completion_text) <= limit)

None means that the completion could not be scored: it takes no part in the update.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from backend.config.plugins import REWARDS_GROUP, find_plugin
from backend.config.rewards import PluginReward
from backend.errors import PluginFailed
from worker.rewards.child import Child, ChildError, ChildUnusable
from worker.rollout.prompt import Prompt


class PluginTerm:
    """The parent's side of one plugin reward: ask the process, judge the answer."""

    def __init__(self, term: PluginReward) -> None:
        self.term = term
        self._child = Child(trusted=True)

    def rewards(self, pairs: Sequence[tuple[Prompt, str]]) -> list[float | None]:
        """One value per (prompt, completion text); PluginFailed says which prompt it failed on, and how."""
        return [self._reward(prompt, text) for prompt, text in pairs]

    def close(self) -> None:
        """End the plugin's process."""
        self._child.close()

    def _reward(self, prompt: Prompt, text: str) -> float | None:
        request = {
            "op": "plugin",
            "entry_point": self.term.entry_point,
            "prompt": asdict(prompt),
            "text": text,
            "params": self.term.params,
        }
        try:
            value = self._child.ask(request, seconds=self.term.timeout_seconds)
        except (ChildError, ChildUnusable) as error:
            raise PluginFailed(
                f"reward plugin {self.term.entry_point!r} on prompt {prompt.id!r}: {error}"
            ) from error
        return self._checked(value, prompt)

    def _checked(self, value: Any, prompt: Prompt) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool | int | float) and math.isfinite(value):
            return float(value)
        raise PluginFailed(
            f"reward plugin {self.term.entry_point!r} on prompt {prompt.id!r}: "
            f"a finite number or None is expected, got {value!r}"
        )


def call_reward(name: str, prompt: Mapping[str, Any], text: str, params: Mapping[str, Any]) -> Any:
    """The plugin's own value. Runs inside the plugin's process."""
    value = load_reward(name)(Prompt(**prompt), text, **params)
    return value.item() if hasattr(value, "item") else value


@lru_cache(maxsize=8)
def load_reward(name: str) -> Any:
    """The plugin's function, imported once."""
    return find_plugin(REWARDS_GROUP, name).load()
