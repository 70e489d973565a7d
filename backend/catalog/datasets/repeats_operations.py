"""Sandbox operation that compares the rows of an upload with one another and with held-out rows."""

from pathlib import Path
from typing import Any

from backend.base.sandbox.operation import Operation, Request
from backend.config.columns import Columns, read_prompt
from backend.config.messages import question_text
from backend.config.rows import EVAL, parse_line, split_mark

NGRAM, SIMILARITY = 13, 0.7
"""The defaults of `data.ngram` and `data.similarity`."""

MAX_EXAMPLES = 10


def _import_comparison(_request: Request) -> None:
    import backend.catalog.datasets.overlap
    import backend.catalog.datasets.similarity  # noqa: F401 - imported before forking


def repeats(request: Request) -> dict[str, Any]:
    """Return the counts of repeated rows and the first examples. Line numbers start at 1."""
    from backend.catalog.datasets.overlap import find_overlapping, first_occurrences
    from backend.catalog.datasets.similarity import near_duplicates

    columns = Columns(request["prompt_field"], request["answer_field"])
    lines: dict[bool, list[int]] = {False: [], True: []}
    questions: dict[bool, list[str]] = {False: [], True: []}
    with Path(request["path"]).open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                row = parse_line(line.rstrip(b"\n"))
                is_held_out = split_mark(row) == EVAL
                lines[is_held_out].append(number)
                questions[is_held_out].append(question_text(read_prompt(row, columns)))
    train, held_out = questions[False], questions[True]
    duplicates = near_duplicates(train, held_out, SIMILARITY)
    return {
        "rows": len(train),
        "duplicates": len(train) - len(first_occurrences(train)),
        "contaminated": len(find_overlapping(train, held_out, NGRAM)),
        "near": len(duplicates),
        "twins": [
            [
                lines[False][duplicate.number],
                lines[False][duplicate.other_number]
                if duplicate.other_number >= 0
                else lines[True][duplicate.other_number],
                duplicate.similarity,
            ]
            for duplicate in duplicates[:MAX_EXAMPLES]
        ],
    }


OPERATIONS = {"repeats": Operation(repeats, _import_comparison)}
