"""Token exports of prime-rl: JSONL with one sequence per line, whose values are lists with a number per
token.

{"export_step": 3, "token_ids": [..], "loss_mask": [false, true, ..], "rewards": [..], "entropy": [..]}

They do not contain texts, so only curves are imported: means over the trained tokens of each step. Format:
prime_rl.trainer.rl.token_export, schema 2, of August 2026.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any

from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog, Table, as_number
from backend.exchange.imports.text_formats import records

FIELDS = {"token_ids", "loss_mask", "trainer_logprobs"}
"""Fields that only these exports have together."""
METRIC_BY_FIELD = {
    "rewards": "reward/mean",
    "advantages": "advantage/mean",
    "entropy": "policy/entropy",
    "mismatch_kl": "mismatch/k3",
    "importance_ratio": "mismatch/rho_mean",
    "is_masked": "mismatch/masked_frac",
}
SEQUENCE_VALUES = ("rewards", "advantages")
"""Values of a sequence, which are equal for all of its tokens: each sequence counts once."""


def is_token_export(row: Mapping[str, Any]) -> bool:
    """Return whether an object is a sequence of a token export."""
    return row.keys() >= FIELDS


def read_token_export(log_file: LogFile) -> Log:
    """Return the curves of an export; raise BadLog if it has no sequence."""
    table = Table(log_file.max_values)
    sums: dict[int, dict[str, tuple[float, int]]] = defaultdict(dict)
    for line, row in records(log_file.content, table, is_jsonl=True):
        step = as_number(row.get("export_step", row.get("step")))
        if step is None or not step.is_integer() or step < 0:
            table.bad.add(line, "has no step")
            continue
        step_sums = sums[int(step)]
        for metric, total, count in _sums(row):
            old_total, old_count = step_sums.get(metric, (0.0, 0))
            step_sums[metric] = (old_total + total, old_count + count)
    if not sums:
        raise BadLog("has no sequence with a step")
    for step, metrics in sorted(sums.items()):
        table.add(0, [("step", step), *((name, total / count) for name, (total, count) in metrics.items())])
    note = "Curves are means over the tokens that train; token exports hold no texts."
    return Log(table, LogMetadata(notes=[note]), step="step", is_derived=True)


def _sums(row: Mapping[str, Any]) -> Iterator[tuple[str, float, int]]:
    """Yield (metric, sum, count) of a sequence."""
    mask = row.get("loss_mask")
    mask = [bool(trains) for trains in mask] if isinstance(mask, list) else []
    yield "length/mean", float(sum(mask)), 1
    for field, metric in METRIC_BY_FIELD.items():
        values = row.get(field)
        trained_values = compress(values, mask) if isinstance(values, list) else ()
        numbers = [number for value in trained_values if (number := as_number(value)) is not None]
        if numbers and field in SEQUENCE_VALUES:
            yield metric, numbers[0], 1
        elif numbers:
            yield metric, math.fsum(number for number in numbers if math.isfinite(number)), len(numbers)
