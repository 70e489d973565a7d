"""Tallies, prompts and labels of an archive; every cell is checked."""

import math
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import IO, Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from backend.base.redaction import redact, redact_document
from backend.base.text import clean_text, find_unstorable
from backend.exchange.archives.contents import LABELS, PROMPTS, ROLLOUTS, TALLIES, ArchivedLabel
from backend.exchange.archives.prompt_tables import (
    PROMPT_EXACT,
    PROMPT_TEXTS,
    TALLY_COUNTS,
    TALLY_PLACE,
    TALLY_TEXTS,
)
from backend.exchange.archives.tables import exact_name
from backend.exchange.imports.cells import Cells, read_cells
from backend.exchange.imports.lines import parse, text_lines
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.run_archive.rollouts import KIND_PATTERN, MAX_TEXT_BYTES, exact_text, utf8
from backend.exchange.imports.table import BadLog, Floats
from backend.rollouts.atlas import MAX_COUNT
from backend.rollouts.labels import MAX_LABELS
from backend.rollouts.marks import BIT_BY_MARK, MARKS
from backend.rollouts.packing import pack_text

MAX_TALLIES = 3_000_000
MAX_PROMPTS = 1_000_000
MAX_LABEL_LINES = 500_000
"""Maximum number of labels of all completions."""
MAX_BY_COLUMN = {"tokens": 2**53, "completions": MAX_COUNT}
ROWS_AT_ONCE = 5_000


