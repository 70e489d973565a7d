"""Rows that are printed within a step: its updates, epochs and completions, and results without a step.

    Step 5: reward=0.2, length=120                 Reward: 1.0
      epoch 1: loss=0.1 kl=0.01                    Reward: 0.0
      epoch 2: loss=0.1 kl=0.02                    Step 5 | loss 0.1 | kl 0.01

They get the step before them, or the one after them if they precede the first step and none follows the last.
Metrics that the rows of the steps have as well are left out.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from backend.exchange.imports.console.rows import Rows
from backend.exchange.imports.console.trust import metrics_by_row
from backend.exchange.imports.names import metric_of_name

RESULT, EPOCH, NUMBERED = "result", "epoch", "numbered"
"""Words of rows that name no step, of which the last begin with a number."""
WORDS_OF_STEP, WORDS_WITHIN_STEP = ("step", "iteration"), ("update", "rollout", "batch")
_WORDS = (*WORDS_OF_STEP, "episode", *WORDS_WITHIN_STEP, "count")
"""Words before the number of a step; the first whose numbers rise counts the steps."""
MIN_SHARE_OF_STEPS = 0.5
"""Minimum share of the steps that results without a step must have if they are not regular."""
_PARTS = ("train", "sample", "batch", "best")
"""Words of names whose accuracies are not those of an evaluation."""


def resolve_rows_within_steps(rows: Rows) -> None:
    """Give rows within a step its number, and leave out what they repeat."""
    words = {hint.word for hint in rows.hints}
    if words <= {"", EPOCH, RESULT, NUMBERED} or len(words) == 1:
        return
    numbers_by_word = _group_rows(rows)
    step_words = [word for word in _WORDS if word in numbers_by_word]
    step_word = next((word for word in step_words if _rises(rows, numbers_by_word[word])), step_words[0])
    step_rows = numbers_by_word.pop(step_word)
    last_step = max(rows.hints[number].step for number in step_rows)
    within: list[int] = []
    for word, numbers in numbers_by_word.items():
        if word in step_words and _rises(rows, numbers) and rows.hints[numbers[-1]].step <= last_step:
            continue  # another name of the step
        placed_rows = _place(rows, numbers, step_rows)
        if word.startswith(RESULT):
            training_rows = [number for number in placed_rows if not rows.hints[number].is_eval]
            _choose_results(rows, word, training_rows, step_rows)
        within += placed_rows
    _leave_out_repetitions(rows, step_rows, [number for number in within if not rows.hints[number].is_eval])


def rises(numbers: Sequence[int]) -> bool:
    """Return whether numbers rise, apart from repetitions and a few resumes."""
    return int((np.diff(numbers) < 0).sum()) <= 1 + len(numbers) // 20 and len(set(numbers)) > 1


def _rises(rows: Rows, numbers: list[int]) -> bool:
    return rises([rows.hints[number].step for number in numbers])


def _group_rows(rows: Rows) -> dict[str, list[int]]:
    """Return the rows of each word, and of each name of a result."""
    names_of_results: dict[int, str] = {}
    for name, column in rows.table.columns.items():
        for number in column.rows:
            if rows.hints[number].word == RESULT:
                names_of_results.setdefault(number, name)
    numbers_by_word: dict[str, list[int]] = {}
    for number, hint in enumerate(rows.hints):
        word = f"{RESULT} {names_of_results.get(number, '')}" if hint.word == RESULT else hint.word
        if word:
            numbers_by_word.setdefault(word, []).append(number)
    return numbers_by_word


def _place(rows: Rows, numbers: list[int], step_rows: list[int]) -> list[int]:
    """Give rows the step before or after them, and return those for which there is one."""
    is_before = numbers[0] < step_rows[0] and numbers[-1] < step_rows[-1]
    placed_rows = []
    for number in numbers:
        index = bisect_left(step_rows, number) - (not is_before)
        if rows.hints[number].is_eval:
            index = max(index, 0)
        if not 0 <= index < len(step_rows):
            rows.left_out.append(number)
            continue
        hint = rows.hints[step_rows[index]]
        rows.hints[number] = rows.hints[number]._replace(step=hint.step, epoch=hint.epoch, total=hint.total)
        placed_rows.append(number)
    return placed_rows


def _choose_results(rows: Rows, word: str, numbers: list[int], step_rows: list[int]) -> None:
    """Mark results of an evaluation, and leave out those that are neither of it nor of the training.

    Results of most steps or of regular ones are of the training. Accuracies of few, regular steps are of an
    evaluation. Others may be in a config or in a completion.
    """
    steps = sorted({rows.hints[number].step for number in numbers})
    step_count = len({rows.hints[number].step for number in step_rows})
    is_frequent = len(steps) >= MIN_SHARE_OF_STEPS * step_count
    is_regular = len(steps) > 1 and len(set(np.diff(steps).tolist())) == 1
    name = word.removeprefix(f"{RESULT} ")
    is_accuracy = metric_of_name(name) == "reward/accuracy" and not any(
        part in name.lower() for part in _PARTS
    )
    if is_accuracy and is_regular and not is_frequent:
        for number in numbers:
            rows.hints[number] = rows.hints[number]._replace(is_eval=True)
    elif not is_frequent and not (is_regular and len(steps) > 2):
        rows.left_out += numbers


def _leave_out_repetitions(rows: Rows, step_rows: list[int], within: list[int]) -> None:
    """Delete values of metrics that the rows of the steps have; leave out rows without others."""
    metrics = metrics_by_row(rows)
    metrics_of_steps = {metric for number in step_rows for metric in metrics[number]}
    rows.left_out += [number for number in within if metrics[number] <= metrics_of_steps]
    is_within = np.zeros(len(rows), bool)
    is_within[within] = True
    for name, column in rows.table.columns.items():
        if metric_of_name(name) in metrics_of_steps:
            rows.table.keep_values(name, ~is_within[column.numbers()[0]])
