"""Problems that consist of rows: a table of questions and answers, split and ordered without copies."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from backend.catalog.datasets.overlap import find_overlapping, first_occurrences
from backend.catalog.datasets.similarity import near_duplicates
from backend.config.columns import AnswerForm, Columns, read_answer, read_prompt, stated_answer
from backend.config.data import DataConfig
from backend.config.jsonl import held_out_keys
from backend.config.messages import append_line, question_text, read_messages, read_tools
from backend.config.pass_rates import PassRates
from backend.config.problems import FileProblem, HubProblem
from backend.config.rows import value_excerpt
from worker.problems.base import Split
from worker.problems.selection import (
    FIELDS,
    MAX_NAMED,
    Selection,
    difficulty,
    is_within_limits,
    pass_rate,
)
from worker.prompt import Prompt

EVAL_ORDER_SEED = 20_240_201


class Table(Protocol):
    """Checked rows, read one at a time."""

    @property
    def keys(self) -> Sequence[int]:
        """A 64-bit hash of each question, [rows]."""
        ...

    @property
    def splits(self) -> Sequence[int]:
        """UNMARKED, TRAIN or EVAL for each row, [rows]."""
        ...

    def row(self, number: int) -> Mapping[str, Any]:
        """Return one row."""
        ...


@dataclass(frozen=True)
class RowSource:
    """Rule that converts rows to prompts."""

    label: str
    columns: Columns
    answer_after: str
    answer_form: AnswerForm
    instruction: str
    domain: str
    eval_fraction: float


class RowProblem:
    """A finite table as an endless supply of prompts. Every pass over the training rows has a different
    order.

    Held-out rows are marked in the table or chosen by a hash of the question, so all rows with the same
    question are in the same split. Evaluation uses them in the same order in every run.
    """

    def __init__(self, table: Table, source: RowSource, *, seed: int, shuffled: bool) -> None:
        held_out = held_out_keys(table.keys, table.splits, source.eval_fraction)
        self.name = source.label
        self._table, self._source, self._seed, self._shuffled = table, source, seed, shuffled
        self._rows: dict[Split, NDArray[np.int64]] = {
            "train": _select_rows(table, held_out, inside=False),
            "eval": _first_occurrences(table, _select_rows(table, held_out, inside=True)),
        }
        self._difficulty: NDArray[np.float64] | None = None
        self._order = lru_cache(maxsize=2)(self._new_order)

    def held_out_questions(self) -> list[str]:
        """Return the held-out questions without the instruction."""
        return list(self._questions("eval"))

    def hold_out_all(self) -> None:
        """Hold out every row, because the table is a test set."""
        all_rows = np.arange(len(self._table.keys))
        self._rows = {"train": all_rows[:0], "eval": _first_occurrences(self._table, all_rows)}
        self._order.cache_clear()

    def select(
        self, data: DataConfig, held_out: Collection[str], pass_rates: PassRates | None = None
    ) -> Selection:
        """Exclude rows from training, given every held-out question and an earlier run's rates.

        Raises ValueError if a column is missing, no row was measured or no row is left.
        """
        selection = Selection(
            self.name,
            rows=len(self._rows["train"]),
            dropped=[name for name in FIELDS if getattr(data, name) == "drop"],
        )
        if "duplicates" in selection.dropped or data.contamination != "ignore":
            firsts = first_occurrences(self._questions("train"))
            selection.duplicates = selection.rows - len(firsts)
            if "duplicates" in selection.dropped:
                self._keep(firsts)
        if pass_rates is not None:
            selection.measured = sum(rate is not None for rate in self._rates(data, pass_rates))
            selection.measured_by = pass_rates.run_name
            if not selection.measured:
                raise ValueError(f"holds no prompt of {pass_rates.run_name!r}, whose pass rates were chosen")
        if data.pass_rate_field or (pass_rates is not None and data.has_limits):
            selection.out_of_range = self._keep(
                np.flatnonzero(is_within_limits(self._rates(data, pass_rates), data))
            )
        if data.contamination != "ignore":
            overlaps = find_overlapping(self._questions("train"), held_out, data.ngram)
            selection.contaminated = len(overlaps)
            selection.examples = [self._id(number) for number in sorted(overlaps)[:MAX_NAMED]]
            if "contamination" in selection.dropped:
                self._keep([n for n in range(len(self._rows["train"])) if n not in overlaps])
        if data.near_duplicates != "ignore":
            self._select_near(selection, data, list(held_out))
        if not len(self._rows["train"]):
            raise ValueError(f"has no row left for training: {selection.sentence}")
        if data.curriculum == "easy_first":
            pairs = zip(self._read("train"), self._rates(data, pass_rates), strict=True)
            self._difficulty = np.array([difficulty(row, rate, data) for row, rate in pairs])
        self._order.cache_clear()
        return selection

    def _rates(self, data: DataConfig, pass_rates: PassRates | None) -> list[float | None]:
        """Return the pass rate of each training row, or None if it is unknown."""
        if data.pass_rate_field:
            return [pass_rate(row, data) for row in self._read("train")]
        prompts = (self._prompt(position) for position in range(len(self._rows["train"])))
        return [None if pass_rates is None else pass_rates.rate(prompt.id, prompt.text) for prompt in prompts]

    def _select_near(self, selection: Selection, data: DataConfig, held_out: list[str]) -> None:
        """Count near duplicates of other rows or held-out questions, and exclude them if configured."""
        duplicates = near_duplicates(self._questions("train"), held_out, data.similarity)
        selection.near_held_out = sum(duplicate.other_number < 0 for duplicate in duplicates)
        selection.near = len(duplicates) - selection.near_held_out
        for duplicate in duplicates[:MAX_NAMED]:
            counterpart = (
                self._id(duplicate.other_number)
                if duplicate.other_number >= 0
                else f"the held-out question {value_excerpt(held_out[duplicate.other_number])}"
            )
            selection.twins.append(
                f"{self._id(duplicate.number)} is {duplicate.similarity:.0%} like {counterpart}"
            )
        if "near_duplicates" in selection.dropped:
            duplicate_rows = {duplicate.number for duplicate in duplicates}
            self._keep([n for n in range(len(self._rows["train"])) if n not in duplicate_rows])

    def _keep(self, positions: Sequence[int] | NDArray[np.int64]) -> int:
        """Keep only the training rows at these positions, and return the number of excluded rows."""
        rows_before = self._rows["train"]
        self._rows["train"] = rows_before[np.asarray(positions, dtype=np.int64)]
        return len(rows_before) - len(self._rows["train"])

    def _read(self, split: Split) -> Iterator[Mapping[str, Any]]:
        return (self._table.row(int(number)) for number in self._rows[split])

    def _questions(self, split: Split) -> Iterator[str]:
        columns = self._source.columns
        return (question_text(read_prompt(row, columns)) for row in self._read(split))

    def _id(self, position: int) -> str:
        return self._prompt(position).id

    def _prompt(self, position: int) -> Prompt:
        """Return the prompt of a training row."""
        number = int(self._rows["train"][position])
        return _prompt(self._table.row(number), self._table.keys[number], self._source, index=0)

    def sample(self, index: int, split: Split) -> Prompt:
        """Return prompt number `index` of a split. After the last row the next pass begins."""
        rows = self._rows[split]
        round_, position = divmod(index, len(rows))
        number = int(rows[self._order(split, 0 if split == "eval" else round_)[position]])
        return _prompt(self._table.row(number), self._table.keys[number], self._source, index=index)

    def _new_order(self, split: Split, round_: int) -> NDArray[np.int64]:
        count = len(self._rows[split])
        if split == "eval":
            return np.random.default_rng(EVAL_ORDER_SEED).permutation(count)
        permute = np.random.default_rng([self._seed, round_]).permutation
        order = permute(count) if self._shuffled else np.arange(count)
        return (
            order if self._difficulty is None else order[np.argsort(self._difficulty[order], kind="stable")]
        )


def row_source(source: FileProblem | HubProblem) -> RowSource:
    """Return the conversion rule of a source of rows."""
    return RowSource(
        label=source.label,
        columns=Columns(source.prompt_field, source.answer_field),
        answer_after=source.answer_after,
        answer_form=source.answer_form,
        instruction=source.instruction,
        domain=source.domain,
        eval_fraction=source.eval_fraction,
    )


def _select_rows(table: Table, held_out: set[int], *, inside: bool) -> NDArray[np.int64]:
    """Return the numbers of the rows whose question is held out, or of the other rows."""
    return np.array(
        [row for row, key in enumerate(table.keys) if (key in held_out) is inside], dtype=np.int64
    )


def _first_occurrences(table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows without repeated questions."""
    first = {table.keys[row]: row for row in reversed(rows.tolist())}
    return np.array(sorted(first.values()), dtype=np.int64)


def _prompt(row: Mapping[str, Any], key: int, source: RowSource, *, index: int) -> Prompt:
    question = read_prompt(row, source.columns)
    messages = read_messages(question) if isinstance(question, list) else []
    full_messages = append_line(messages, source.instruction)
    used_columns = {*source.columns, "id", "domain", "split", *(["tools"] if messages else [])}
    return Prompt(
        id=f"{source.label}/{row.get('id', f'{key:016x}')}",
        text=question_text(full_messages)
        if full_messages
        else append_instruction(str(question), source.instruction),
        answer=stated_answer(
            str(read_answer(row, source.columns)), marker=source.answer_after, form=source.answer_form
        ),
        problem=source.label,
        domain=str(row.get("domain", source.domain)),
        index=index,
        columns={name: value for name, value in row.items() if name not in used_columns},
        messages=full_messages,
        tools=read_tools(row.get("tools")) if messages else (),
    )


def append_instruction(question: str, instruction: str) -> str:
    """Return the question followed by the instruction on a separate line."""
    return f"{question.rstrip()}\n{instruction}" if instruction else question
