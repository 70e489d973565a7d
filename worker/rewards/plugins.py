"""Rewards of a user's own: entry points of the group `grpolab.rewards`, called in a sandbox of their own.

    def brevity(prompt: Prompt, completion_text: str, *, limit: int = 100) -> float | None:
        return float(len(completion_text) <= limit)

None means that the completion could not be scored: it takes no part in the update. A call that raises, hangs,
ends its process or returns no number leaves its completion unscored too; several in a row end the run.

The module is imported once; each call is a fork of it, so what one call changes is gone at the next.
It sees the interpreter, its packages and its own code: no network, no other file and no variable, unless the
operator grants them by the plugin's name in PLUGIN_PERMISSIONS.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from backend.config.plugin_permissions import Permissions
from backend.config.plugins import REWARDS_GROUP, find_plugin, load_plugin
from backend.config.rewards import PluginReward
from backend.errors import PluginFailed
from backend.sandbox.process import Sandbox, SandboxError, Unusable
from backend.settings import Settings
from worker.prompt import Prompt
from worker.rewards.correctness import JUDGING

MOST_IN_A_ROW = 5
"""Failed calls without a good one between them until the run fails: the plugin itself is broken then."""


class PluginTerm:
    """The parent's side of one plugin reward: ask the process, judge the answer."""

    def __init__(self, term: PluginReward) -> None:
        self.term = term
        self.failures = 0
        """Calls that failed so far."""
        self.last_failure = ""
        self._in_a_row = 0
        settings = Settings()
        self._sandbox = Sandbox(
            JUDGING,
            permissions=settings.permissions.get(term.entry_point, Permissions()),
            plugin=_module_of(term.entry_point),
            settings=settings,
        )

    def rewards(self, pairs: Sequence[tuple[Prompt, str]]) -> list[float | None]:
        """One value per (prompt, completion text), None where the call failed.

        Raises PluginFailed when the plugin cannot be called at all, or fails time after time.
        """
        return [self._reward(prompt, text) for prompt, text in pairs]

    def close(self) -> None:
        """End the plugin's process."""
        self._sandbox.close()

    def _reward(self, prompt: Prompt, text: str) -> float | None:
        try:
            said = self._sandbox.ask(
                "plugin",
                seconds=self.term.timeout_seconds,
                entry_point=self.term.entry_point,
                prompt=asdict(prompt),
                text=text,
                params=self.term.params,
            )
            value = _number(said)
        except Unusable as error:
            raise PluginFailed(self._words(prompt, error)) from error
        except (SandboxError, ValueError) as error:
            self._take_failure(self._words(prompt, error))
            return None
        self._in_a_row = 0
        return value

    def _take_failure(self, words: str) -> None:
        self.failures += 1
        self._in_a_row += 1
        self.last_failure = words
        if self._in_a_row >= MOST_IN_A_ROW:
            raise PluginFailed(f"{words} ({MOST_IN_A_ROW} failed calls in a row)")

    def _words(self, prompt: Prompt, error: Exception) -> str:
        return f"reward plugin {self.term.entry_point!r} on prompt {prompt.id!r}: {error}"


def _number(value: Any) -> float | None:
    """A plugin's value; ValueError when it is no finite number."""
    if value is None:
        return None
    if isinstance(value, bool | int | float) and abs(value) <= sys.float_info.max:  # also of 10**400
        return float(value)
    raise ValueError(f"a finite number or None is expected, got {value!r:.100}")


def _module_of(name: str) -> str:
    """The module of a plugin; "" when it is not installed, which its first call then says."""
    try:
        return find_plugin(REWARDS_GROUP, name).module
    except ValueError:
        return ""


def call_reward(name: str, prompt: Mapping[str, Any], text: str, params: Mapping[str, Any]) -> Any:
    """The plugin's own value. Runs inside the plugin's sandbox."""
    value = load_reward(name)(Prompt(**prompt), text, **params)
    return value.item() if hasattr(value, "item") else value


@lru_cache(maxsize=8)
def load_reward(name: str) -> Any:
    """The plugin's function, imported once."""
    return load_plugin(find_plugin(REWARDS_GROUP, name))
