"""Convert groups into the records that the recorder stores."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from backend.base.text import clean_text
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.token_values import alternative_names
from backend.rollouts.turns import MAX_NAME
from worker.rewards.score import Scorer
from worker.rollout.collector import CollectedGroups
from worker.training.update_stats import CONTRIBUTIONS, Arrays, UpdateStats
from worker.types import Completion, Group


def step_records(
    collected: CollectedGroups, update_stats: UpdateStats, scorer: Scorer
) -> tuple[GroupRecord, ...]:
    """Return a record of every group of a step. Training groups have advantages and per-token values."""
    positions = {index: position for position, index in enumerate(collected.trained)}
    return tuple(
        _group_record(
            group,
            scorer,
            kind="train",
            index=index,
            update_stats=update_stats,
            trained_as=positions.get(index),
            left_out=collected.left_out.get(index, ""),
        )
        for index, group in enumerate(collected.groups)
    )


def evaluation_records(
    groups: Sequence[Group], scorer: Scorer, *, kind: str = "eval"
) -> tuple[GroupRecord, ...]:
    """Return a record of every group of an evaluation or of a suite, each with its own kind."""
    return tuple(
        _group_record(group, scorer, kind=kind, index=index, update_stats=UpdateStats(), trained_as=None)
        for index, group in enumerate(groups)
    )


def _group_record(
    group: Group,
    scorer: Scorer,
    *,
    kind: str,
    index: int,
    update_stats: UpdateStats,
    trained_as: int | None,
    left_out: str = "",
) -> GroupRecord:
    size = len(group.completions)
    return GroupRecord(
        kind=kind,
        prompt_index=index,
        prompt_id=group.prompt.id,
        problem=group.prompt.problem,
        domain=group.prompt.domain,
        prompt=group.prompt.text,
        answer=group.prompt.answer,
        completions=tuple(
            _completion_record(group, position, scorer, update_stats=update_stats, trained_as=trained_as)
            for position in range(size)
        ),
        left_out=left_out,
    )


def _divide_loss(arrays: Arrays, loss_count: float) -> Arrays:
    """Divide contributions to the loss by `loss_count`, because the logged loss is a mean over batches."""
    return {
        name: values / np.float32(loss_count) if name in CONTRIBUTIONS else values
        for name, values in arrays.items()
    }


def _alternative_arrays(completion: Completion) -> Arrays:
    """Return ids and log-probabilities of the most likely tokens, one array per rank; empty if not
    recorded.
    """
    if completion.alternatives is None:
        return {}
    ids, logprobs = completion.alternatives.ids, completion.alternatives.logprobs
    return {
        name: values[:, rank].astype(np.float32)
        for rank in range(ids.shape[1])
        for name, values in zip(alternative_names(rank), (ids, logprobs), strict=True)
    }


def _turns(completion: Completion) -> tuple[dict[str, Any], ...]:
    """Return the tool calls with their positions in the text."""
    if not completion.turns:
        return ()
    token_ends = [0, *accumulate(map(len, completion.token_strings))]
    last = len(completion.text)  # without the token that ended the completion
    return tuple(
        {
            "tool": clean_text(turn.tool)[:MAX_NAME],
            "outcome": turn.outcome,
            "seconds": turn.seconds,
            "is_cut": turn.is_cut,
            "call": [min(token_ends[index], last) for index in turn.call],
            "observation": [min(token_ends[index], last) for index in turn.observation],
            "tokens": list(turn.observation),
        }
        for turn in completion.turns
    )


def _completion_record(
    group: Group, position: int, scorer: Scorer, *, update_stats: UpdateStats, trained_as: int | None
) -> CompletionRecord:
    completion = group.completions[position]
    correctness = group.correctness[position] if group.correctness else None
    arrays = {"logprob": completion.sampler_logprobs} | _alternative_arrays(completion)
    if completion.entropies is not None:
        arrays["entropy"] = completion.entropies
    advantage = None
    if trained_as is not None:
        advantage = update_stats.advantages[trained_as][position]
        arrays |= _divide_loss(update_stats.arrays[trained_as][position], update_stats.loss_count)
    return CompletionRecord(
        text=completion.text,
        token_strings=completion.token_strings,
        token_ids=completion.ids,
        reward=group.rewards[position],
        rewards={name: values[position] for name, values in group.terms.items()},
        advantage=advantage,
        finish_reason=completion.finish_reason,
        correct=None if correctness is None else correctness >= 1,
        flags=scorer.flags(group.prompt, completion, correctness, reward=group.rewards[position]),
        arrays=arrays,
        turns=_turns(completion),
    )
