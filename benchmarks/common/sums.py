"""The built-in sums as rows of a dataset, for benchmarks that change them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from worker.problems.sums import Sums


def sums_rows(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return rows with prompt, answer and split, in the given count for each split."""
    problem = Sums(seed=0)
    return [
        {"prompt": prompt.text, "answer": prompt.answer, "split": split}
        for split, count in counts.items()
        for prompt in (problem.sample(index, split) for index in range(count))  # type: ignore[arg-type]
    ]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
