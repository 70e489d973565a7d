"""Metrics of a step's tool calls and environment episodes."""

from collections.abc import Sequence
from statistics import fmean

from worker.rollout.turns import UNANSWERED
from worker.types import Completion, Group


def tool_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Return tools/* over all completions of a step."""
    completions = [completion for group in groups for completion in group.completions]
    turns = [turn for completion in completions for turn in completion.turns]
    answered_turns = [turn for turn in turns if turn.outcome != UNANSWERED]
    has_unanswered = [
        any(turn.outcome == UNANSWERED for turn in completion.turns) for completion in completions
    ]
    tokens = sum(map(len, completions))
    metrics = {
        "tools/calls": len(turns) / len(completions),
        "tools/used_frac": fmean(bool(completion.turns) for completion in completions),
        "tools/turns": 1 + len(answered_turns) / len(completions),
        "tools/unanswered_frac": fmean(has_unanswered),
        "tools/observation_frac": 1 - sum(completion.written_tokens for completion in completions) / tokens,
    }
    if answered_turns:
        metrics["tools/failed_frac"] = fmean(turn.outcome not in {"ok", "done"} for turn in answered_turns)
        metrics["time/tool_seconds"] = fmean(turn.seconds for turn in answered_turns)
    return metrics | episode_metrics(completions)


def episode_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    """Return environment/* if an environment computes the rewards."""
    episodes = [completion.episode for completion in completions if completion.episode is not None]
    if not episodes:
        return {}
    return {
        "environment/done_frac": fmean(episode.is_done for episode in episodes),
        "environment/lost_frac": fmean(episode.reward is None for episode in episodes),
    }
