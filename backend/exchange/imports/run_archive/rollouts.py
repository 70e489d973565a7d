"""Rollouts of an archive: completions with their prompts and recorded tokens."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from backend.base.redaction import redact_document
from backend.base.text import find_unstorable
from backend.exchange.archives.contents import ROLLOUTS, TOKENS
from backend.exchange.archives.tables import (
    EXACT_COLUMNS,
    NUMBER_COLUMNS,
    TEXT_COLUMNS,
    VALUE_COLUMNS,
    VALUE_PREFIX,
    exact_name,
)
from backend.exchange.imports.cells import Cells, column_names, read_cells
from backend.exchange.imports.lines import parse
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog
from backend.rollouts.foreign import FINISH_REASON_PATTERN
from backend.rollouts.marks import REASONS
from backend.rollouts.packing import Tokens
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.store import PackedGroups, pack_groups
from backend.rollouts.turns import read_turns

MAX_COMPLETIONS = 500_000
MAX_TOKENS = 200_000_000
MAX_ARRAYS = 64
MAX_GROUP_COMPLETIONS = 4_096
MAX_TEXT_BYTES = 1_000_000_000
"""Maximum bytes of all completions with their prompts; a small Parquet file can unpack to any size."""
MAX_GROUP_BYTES = 500_000_000
"""Maximum memory that the completions of one prompt use before they are packed."""
TOKEN_BYTES = 64
"""Approximate memory of a token with its id and text; each of its values uses 4 bytes more."""

JSON_TEXTS = ("rewards", "flags", "turns")
"""Columns of JSON. Secrets can contain escapes, so the text is parsed before secrets are replaced."""

KIND_PATTERN = re.compile(r"train|eval(/[a-z0-9][a-z0-9_-]{0,31})?")
REASON_PATTERN = re.compile(FINISH_REASON_PATTERN)


Position = tuple[int, int, int]
"""Step, attempt, and position within the group."""


class _Packer:
    """Completions in the order of the table, packed for the database as soon as a group is complete."""

    def __init__(self, run_id: str, attempts: AbstractSet[int]) -> None:
        self._run_id = run_id
        self._attempts = attempts
        self._place = (-1, -1)
        self._groups: set[tuple[int, int, str, int]] = set()
        self._group: GroupRecord | None = None
        self._completions: list[CompletionRecord] = []
        self._group_bytes = 0
        self._text_bytes = 0
        self.packed: list[PackedGroups] = []
        """One for each step of an attempt."""

    def add(self, rollout_position: Position, group: GroupRecord, completion: CompletionRecord) -> None:
        """Add a completion; raise ValueError. The completions of a group must be consecutive, from position
        0.
        """
        step, attempt, position = rollout_position
        if attempt not in self._attempts:
            raise ValueError(f"is of attempt {attempt}, which the run does not have")
        if position == 0:
            group_key = (step, attempt, group.kind, group.prompt_index)
            if group_key in self._groups:  # only one of the two would be stored
                raise ValueError(f"repeats prompt {group.prompt_index} of step {step} ({group.kind})")
            self._groups.add(group_key)
            self.finish()
            if self._place != (step, attempt):
                self.packed.append(PackedGroups())
            self._place, self._group, self._group_bytes = (step, attempt), group, 0
            self._completions = []
        last = self._group if self._place == (step, attempt) else None
        if last is None or len(self._completions) != position or last.prompt_index != group.prompt_index:
            raise ValueError("is out of order")
        self._count(group, completion)
        self._completions.append(completion)

    def _count(self, group: GroupRecord, completion: CompletionRecord) -> None:
        text = len(group.prompt) + len(group.answer) + len(completion.text)
        self._text_bytes += text
        if self._text_bytes > MAX_TEXT_BYTES:
            raise ValueError(f"makes more than {MAX_TEXT_BYTES:,} characters of text")
        tokens = len(completion.token_strings) * (TOKEN_BYTES + 4 * len(completion.arrays))
        self._group_bytes += text + tokens
        if self._group_bytes > MAX_GROUP_BYTES:
            raise ValueError(f"belongs to a group of more than {MAX_GROUP_BYTES:,} bytes")

    def finish(self) -> None:
        """Pack the last group; raise ValueError for values that the database cannot store."""
        if self._group is not None:
            group = replace(self._group, completions=self._completions)
            packed_group = pack_groups(self._run_id, *self._place, [group])
            self.packed[-1].extend(packed_group)
            self._group = None


def read_rollouts(
    run_id: str, rollouts: LogFile, tokens: LogFile, attempts: AbstractSet[int]
) -> list[PackedGroups]:
    """Return all rollouts as rows for the database; raise BadLog. `attempts` are the attempts of the run."""
    packer, recorded_tokens = _Packer(run_id, attempts), _Tokens(tokens)
    row, texts = 0, [*TEXT_COLUMNS, *EXACT_COLUMNS, *map(exact_name, EXACT_COLUMNS)]
    for cells in read_cells(rollouts, (*NUMBER_COLUMNS, *VALUE_COLUMNS), texts, limit=MAX_COMPLETIONS):
        for cell_row in range(cells.rows):
            try:
                group, completion, rollout_position = _completion(
                    cells, cell_row, recorded_tokens.read_row(row)
                )
                packer.add(rollout_position, group, completion)
            except BadLog:
                raise
            except (TypeError, ValueError, KeyError, OverflowError) as error:
                raise BadLog(f"is damaged: row {row} of {ROLLOUTS} {error}"[:300]) from None
            row += 1
    recorded_tokens.end(row)
    packer.finish()
    return packer.packed


def _completion(
    cells: Cells, cell_row: int, tokens: Tokens | None
) -> tuple[GroupRecord, CompletionRecord, Position]:
    numbers = {name: whole_number(cells, name, cell_row) for name in NUMBER_COLUMNS}
    text = {name: utf8(cells.texts[name][cell_row]) for name in TEXT_COLUMNS}
    text |= {name: exact_text(cells, name, cell_row) for name in EXACT_COLUMNS}
    documents = {name: parse(text.pop(name)) for name in JSON_TEXTS}
    original_text = text["text"]
    text, documents = redact_document([text, documents])
    left_out = text["left_out"]
    if left_out not in ("", *REASONS):
        raise ValueError(f"was left out of training for an unknown reason: {left_out!r:.40}")
    if not KIND_PATTERN.fullmatch(text["kind"]) or not REASON_PATTERN.fullmatch(text["finish_reason"]):
        raise ValueError("has an unknown kind or reason to finish")
    if not 0 <= numbers["position"] < MAX_GROUP_COMPLETIONS:
        raise ValueError(f"has place {numbers['position']} in its group")
    rewards, flags, turns = (documents[name] for name in JSON_TEXTS)
    if not isinstance(rewards, dict) or not isinstance(flags, list) or find_unstorable([rewards, flags]):
        raise ValueError("has rewards or flags that cannot be stored")
    if tokens is not None and len(tokens.ids) != numbers["tokens"]:
        raise ValueError(f"has {numbers['tokens']} tokens, and {len(tokens.ids)} in {TOKENS}")
    if text["text"] != original_text:  # tokens and turns would not match
        tokens, turns = None, []
    group_texts = ("kind", "prompt_id", "problem", "domain", "prompt", "answer")
    group = GroupRecord(
        **{name: text[name] for name in group_texts},
        prompt_index=numbers["prompt_index"],
        completions=[],
        left_out=left_out,
    )
    completion = CompletionRecord(
        text=text["text"],
        reward=_value(cells, "reward", cell_row),
        rewards={str(name): None if value is None else float(value) for name, value in rewards.items()},
        advantage=_value(cells, "advantage", cell_row),
        finish_reason=text["finish_reason"],
        correct=None if (correct := _value(cells, "correct", cell_row)) is None else bool(correct),
        flags=[str(flag) for flag in flags],
        turns=read_turns(turns, text["text"], numbers["tokens"]),
        token_ids=range(numbers["tokens"]) if tokens is None else tokens.ids,
        token_strings=() if tokens is None else tokens.strings,
        arrays={} if tokens is None else tokens.arrays,
    )
    return group, completion, (numbers["step"], numbers["attempt"], numbers["position"])


def whole_number(cells: Cells, name: str, cell_row: int, *, limit: int = 2**31 - 1) -> int:
    """Return a whole number from 0 to `limit`; raise ValueError."""
    value = cells.numbers[name][cell_row]
    if not cells.is_there[name][cell_row] or not 0 <= value <= limit or value != int(value):
        raise ValueError(f"has no whole number as {name}")
    return int(value)


def _value(cells: Cells, name: str, cell_row: int) -> float | None:
    return float(cells.numbers[name][cell_row]) if cells.is_there[name][cell_row] else None


def utf8(content: bytes | None) -> str:
    """Return the text of a cell; raise ValueError if it is missing or not UTF-8."""
    if content is None:
        raise ValueError("lacks a text")
    return content.decode()


def exact_text(cells: Cells, name: str, cell_row: int) -> str:
    """Return the text of a cell including characters that UTF-8 cannot encode; raise ValueError."""
    exact_bytes = cells.texts[exact_name(name)][cell_row]
    return (
        utf8(cells.texts[name][cell_row])
        if exact_bytes is None
        else exact_bytes.decode("utf-8", "surrogatepass")
    )


class _Tokens:
    """Tokens of the completions in order; a completion without rows in the table has no recorded tokens."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._names = [
            name.removeprefix(VALUE_PREFIX) for name in column_names(file) if name.startswith(VALUE_PREFIX)
        ]
        if len(self._names) > MAX_ARRAYS:
            raise BadLog(f"is damaged: {TOKENS} has more than {MAX_ARRAYS} values of a token")
        self._pieces = self._read()
        self._next = next(self._pieces, None)

    def read_row(self, row: int) -> Tokens | None:
        """Return the tokens of the completion in a row of the rollouts; rows must be requested in order."""
        chunks, count = [], 0
        while self._next is not None and self._next[0] == row:
            chunks.append(self._next[1])
            count += len(chunks[-1].strings)
            if count * TOKEN_BYTES > MAX_GROUP_BYTES:
                raise ValueError(f"has more than {MAX_GROUP_BYTES // TOKEN_BYTES:,} tokens")
            self._next = next(self._pieces, None)
        return _join_tokens(chunks) if chunks else None

    def end(self, rows: int) -> None:
        """Raise BadLog if tokens are left over."""
        if self._next is not None:
            raise BadLog(f"is damaged: {TOKENS} has tokens of row {self._next[0]}, and there are {rows}")

    def _read(self) -> Iterator[tuple[int, Tokens]]:
        """Yield (row of the completion, some of its tokens)."""
        numbers = ("rollout", "id", *(VALUE_PREFIX + name for name in self._names))
        for cells in read_cells(self._file, numbers, ("token", "token_exact"), limit=MAX_TOKENS):
            rows, ids = cells.numbers["rollout"], cells.numbers["id"]
            is_valid = cells.is_there["rollout"].all() and cells.is_there["id"].all()
            if not is_valid or not (np.abs(rows) < 2**31).all() or not (np.abs(ids) < 2**31).all():
                raise BadLog(f"is damaged: {TOKENS} has a token without an id")
            strings = _token_strings(cells)
            starts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
                arrays = {
                    name: cells.numbers[VALUE_PREFIX + name][start:end].astype(np.float32)
                    for name in self._names
                    if cells.is_there[VALUE_PREFIX + name][start:end].all()
                }
                token_piece = Tokens(strings[start:end], ids[start:end].astype(np.int32), arrays)
                yield int(rows[start]), token_piece


def _token_strings(cells: Cells) -> list[str]:
    try:
        return [
            (exact_bytes if exact_bytes is not None else text or b"").decode("utf-8", "surrogatepass")
            for text, exact_bytes in zip(cells.texts["token"], cells.texts["token_exact"], strict=True)
        ]
    except UnicodeDecodeError:
        raise BadLog(f"is damaged: {TOKENS} has a token that is not text") from None


def _join_tokens(chunks: list[Tokens]) -> Tokens:
    if len(chunks) == 1:
        return chunks[0]
    names = set.intersection(*(set(chunk.arrays) for chunk in chunks))
    arrays: dict[str, NDArray[np.float32]] = {
        name: np.concatenate([chunk.arrays[name] for chunk in chunks]) for name in sorted(names)
    }
    strings = [text for chunk in chunks for text in chunk.strings]
    return Tokens(strings, np.concatenate([chunk.ids for chunk in chunks]), arrays)
