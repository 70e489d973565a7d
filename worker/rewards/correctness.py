"""Grade answers by exact comparison first, and send only undecided ones to a checking process."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple

from backend.base.sandbox.errors import SandboxError, TimedOut
from backend.base.sandbox.process import Sandbox
from backend.config.boxed import last_boxed
from backend.config.rewards import CorrectnessReward
from worker.prompt import Prompt
from worker.rewards.answers import MAX_ANSWER_CHARS, asks_for_order, is_mathematical, quick_verdict
from worker.rewards.formats import lenient_answer

JUDGING = "worker.rewards.judging"
SHORTEST_LIMIT_SECONDS = 0.2
FULL_MARKS = 1 - 1e-9

logger = logging.getLogger(__name__)


class Grade(NamedTuple):
    """The verdict on one completion."""

    score: float | None
    """Score from 0 (wrong) to 1 (right), with partial credit for reasoning_gym tasks. None without
    expected answer.
    """

    @property
    def is_correct(self) -> bool | None:
        """True if the score is full. None if the completion could not be graded."""
        return None if self.score is None else self.score >= FULL_MARKS


def process_count(configured_count: int = 0) -> int:
    """Return `configured_count` if it is not 0, else one process per two processors, at most four."""
    return configured_count or max(1, min(4, (os.cpu_count() or 1) // 2))


class Checkers:
    """The checking processes of one run, which start on first use: one per two processors, at most four."""

    def __init__(self, processes: int = 0) -> None:
        self._sandboxes = [Sandbox(JUDGING) for _ in range(process_count(processes))]
        self.timeouts = 0
        """Number of answers that took too long so far. They were graded wrong."""

    def ask_all(self, requests: Sequence[dict[str, Any]], *, seconds: float) -> list[Any]:
        """Return one value per request, or None if the check hung, died or failed.

        Each timeout among these requests halves the time limit of later ones, so that a policy that has
        learned to write hanging answers cannot delay its training.
        """
        free_sandboxes: SimpleQueue[Sandbox] = SimpleQueue()
        for sandbox in self._sandboxes:
            free_sandboxes.put(sandbox)
        limit = _ShrinkingLimit(seconds)

        def run_check(request: dict[str, Any]) -> Any:
            sandbox = free_sandboxes.get()
            try:
                return self._ask(sandbox, request, limit)
            finally:
                free_sandboxes.put(sandbox)

        if len(requests) < 2 or len(self._sandboxes) < 2:
            return [run_check(request) for request in requests]
        with ThreadPoolExecutor(len(self._sandboxes)) as pool:
            return list(pool.map(run_check, requests))

    def close(self) -> None:
        """End all processes."""
        for sandbox in self._sandboxes:
            sandbox.close()

    def _ask(self, sandbox: Sandbox, request: dict[str, Any], limit: "_ShrinkingLimit") -> Any:
        try:
            value = sandbox.run_operation(**request, seconds=limit.seconds)
            return value if _is_score(value) else None
        except TimedOut:
            self.timeouts += 1
            limit.halve()
        except SandboxError as error:
            logger.info("an answer could not be checked", extra={"reason": str(error)})
        return None


def _is_score(value: Any) -> bool:
    """Return whether a value is a valid score.

    A compromised process may return any value, such as NaN, a text or too large a number.
    """
    return isinstance(value, bool | int | float) and 0 <= value <= 1


class _ShrinkingLimit:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def halve(self) -> None:
        self.seconds = max(min(SHORTEST_LIMIT_SECONDS, self.seconds), self.seconds / 2)


class Grader:
    """Grades completions against the expected answers of their prompts."""

    def __init__(self, term: CorrectnessReward, checkers: Checkers) -> None:
        self.term = term
        self._checkers = checkers

    def grades(self, pairs: Sequence[tuple[Prompt, str]]) -> list[Grade]:
        """Return one grade per (prompt, completion text)."""
        verdicts = [self._verdict_or_request(prompt, text) for prompt, text in pairs]
        requests = _unique_requests(verdict for verdict in verdicts if isinstance(verdict, dict))
        values = self._checkers.ask_all(list(requests.values()), seconds=self.term.timeout_seconds)
        value_by_key = dict(zip(requests, values, strict=True))
        return [
            Grade(float(value_by_key[_request_key(verdict)] or 0.0) if isinstance(verdict, dict) else verdict)
            for verdict in verdicts
        ]

    def _verdict_or_request(self, prompt: Prompt, text: str) -> float | dict[str, Any] | None:
        answer = EXTRACTIONS[self.term.extraction](text)
        if prompt.problem.startswith("reasoning_gym:"):
            return _gym_request(prompt, answer)
        if not prompt.answer.strip():
            return None
        if not answer:
            return 0.0
        is_ordered = asks_for_order(prompt.text)
        verdict = quick_verdict(prompt.answer, answer, is_ordered=is_ordered)
        if verdict is None and self._wants_mathematics(prompt):
            return {"op": "equal", "expected": prompt.answer, "found": answer, "is_ordered": is_ordered}
        return float(verdict or False)

    def _wants_mathematics(self, prompt: Prompt) -> bool:
        if self.term.grader != "auto":
            return self.term.grader == "math"
        return prompt.problem.partition("#")[0] != "sums" and is_mathematical(prompt.answer)


EXTRACTIONS: dict[str, Callable[[str], str | None]] = {"boxed": last_boxed, "lenient": lenient_answer}


def _gym_request(prompt: Prompt, answer: str | None) -> float | dict[str, Any]:
    if not answer or len(answer) > MAX_ANSWER_CHARS:
        return 0.0
    entry = prompt.columns["reasoning_gym"]
    assert isinstance(entry, dict)  # noqa: S101 - for the type checker; the problem source wrote it
    return {"op": "gym_score", "found": answer, **entry}


def _unique_requests(requests: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {_request_key(request): request for request in requests}


def _request_key(request: dict[str, Any]) -> str:
    return repr(sorted(request.items(), key=lambda item: item[0]))
