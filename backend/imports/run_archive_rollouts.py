"""Rollouts of an archive: completions with their prompts, and the tokens that were recorded of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.archives.contents import ROLLOUTS, TOKENS
from backend.archives.tables import EXACT, NUMBERS, TEXTS, VALUE, VALUES, exact_name
from backend.db.text import unstorable
from backend.imports.cells import Cells, column_names, read_cells
from backend.imports.log_file import LogFile
from backend.imports.table import BadLog
from backend.rollouts.packing import Tokens
from backend.rollouts.store import PackedGroups, pack_groups

MOST_COMPLETIONS = 500_000
MOST_TOKENS = 200_000_000
MOST_ARRAYS = 64
MOST_OF_GROUP = 4_096


@dataclass(frozen=True, slots=True)
class ArchivedCompletion:
    """A completion as `pack_groups` takes it."""

    text: str
    reward: float | None
    rewards: Mapping[str, float | None]
    advantage: float | None
    finish_reason: str
    correct: bool | None
    flags: Sequence[str]
    token_ids: Any
    token_strings: Sequence[str] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArchivedGroup:
    """A group as `pack_groups` takes it."""

    kind: str
    prompt_index: int
    prompt_id: str
    problem: str
    domain: str
    prompt: str
    answer: str
    completions: list[ArchivedCompletion]


Position = tuple[int, int, int]
"""step, attempt, place within the group."""


class _Packer:
    """Completions in the order of the table, packed for the database as soon as a step is complete."""

    def __init__(self, run_id: str, attempts: AbstractSet[int]) -> None:
        self._run_id = run_id
        self._attempts = attempts
        self._place = (-1, -1)
        self._groups: list[ArchivedGroup] = []
        self.packed: list[PackedGroups] = []

    def add(self, at: Position, group: ArchivedGroup, completion: ArchivedCompletion) -> None:
        """Enter a completion; those of a group follow one another, from place 0 on. Raises ValueError."""
        step, attempt, position = at
        if attempt not in self._attempts:
            raise ValueError(f"is of attempt {attempt}, which the run does not have")
        if position == 0:
            if self._place != (step, attempt):
                self.finish()
                self._place = (step, attempt)
            self._groups.append(group)
        last = self._groups[-1] if self._groups and self._place == (step, attempt) else None
        if last is None or len(last.completions) != position or last.prompt_index != group.prompt_index:
            raise ValueError("is out of order")
        last.completions.append(completion)

    def finish(self) -> None:
        """Pack what there is; raises ValueError for what the database cannot hold."""
        if self._groups:
            self.packed.append(pack_groups(self._run_id, *self._place, self._groups))
            self._groups = []


def read_rollouts(
    run_id: str, rollouts: LogFile, tokens: LogFile, attempts: AbstractSet[int]
) -> list[PackedGroups]:
    """All rollouts as rows for the database; raises BadLog. `attempts` are those of the run."""
    packer, own_tokens = _Packer(run_id, attempts), _Tokens(tokens)
    row = 0
    for cells in read_cells(rollouts, (*NUMBERS, *VALUES), _TEXT_COLUMNS, most=MOST_COMPLETIONS):
        for place in range(cells.rows):
            try:
                group, completion, at = _completion(cells, place, own_tokens.of(row))
                packer.add(at, group, completion)
            except (TypeError, ValueError, KeyError, OverflowError) as error:
                raise BadLog(f"is damaged: row {row} of {ROLLOUTS} {error}"[:300]) from None
            row += 1
    own_tokens.end(row)
    packer.finish()
    return packer.packed


_TEXT_COLUMNS = (*TEXTS, *EXACT, *map(exact_name, EXACT))


def _completion(
    cells: Cells, place: int, tokens: Tokens | None
) -> tuple[ArchivedGroup, ArchivedCompletion, Position]:
    whole = {name: _whole(cells, name, place) for name in NUMBERS}
    text = {name: _utf8(cells.texts[name][place]) for name in TEXTS} | {
        name: _exact(cells, name, place) for name in EXACT
    }
    if text["kind"] not in {"train", "eval"} or len(text["finish_reason"]) > 16:
        raise ValueError("has an unknown kind or reason to finish")
    if not 0 <= whole["position"] < MOST_OF_GROUP:
        raise ValueError(f"has place {whole['position']} in its group")
    rewards, flags = json.loads(text["rewards"]), json.loads(text["flags"])
    if not isinstance(rewards, dict) or not isinstance(flags, list) or unstorable([rewards, flags]):
        raise ValueError("has rewards or flags that cannot be stored")
    if tokens is not None and len(tokens.ids) != whole["tokens"]:
        raise ValueError(f"has {whole['tokens']} tokens, and {len(tokens.ids)} in {TOKENS}")
    same = ("kind", "prompt_id", "problem", "domain", "prompt", "answer")
    group = ArchivedGroup(
        **{name: text[name] for name in same}, prompt_index=whole["prompt_index"], completions=[]
    )
    completion = ArchivedCompletion(
        text=text["text"],
        reward=_value(cells, "reward", place),
        rewards={str(name): None if value is None else float(value) for name, value in rewards.items()},
        advantage=_value(cells, "advantage", place),
        finish_reason=text["finish_reason"],
        correct=None if (correct := _value(cells, "correct", place)) is None else bool(correct),
        flags=[str(flag) for flag in flags],
        token_ids=range(whole["tokens"]) if tokens is None else tokens.ids,
        token_strings=() if tokens is None else tokens.strings,
        arrays={} if tokens is None else tokens.arrays,
    )
    return group, completion, (whole["step"], whole["attempt"], whole["position"])


def _whole(cells: Cells, name: str, place: int) -> int:
    value = cells.numbers[name][place]
    if not cells.is_there[name][place] or not 0 <= value < 2**31 or value != int(value):
        raise ValueError(f"has no whole number as {name}")
    return int(value)


def _value(cells: Cells, name: str, place: int) -> float | None:
    return float(cells.numbers[name][place]) if cells.is_there[name][place] else None


def _utf8(content: bytes | None) -> str:
    if content is None:
        raise ValueError("lacks a text")
    return content.decode()


def _exact(cells: Cells, name: str, place: int) -> str:
    exact = cells.texts[exact_name(name)][place]
    return _utf8(cells.texts[name][place]) if exact is None else exact.decode("utf-8", "surrogatepass")


class _Tokens:
    """Tokens of completions in their order; a completion without rows in the table has none recorded."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._names = [name.removeprefix(VALUE) for name in column_names(file) if name.startswith(VALUE)]
        if len(self._names) > MOST_ARRAYS:
            raise BadLog(f"is damaged: {TOKENS} has more than {MOST_ARRAYS} values of a token")
        self._pieces = self._read()
        self._next = next(self._pieces, None)

    def of(self, row: int) -> Tokens | None:
        """The tokens of the completion in a row of the rollouts, which are asked for one after another."""
        pieces = []
        while self._next is not None and self._next[0] == row:
            pieces.append(self._next[1])
            self._next = next(self._pieces, None)
        return _joined(pieces) if pieces else None

    def end(self, rows: int) -> None:
        """Raise BadLog where tokens are left over."""
        if self._next is not None:
            raise BadLog(f"is damaged: {TOKENS} has tokens of row {self._next[0]}, and there are {rows}")

    def _read(self) -> Iterator[tuple[int, Tokens]]:
        """(row of the completion, some of its tokens)."""
        numbers = ("rollout", "id", *(VALUE + name for name in self._names))
        for cells in read_cells(self._file, numbers, ("token", "token_exact"), most=MOST_TOKENS):
            rows, ids = cells.numbers["rollout"], cells.numbers["id"]
            is_right = cells.is_there["rollout"].all() and cells.is_there["id"].all()
            if not is_right or not (np.abs(rows) < 2**31).all() or not (np.abs(ids) < 2**31).all():
                raise BadLog(f"is damaged: {TOKENS} has a token without an id")
            strings = [
                (exact if exact is not None else text or b"").decode("utf-8", "surrogatepass")
                for text, exact in zip(cells.texts["token"], cells.texts["token_exact"], strict=True)
            ]
            starts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
                arrays = {
                    name: cells.numbers[VALUE + name][start:end].astype(np.float32)
                    for name in self._names
                    if cells.is_there[VALUE + name][start:end].all()
                }
                own = Tokens(strings[start:end], ids[start:end].astype(np.int32), arrays)
                yield int(rows[start]), own


def _joined(pieces: list[Tokens]) -> Tokens:
    if len(pieces) == 1:
        return pieces[0]
    names = set.intersection(*(set(piece.arrays) for piece in pieces))
    arrays: dict[str, NDArray[np.float32]] = {
        name: np.concatenate([piece.arrays[name] for piece in pieces]) for name in sorted(names)
    }
    strings = [text for piece in pieces for text in piece.strings]
    return Tokens(strings, np.concatenate([piece.ids for piece in pieces]), arrays)
