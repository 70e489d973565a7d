"""A few prompts of a run before it is launched, where no worker is needed to make them."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from backend.config.columns import Columns, answer_of, prompt_of, stated_answer
from backend.config.jsonl import read_row
from backend.config.messages import question_text
from backend.config.problems import FileProblem, ProblemSource, SumsProblem
from backend.config.sources import checked_file

PER_SOURCE = 3
EVAL_SHARE = 8
"""One in this many sets of operands is held out, as in worker/problems/sums.py."""


class Example(NamedTuple):
    """A prompt and the answer that counts as correct."""

    prompt: str
    answer: str
    problem: str


def previews(problems: Sequence[ProblemSource], *, seed: int, datasets_dir: Path) -> list[Example]:
    """The first training prompts of `sums`, the first rows of files; nothing of other sources."""
    return [example for source in problems for example in _examples(source, seed, datasets_dir)]


def unseen(problems: Sequence[ProblemSource]) -> list[str]:
    """Sources whose prompts can be seen only once a run has begun."""
    return [source.label for source in problems if not isinstance(source, SumsProblem | FileProblem)]


def _examples(source: ProblemSource, seed: int, datasets_dir: Path) -> Iterator[Example]:
    if isinstance(source, SumsProblem):
        for index in range(PER_SOURCE):
            numbers = training_sum(source, seed=seed, index=index)
            yield Example("+".join(map(str, numbers)) + "=?", str(sum(numbers)), source.label)
    elif isinstance(source, FileProblem):
        rows = checked_file(source, datasets_dir)
        columns = Columns(source.prompt_field, source.answer_field)
        for number in range(min(PER_SOURCE, len(rows))):
            row = read_row(rows, number)
            answer = stated_answer(
                str(answer_of(row, columns)), after=source.answer_after, form=source.answer_form
            )
            yield Example(question_text(prompt_of(row, columns)), answer, source.label)


def training_sum(source: SumsProblem, *, seed: int, index: int) -> tuple[int, ...]:
    """The operands of training prompt `index`: the same ones that the worker draws."""
    attempt = 0
    while _is_held_out(numbers := _draw(source, f"train/{seed}/{index}/{attempt}")):
        attempt += 1
    return numbers


def _draw(source: SumsProblem, key: str) -> tuple[int, ...]:
    span = source.high - source.low + 1
    digest = blake2b(key.encode(), digest_size=64).digest()
    words = (digest[at : at + 8] for at in range(0, 8 * source.operands, 8))
    return tuple(source.low + int.from_bytes(word) % span for word in words)


def _is_held_out(numbers: tuple[int, ...]) -> bool:
    key = "+".join(map(str, sorted(numbers)))
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) % EVAL_SHARE == 0
