"""Rows that are printed within a step: its updates, epochs and completions, and results without a step.

    Step 5: reward=0.2, length=120                 Reward: 1.0
      epoch 1: loss=0.1 kl=0.01                    Reward: 0.0
      epoch 2: loss=0.1 kl=0.02                    Step 5 | loss 0.1 | kl 0.01

They get the step before them, or the one after them if the first of them precedes all steps. They are left
out if the rows of the steps have the same metrics.
"""

from bisect import bisect_left

import numpy as np

from backend.exchange.imports.console.rows import Rows, StepHint
from backend.exchange.imports.console.trust import metrics_by_row

RESULT, EPOCH, NUMBERED = "result", "epoch", "numbered"
"""Words of rows that name no step, of which the last begin with a number."""
_WORDS = ("step", "iteration", "episode", "update", "rollout", "batch", "count")
"""Words before the number of a step; the first whose numbers rise counts the steps."""

MAX_SHARE_OF_EVALUATIONS = 0.5
"""Maximum number of accuracies without a step, as a share of the steps, for them to be evaluations."""


def resolve_rows_within_steps(rows: Rows) -> None:
    """Give rows within a step its number, and mark those that are to be left out."""
    numbers_by_word: dict[str, list[int]] = {}
    for number, hint in enumerate(rows.hints):
        numbers_by_word.setdefault(hint.word, []).append(number)
    if numbers_by_word.keys() <= {"", EPOCH, RESULT, NUMBERED} or len(numbers_by_word) == 1:
        return
    words = [word for word in _WORDS if word in numbers_by_word]
    step_word = next((word for word in words if _rises(rows, numbers_by_word[word])), words[0])
    step_rows = numbers_by_word[step_word]
    last_step = max(rows.hints[number].step for number in step_rows)
    metrics = metrics_by_row(rows)
    metrics_of_steps = {metric for number in step_rows for metric in metrics[number]}
    for word in numbers_by_word.keys() - {"", step_word}:
        numbers = numbers_by_word[word]
        if word in words and _rises(rows, numbers) and rows.hints[numbers[-1]].step <= last_step:
            continue  # another name of the step
        is_before = numbers[0] < step_rows[0]
        is_rare = word == RESULT and len(numbers) <= MAX_SHARE_OF_EVALUATIONS * len(step_rows)
        for number in numbers:
            index = bisect_left(step_rows, number)
            index = min(index, len(step_rows) - 1) if is_before else max(index - 1, 0)
            hint = _within(rows.hints[number], rows.hints[step_rows[index]])
            if is_rare and metrics[number] == {"reward/accuracy"}:
                hint = hint._replace(is_eval=True)
            rows.hints[number] = hint
            if not hint.is_eval and metrics[number] <= metrics_of_steps:
                rows.left_out.append(number)


def _within(hint: StepHint, step_hint: StepHint) -> StepHint:
    return hint._replace(step=step_hint.step, epoch=step_hint.epoch, total=step_hint.total)


def _rises(rows: Rows, numbers: list[int]) -> bool:
    """Return whether the numbers of rows rise, apart from a few resumes."""
    steps = np.array([rows.hints[number].step for number in numbers])
    return int((np.diff(steps) < 0).sum()) <= 1 + len(steps) // 20 and len(set(steps.tolist())) > 1
