"""Problem plugins: entry points of the group `grpolab.problems`.

    class Palindromes:
        name = "palindromes"
        def __init__(self, *, seed: int, length: int = 5) -> None: ...
        def sample(self, index: int, split: Split) -> Prompt: ...

`sample` depends only on parameters, split and index, and never returns an eval prompt for training.
"""

import json
from collections.abc import Callable
from typing import Any

from backend.base.errors import PluginFailed
from backend.config.messages import read_messages, read_tools
from backend.config.plugins import PROBLEMS_GROUP, find_plugin
from backend.config.problems import PluginProblem
from backend.config.rows import MAX_LINE_BYTES, is_domain
from worker.problems.base import Split
from worker.prompt import Prompt


class Plugin:
    """The problem source of a plugin. All values that the plugin returns are checked."""

    def __init__(self, source: PluginProblem, *, seed: int) -> None:
        self.name = source.label
        point = find_plugin(PROBLEMS_GROUP, source.entry_point)
        factory = _call_plugin(self.name, point.load)
        self._problem = _call_plugin(self.name, lambda: factory(seed=seed, **source.params))

    def sample(self, index: int, split: Split) -> Prompt:
        """Return the plugin's prompt.

        Raise PluginFailed if the plugin fails or returns an unusable prompt.
        """
        prompt = _call_plugin(self.name, lambda: self._problem.sample(index, split))
        if not isinstance(prompt, Prompt):
            raise PluginFailed(
                f"problem plugin {self.name!r}: expected a Prompt, got {type(prompt).__name__}"
            )
        for field in ("id", "text"):
            value = getattr(prompt, field)
            if not isinstance(value, str) or not value.strip():
                raise PluginFailed(
                    f"problem plugin {self.name!r}, {split} prompt {index}: "
                    f"{field} must be text that is not empty, got {value!r}"
                )
        if prompt.domain and not is_domain(prompt.domain):
            raise PluginFailed(
                f"problem plugin {self.name!r}, {split} prompt {index}: "
                f"domain must be 1 to 32 of a-z, 0-9, _ and -, got {prompt.domain!r}"
            )
        try:
            _check_parts(prompt)
        except (ValueError, TypeError, RecursionError) as error:
            raise PluginFailed(
                f"problem plugin {self.name!r}, {split} prompt {index}: {str(error)[:300]}"
            ) from error
        return prompt


def _check_parts(prompt: Prompt) -> None:
    """Raise ValueError for messages that no template accepts, and for columns that cannot be sent to
    rewards.
    """
    if prompt.messages:
        read_messages(list(prompt.messages))
    read_tools(list(prompt.tools) or None)
    size = len(json.dumps(dict(prompt.columns), allow_nan=False))
    if size > MAX_LINE_BYTES:
        raise ValueError(f"columns: expected at most {MAX_LINE_BYTES:,} bytes of JSON, got {size:,}")


def _call_plugin(name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise PluginFailed(f"problem plugin {name!r} raised {type(error).__name__}: {error}") from error
