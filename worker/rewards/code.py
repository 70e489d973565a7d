"""Grade programs by running a completion's code against the tests of its row in the sandbox."""

import logging
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple

from backend.base.sandbox.errors import SandboxError
from backend.base.sandbox.process import Sandbox
from backend.config.served_rewards import CodeReward
from backend.rollouts.tags import CLOSE_TAG
from worker.prompt import Prompt
from worker.rewards.code_tests import (
    AssertTest,
    CallTest,
    OutputTest,
    Test,
    is_same_output,
    is_same_value,
    read_tests,
)
from worker.rewards.programs import encode_value, read_ended

PROGRAMS = "worker.rewards.programs"

BLOCK = re.compile(r"```[ \t]*+([\w+-]*+)[^\n`]*+\n(.*?)```", re.DOTALL)
"""Pattern of a fenced block. Possessive quantifiers avoid quadratic backtracking on a long line after ```."""
PYTHON = ("", "python", "python3", "py")
MAX_PROGRAM_CHARS = 100_000
MAX_CALLS = 100
"""Maximum number of calls of the program by one assert test."""

WALL_SECONDS_PER_CPU_SECOND = 3
"""Wall-clock seconds allowed per second of processor time, so that a busy machine does not change a grade."""

logger = logging.getLogger(__name__)


class Bench(NamedTuple):
    """Two processes, because the one that runs programs must not see tests or other programs in freed
    memory.
    """

    runner: Sandbox
    examiner: Sandbox


class CodeGrader:
    """Runs programs against tests, one program at a time on each bench."""

    def __init__(self, benches: int) -> None:
        self._benches = [
            Bench(
                Sandbox(PROGRAMS, forgets_requests=True, runs_programs=True),
                Sandbox(PROGRAMS, runs_programs=True),
            )
            for _ in range(benches)
        ]

    def scores(self, term: CodeReward, pairs: Sequence[tuple[Prompt, str]]) -> list[float | None]:
        """Return one score from 0 to 1 per (prompt, completion text), or None if the row has no tests."""
        jobs = [(tuple(_load_tests(term, prompt)), last_program(text)) for prompt, text in pairs]
        free_benches: SimpleQueue[Bench] = SimpleQueue()
        for bench in self._benches:
            free_benches.put(bench)

        def score(job: tuple[tuple[Test, ...], str]) -> float | None:
            tests, program = job
            if not tests:
                return None
            bench = free_benches.get()
            try:
                return Examination(term, bench, program).score(tests)
            finally:
                free_benches.put(bench)

        with ThreadPoolExecutor(len(self._benches)) as pool:
            return list(pool.map(score, jobs))

    def close(self) -> None:
        """End all processes."""
        for bench in self._benches:
            bench.runner.close()
            bench.examiner.close()


class Examination:
    """Runs the tests of one program."""

    def __init__(self, term: CodeReward, bench: Bench, program: str) -> None:
        self._term, self._bench, self._program = term, bench, program

    def score(self, tests: Sequence[Test]) -> float:
        """Return 1 or 0, or the share of passed tests. Tests after a failure are run only for the share."""
        if not self._program.strip() or len(self._program) > MAX_PROGRAM_CHARS:
            return 0.0
        passed_count = 0
        for test in tests:
            if self._passes(test):
                passed_count += 1
            elif self._term.credit == "all":
                return 0.0
        return passed_count / len(tests)

    def _passes(self, test: Test) -> bool:
        try:
            match test:
                case OutputTest():
                    output, code = read_ended(self._run("run", stdin=test.stdin))
                    return code == 0 and is_same_output(output, test.output)
                case CallTest():
                    outcome = self._call(test.function, [encode_value(value) for value in test.arguments], {})
                    return "value" in outcome and is_same_value(outcome["value"], test.value)
                case AssertTest():
                    return self._passes_assertion(test)
        except (SandboxError, ValueError, TypeError, LookupError) as error:
            logger.debug("a program failed its test", extra={"reason": str(error)[:200]})
        return False

    def _passes_assertion(self, test: AssertTest) -> bool:
        """Run the test and the program's functions that it calls in separate processes."""
        known_outcomes: list[Any] = []
        for _ in range(MAX_CALLS):
            verdict = self._bench.examiner.run_operation(
                "examine", seconds=self._clock, test=test.code, known=known_outcomes, **self._limits
            )
            if "call" not in verdict:
                return verdict["passed"] is True
            call = verdict["call"]
            known_outcomes.append([call, self._call(call["function"], call["arguments"], call["named"])])
        return False

    def _call(
        self, function: str, arguments: Sequence[Any], keyword_arguments: dict[str, Any]
    ) -> dict[str, Any]:
        outcome = self._run("call", function=function, arguments=arguments, named=keyword_arguments)
        if not isinstance(outcome, dict) or len(outcome) != 1 or not outcome.keys() <= {"value", "raised"}:
            raise ValueError("expected a value")
        return outcome

    def _run(self, op: str, **request: Any) -> Any:
        return self._bench.runner.run_operation(
            op, seconds=self._clock, program=self._program, **self._limits, **request
        )

    @property
    def _clock(self) -> float:
        return WALL_SECONDS_PER_CPU_SECOND * math.ceil(self._term.timeout_seconds)

    @property
    def _limits(self) -> dict[str, int]:
        return {
            "cpu_seconds": math.ceil(self._term.timeout_seconds),
            "memory_bytes": self._term.memory_mb * 2**20,
        }


def last_program(text: str) -> str:
    """Return the last fenced block of Python after the thoughts, or the complete text if there is no
    block.
    """
    answer = text.rpartition(CLOSE_TAG)[2]
    blocks = [code for language, code in BLOCK.findall(answer) if language.lower() in PYTHON]
    return blocks[-1] if blocks else answer


def _load_tests(term: CodeReward, prompt: Prompt) -> list[Test]:
    tests = read_tests(prompt.columns.get(term.tests)) or read_tests(prompt.answer)
    return tests[: term.max_tests]
