"""Guess which columns of a dataset contain the question and the answer, from their names and values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from backend.config.base import Frozen
from backend.config.boxed import last_boxed
from backend.config.columns import AnswerForm, Columns, read_answer, read_prompt
from backend.config.rows import check_row

MAX_COLUMNS = 200
"""Maximum number of columns that a preview lists."""

MAX_NAME_CHARACTERS = 128
"""Maximum length of a column name, in characters."""

MAX_FIELDS_PER_OBJECT = 20
"""Maximum number of fields of an object that a preview lists as `a.b`."""

PROMPT_COLUMN_NAMES = (
    "prompt", "problem", "question", "instruction", "query", "messages", "conversations", "conversation",
    "input", "user", "text",
)  # fmt: skip
ANSWER_COLUMN_NAMES = (
    "answer", "ground_truth", "expected_answer", "final_answer", "reward_model.ground_truth", "target",
    "solution", "output", "response", "completion", "label", "gold", "assistant", "chosen",
)  # fmt: skip
"""Names of answer columns, the most likely first. Short answers come before solutions that contain them."""

ANSWER_MARKS = ("####",)
"""Marks before the final answer of a solution, as in GSM8K."""

CONTEXT_COLUMN_NAMES = ("input", "context", "passage")
"""Columns that often contain a part of the question."""


class ColumnMapping(Frozen):
    """The fields of a file problem that define how a row becomes a prompt and its answer."""

    prompt_field: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)] = "prompt"
    """Column of the question."""

    answer_field: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)] = "answer"
    """Column of the answer. It is the column of the question if conversations end with the answer."""

    answer_after: Annotated[str, Field(max_length=32)] = ""
    """Text after which the answer follows, or "" if the answer is the whole column."""

    answer_form: AnswerForm = "text"
    """`text`, or `boxed` if the answer is the content of the last box."""

    @property
    def columns(self) -> Columns:
        """The names of both columns."""
        return Columns(self.prompt_field, self.answer_field)


def column_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the column names in the order of their first appearance, with fields of objects as `a.b`."""
    names: dict[str, None] = {}
    for row in rows:
        for name in _names(row):
            if 0 < len(name) <= MAX_NAME_CHARACTERS:
                names[name] = None
            if len(names) >= MAX_COLUMNS:
                return list(names)
    return list(names)


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{child_name}" for child_name in list(value)[:MAX_FIELDS_PER_OBJECT])


def guess_mapping(
    rows: Sequence[Mapping[str, Any]], named_columns: Mapping[str, str]
) -> ColumnMapping | None:
    """Return the named fields, and guesses for the others.

    Return None if no column is named and no two columns give at least half of the rows a question and an
    answer.
    """
    columns = _guess_columns(rows, named_columns)
    if columns is None:
        return ColumnMapping().with_(**named_columns) if named_columns else None
    texts = [text for row in rows if isinstance(text := _answer(row, columns), str)]
    marker = next((marker for marker in ANSWER_MARKS if texts and all(marker in text for text in texts)), "")
    is_boxed = bool(texts) and not marker and all(last_boxed(text) is not None for text in texts)
    fields = {
        "prompt_field": columns.prompt,
        "answer_field": columns.answer,
        "answer_after": marker,
        "answer_form": "boxed" if is_boxed else "text",
    }
    return ColumnMapping().with_(**fields | dict(named_columns))


def _guess_columns(rows: Sequence[Mapping[str, Any]], named_columns: Mapping[str, str]) -> Columns | None:
    names = {name.casefold(): name for name in reversed(column_names(rows))}
    prompts = (
        [named_columns["prompt_field"]]
        if "prompt_field" in named_columns
        else _matching_names(PROMPT_COLUMN_NAMES, names)
    )
    answers = (
        [named_columns["answer_field"]]
        if "answer_field" in named_columns
        else _matching_names(ANSWER_COLUMN_NAMES, names)
    )
    pairs = [Columns(prompt, answer) for prompt in prompts for answer in answers]
    if "answer_field" not in named_columns:
        pairs = [Columns(prompt, prompt) for prompt in prompts] + pairs
    shares = [(_share(rows, pair), pair) for pair in pairs]
    best = max((share for share, _ in shares), default=0.0)
    return next(pair for share, pair in shares if share == best) if best >= 1 / 2 else None


def _matching_names(usual_names: Sequence[str], names: Mapping[str, str]) -> list[str]:
    return [names[name] for name in usual_names if name in names]


def _share(rows: Sequence[Mapping[str, Any]], columns: Columns) -> float:
    """Return the fraction of rows that have a question and an answer in these columns."""
    valid_rows = 0
    for row in rows:
        try:
            check_row(row, columns)
        except ValueError:
            continue
        valid_rows += 1
    return valid_rows / max(1, len(rows))


def _answer(row: Mapping[str, Any], columns: Columns) -> Any:
    try:
        return read_answer(row, columns)
    except ValueError:
        return None


def unused_column_notes(rows: Sequence[Mapping[str, Any]], columns: Columns) -> list[str]:
    """Return messages about columns that are unused, or used differently than a user may expect."""
    sentences = []
    for name in CONTEXT_COLUMN_NAMES:
        filled_rows = sum(isinstance(text := row.get(name), str) and bool(text.strip()) for row in rows)
        if filled_rows and name not in columns:
            sentences.append(f"The column {name!r} is not part of the prompt; rewards can read it.")
    if columns.prompt == columns.answer:
        lengths = [len(talk) for row in rows if isinstance(talk := _prompt(row, columns), list)]
        if any(length > 1 for length in lengths):
            sentences.append("The last message of each conversation is the answer.")
    return sentences


def _prompt(row: Mapping[str, Any], columns: Columns) -> Any:
    try:
        return read_prompt(row, columns)
    except ValueError:
        return None