class Tallies(NamedTuple):
    """Tallies of groups that are not stored, by column, so that millions of them fit into memory."""

    texts: dict[str, list[str]]
    numbers: dict[str, Floats]
    """`reward` is NaN if there is none."""

    def rows(self, run_id: str) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows for the database in batches."""
        for start in range(0, len(self.texts["kind"]), ROWS_AT_ONCE):
            chunk = slice(start, start + ROWS_AT_ONCE)
            columns: dict[str, list[Any]] = {name: values[chunk] for name, values in self.texts.items()}
            columns |= {
                name: values[chunk].astype(np.int64).tolist()
                for name, values in self.numbers.items()
                if name != "reward"
            }
            rewards = [
                None if math.isnan(value) else value for value in self.numbers["reward"][chunk].tolist()
            ]
            columns["reward"] = rewards
            names = list(columns)
            yield [
                {"run_id": run_id, **dict(zip(names, values, strict=True))}
                for values in zip(*columns.values(), strict=True)
            ]


def read_tallies(file: LogFile, attempts: AbstractSet[int]) -> Tallies:
    """Return all tallies; raise BadLog. `attempts` are the attempts of the run."""
    whole_columns = (*TALLY_PLACE, *TALLY_COUNTS)
    texts: dict[str, list[str]] = {name: [] for name in TALLY_TEXTS}
    numbers: dict[str, list[Floats]] = {name: [np.empty(0)] for name in (*whole_columns, "reward")}
    for cells in read_cells(file, (*whole_columns, "reward"), TALLY_TEXTS, limit=MAX_TALLIES):
        for name in whole_columns:
            _check_whole(cells, name)
        for name in TALLY_TEXTS:
            texts[name] += [_intern_text(text) for text in cells.texts[name]]
        if not all(map(KIND_PATTERN.fullmatch, set(texts["kind"][-cells.rows :]))):
            raise BadLog(f"is damaged: {TALLIES} has an unknown kind")
        if extra_attempts := set(cells.numbers["attempt"].tolist()) - attempts:
            raise BadLog(
                f"is damaged: {TALLIES} has attempt {extra_attempts.pop():.0f}, which the run does not have"
            )
        marks = cells.numbers["marks"].astype(np.int64)
        if (marks >= 1 << len(MARKS)).any() or (marks & BIT_BY_MARK["stored"]).any():
            raise BadLog(f"is damaged: {TALLIES} has marks that a group which is not stored cannot have")
        for name in whole_columns:
            numbers[name].append(cells.numbers[name])
        reward = np.where(cells.is_there["reward"], cells.numbers["reward"], np.nan)
        numbers["reward"].append(np.where(np.isfinite(reward), reward, np.nan))
    return Tallies(texts, {name: np.concatenate(arrays) for name, arrays in numbers.items()})


def _check_whole(cells: Cells, name: str) -> None:
    values = cells.numbers[name]
    limit = MAX_BY_COLUMN.get(name, 2**31 - 1)
    is_valid = (values >= 0) & (values <= limit) & (values == np.floor(values))
    if not (cells.is_there[name].all() and is_valid.all()):
        raise BadLog(f"is damaged: {TALLIES} has a row without a whole number up to {limit:,} as {name}")


def _intern_text(content: bytes | None) -> str:
    """Return a text without secrets; equal texts share one object."""
    try:
        return sys.intern(redact(clean_text(utf8(content))))
    except ValueError:
        raise BadLog(f"is damaged: {TALLIES} has a row without a text") from None


def read_prompts(file: LogFile, run_id: str) -> list[dict[str, Any]]:
    """Return the prompts as rows for the database; raise BadLog."""
    texts = (*PROMPT_TEXTS, *PROMPT_EXACT, *map(exact_name, PROMPT_EXACT))
    prompts: list[dict[str, Any]] = []
    size = 0
    for cells in read_cells(file, (), texts, limit=MAX_PROMPTS):
        for row in range(cells.rows):
            try:
                clean_texts = {name: clean_text(utf8(cells.texts[name][row])) for name in PROMPT_TEXTS}
                exact_texts = {name: exact_text(cells, name, row) for name in PROMPT_EXACT}
                clean_texts, exact_texts = redact_document([clean_texts, exact_texts])
            except ValueError as error:
                raise BadLog(f"is damaged: row {len(prompts)} of {PROMPTS} {error}"[:300]) from None
            size += sum(map(len, exact_texts.values()))
            if size > MAX_TEXT_BYTES:
                raise BadLog(f"is too large: {PROMPTS} has more than {MAX_TEXT_BYTES:,} characters")
            packed_texts = {name: pack_text(text) for name, text in exact_texts.items()}
            prompts.append({"run_id": run_id, **clean_texts, **packed_texts})
    return prompts


def read_labels(file: IO[bytes], completions: int) -> list[ArchivedLabel]:
    """Return the labels, which refer to rows of the completions; raise BadLog."""
    labels: list[ArchivedLabel] = []
    labels_by_row: dict[int, set[str]] = {}
    for number, line in text_lines(file):
        label = _label(line, number)
        labels_of_row = labels_by_row.setdefault(label.rollout, set())
        if label.rollout >= completions:
            reason = f"names row {label.rollout} of {ROLLOUTS}, which has {completions}"
            raise BadLog(f"is damaged: line {number} of {LABELS} {reason}")
        if label.label in labels_of_row or len(labels_of_row) >= MAX_LABELS:
            raise BadLog(
                f"is damaged: line {number} of {LABELS} has a label twice, or more than {MAX_LABELS}"
            )
        if len(labels) >= MAX_LABEL_LINES:
            raise BadLog(f"has more than {MAX_LABEL_LINES:,} labels")
        labels_of_row.add(label.label)
        labels.append(label)
    return labels


def _label(line: str, number: int) -> ArchivedLabel:
    reason = "cannot be stored"
    try:
        content = parse(line)
        if not find_unstorable(content):
            return ArchivedLabel.model_validate(content)
    except ValidationError as error:
        first_error = error.errors()[0]
        reason = f"{'.'.join(map(str, first_error['loc']))}: {first_error['msg']}"[:200]
    except ValueError as error:
        reason = str(error)[:200]
    raise BadLog(f"is damaged: line {number} of {LABELS} is not a label ({reason})")


def label_rows(
    labels: Sequence[ArchivedLabel], ids: Sequence[tuple[str, str]], run_id: str
) -> list[dict[str, Any]]:
    """Return the labels as rows for the database; `ids` are the ids of each completion and its group."""
    return [
        {
            **redact_document(label.model_dump(exclude={"rollout"})),
            "rollout_id": ids[label.rollout][0],
            "group_id": ids[label.rollout][1],
            "run_id": run_id,
        }
        for label in labels
    ]
