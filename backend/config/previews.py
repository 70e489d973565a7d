"""Preview a few prompts of a run before its launch, if no worker is needed to make them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from backend.config.columns import Columns, read_answer, read_prompt, stated_answer
from backend.config.jsonl import read_row
from backend.config.messages import question_text
from backend.config.problems import FileProblem, ProblemSource, SumsProblem
from backend.config.sources import checked_file
from backend.config.sums import draw_operands

EXAMPLES_PER_SOURCE = 3


class Example(NamedTuple):
    """A prompt and its reference answer."""

    prompt: str
    answer: str
    problem: str


def previews(problems: Sequence[ProblemSource], *, seed: int, datasets_dir: Path) -> list[Example]:
    """Return the first training prompts of `sums` and the first rows of files, and none of other sources."""
    return [example for source in problems for example in _examples(source, seed, datasets_dir)]


def unpreviewable_labels(problems: Sequence[ProblemSource]) -> list[str]:
    """Return the labels of the sources whose prompts cannot be previewed."""
    return [source.label for source in problems if not isinstance(source, SumsProblem | FileProblem)]


def _examples(source: ProblemSource, seed: int, datasets_dir: Path) -> Iterator[Example]:
    if isinstance(source, SumsProblem):
        for index in range(EXAMPLES_PER_SOURCE):
            numbers = draw_operands(
                f"train/{seed}/{index}", operands=source.operands, low=source.low, high=source.high
            )
            yield Example("+".join(map(str, numbers)) + "=?", str(sum(numbers)), source.label)
    elif isinstance(source, FileProblem):
        rows = checked_file(source, datasets_dir)
        columns = Columns(source.prompt_field, source.answer_field)
        for number in range(min(EXAMPLES_PER_SOURCE, len(rows))):
            row = read_row(rows, number)
            answer = stated_answer(
                str(read_answer(row, columns)), marker=source.answer_after, form=source.answer_form
            )
            yield Example(question_text(read_prompt(row, columns)), answer, source.label)
