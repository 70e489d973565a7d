"""Find prompts that are too long for the policy's context, or conversations without a chat template.

The service loads no tokenizer. It counts the tokens of the built-in policies exactly. For other policies it
counts words as a lower bound, if no entry of the vocabulary spans two words. If a prompt turns out to be too
long only when it is tokenized, the run fails with the reason.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from backend.base.errors import FieldError
from backend.base.settings import Settings
from backend.catalog.policies.offered import context_length, is_built_in
from backend.config.columns import Columns, read_prompt
from backend.config.jsonl import read_row
from backend.config.messages import question_text
from backend.config.problems import FileProblem, PluginProblem, ProblemSource, SumsProblem
from backend.config.run import RunConfig
from backend.config.sources import checked_file

MAX_CHECKED_ROWS = 50
"""Maximum number of rows of a file that are checked, starting with the longest."""

TINY_TOKEN_PATTERN = re.compile(r"</?think>|<pad>|<eos>|<unk>")
"""Pattern of the multi-character tokens of the built-in policies. All other characters are one token each."""

WORD_PATTERN = re.compile(r"[^ \t\r\n]*[A-Za-z0-9][^ \t\r\n]*")
MULTI_WORD_PATTERN = re.compile(r"[A-Za-z0-9].*[\sĠĊĉč▁].*[A-Za-z0-9]", re.DOTALL)
"""Pattern of a vocabulary entry that spans two words. Ġ Ċ ĉ č and ▁ represent white space in vocabularies."""


class PromptRuler(NamedTuple):
    """Measures the length of prompts and compares it with their limit."""

    count: Callable[[str], int]
    at_least: str
    """`at least ` if the count is a lower bound, or ""."""
    room: int
    """Maximum length of a prompt in tokens: the context less max_new_tokens."""
    limit: str
    """Explanation of the maximum for the message."""
    is_sure: Callable[[], bool]
    """Function that returns whether the count is reliable. It may take a second and is called only if needed.
    """

    def rejection_reason(self, text: str) -> str:
        """Return the reason why the prompt does not fit, or "" if it fits."""
        if (tokens := self.count(text)) <= self.room or not self.is_sure():
            return ""
        return f"has {self.at_least}{tokens} tokens; expected at most {self.room} ({self.limit})"


def prompt_errors(config: RunConfig, settings: Settings) -> list[FieldError]:
    """Return an error for each problem that has a prompt that is too long for the policy."""
    caps = [config.sampling.max_new_tokens for _ in config.problems]
    caps += [suite.max_new_tokens or config.sampling.max_new_tokens for suite in config.evaluation.suites]
    return [
        FieldError(f"{path}.{field}", reason)
        for (path, source), cap in zip(config.sources, caps, strict=True)
        if (ruler := _make_ruler(config.policy.name, cap, settings)) is not None
        for field, reason in _errors(source, ruler, settings.datasets_dir)
    ]


def conversation_errors(config: RunConfig, settings: Settings) -> list[FieldError]:
    """Return an error if a file contains messages and the policy has no chat template."""
    if config.policy.chat_template:
        return []
    files = [source for _, source in config.sources if isinstance(source, FileProblem)]
    return [
        FieldError(
            "policy.chat_template",
            f"is false, but line {line} of {source.path} holds messages, which need it",
        )
        for source in files
        if (line := checked_file(source, settings.datasets_dir, trains=False).conversation)
    ][:1]


def _make_ruler(name: str, new_tokens: int, settings: Settings) -> PromptRuler | None:
    """Return a ruler for a policy and a maximum completion length, or None if the context is not known."""
    if (context := context_length(name, settings)) is None:
        return None
    room, limit = context - new_tokens, f"context {context} less max_new_tokens {new_tokens}"
    if is_built_in(name):
        return PromptRuler(count_tiny_tokens, "", room, limit, lambda: True)
    return PromptRuler(
        count_words,
        "at least ",
        room,
        limit,
        lambda: _has_vocabulary_without_phrases(settings.models_dir / name),
    )


def count_tiny_tokens(text: str) -> int:
    """Return the number of tokens of a text for the built-in policies."""
    return len(TINY_TOKEN_PATTERN.sub("x", text))


def count_words(text: str) -> int:
    """Return the number of words with an ASCII letter or digit. Two such words never share a token."""
    return len(WORD_PATTERN.findall(text))


def _errors(source: ProblemSource, ruler: PromptRuler, datasets_dir: Path) -> Iterator[tuple[str, str]]:
    if isinstance(source, SumsProblem):
        longest = "+".join([str(source.high)] * source.operands) + "=?"
        if reason := ruler.rejection_reason(longest):
            yield "operands", f"the prompt {longest!r} {reason}"
    elif isinstance(source, FileProblem):
        if reason := _row_refusal(source, ruler, datasets_dir):
            yield "path", reason
    elif not isinstance(source, PluginProblem) and (reason := ruler.rejection_reason(source.instruction)):
        yield "instruction", f"the instruction alone {reason}"


def _row_refusal(source: FileProblem, ruler: PromptRuler, datasets_dir: Path) -> str:
    """Return the error of the longest row that does not fit, or "" if there is none."""
    index = checked_file(source, datasets_dir, trains=False)
    ending = f"\n{source.instruction}" if source.instruction else ""
    columns = Columns(source.prompt_field, source.answer_field)
    long_rows = [row for row, length in enumerate(index.lengths) if length + len(ending) > ruler.room]
    for row in sorted(long_rows, key=index.lengths.__getitem__, reverse=True)[:MAX_CHECKED_ROWS]:
        question = question_text(read_prompt(read_row(index, row), columns))
        if reason := ruler.rejection_reason((question.rstrip() if ending else question) + ending):
            return f"{source.path}: line {index.lines[row]}: the prompt {_excerpt(question)} {reason}"
    return ""


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _has_vocabulary_without_phrases(directory: Path) -> bool:
    """Return whether the tokenizer's vocabulary is readable and has no entry that spans two words."""
    path = directory / "tokenizer.json"
    try:
        status = path.stat()
        return _has_single_words(path, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError, RecursionError):
        return False


@lru_cache(maxsize=16)
def _has_single_words(path: Path, _size: int, _changed: int) -> bool:
    tokenizer: Any = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = _value_at(_value_at(tokenizer, "model"), "vocab")
    entries = [str(entry[0] if isinstance(entry, list) and entry else entry) for entry in vocabulary or ()]
    added_tokens = [str(_value_at(token, "content")) for token in _value_at(tokenizer, "added_tokens") or ()]
    return bool(entries) and not any(map(MULTI_WORD_PATTERN.search, [*entries, *added_tokens]))


def _value_at(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None
