"""Tools that a policy may call: a calculator, a lookup in the prompt's row, and Python in the sandbox.

Calls and answers are untrusted text. A tool does not raise errors for them but returns an outcome.
"""

import math
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Lock
from typing import Any, NamedTuple, assert_never

from backend.base.errors import EnvironmentFailed
from backend.base.sandbox.errors import SandboxError, TimedOut, Unusable
from backend.base.sandbox.process import Sandbox
from backend.config.environments import ToolName, ToolUse
from worker.prompt import Prompt
from worker.rewards.correctness import process_count
from worker.rewards.programs import read_ended
from worker.rollout.calculator import BadExpression, calculate

PROGRAMS = "worker.rewards.programs"

WALL_SECONDS_PER_CPU_SECOND = 3
"""Wall-clock seconds allowed per second of processor time, so that a busy machine does not change an
answer.
"""

MAX_CALL_CHARACTERS = 100_000
"""Maximum length of one call's text, in characters."""


class ToolCall(NamedTuple):
    """A call that the policy wrote."""

    tool: str
    """Name of the tool as written, which may not exist."""
    text: str
    """Expression, key or program, or "" if the call is malformed."""
    problem: str = ""
    """Reason why the call cannot be answered, if that is already known."""


class ToolResult(NamedTuple):
    """The answer to a call."""

    text: str
    outcome: str
    """Outcome: ok, failed (the tool returned an error), timeout, or killed (the sandbox ended it)."""
    seconds: float = 0.0


class Toolbox:
    """The tools of a run. It must be closed when the run ends, because it may own processes."""

    def __init__(self, config: ToolUse, *, processes: int = 0) -> None:
        self.config = config
        count = process_count(processes) if "python" in config.tools else 0
        self._sandboxes = [Sandbox(PROGRAMS, forgets_requests=True, runs_programs=True) for _ in range(count)]
        self._turn = Lock()
        """Lock held while calls are answered, because evaluations and asynchronous rollouts may call
        concurrently.
        """

    def check(self) -> None:
        """Raise EnvironmentFailed if a tool cannot work on this machine."""
        if self._sandboxes:
            self.answer([(ToolCall("python", "1"), Prompt("", "", "", ""))])

    def answer(self, calls: Sequence[tuple[ToolCall, Prompt]]) -> list[ToolResult]:
        """Return the answer to each call in order. Programs run in parallel, each in a separate process."""
        with self._turn, ThreadPoolExecutor(max(1, len(self._sandboxes))) as pool:
            free_sandboxes: SimpleQueue[Sandbox] = SimpleQueue()
            for sandbox in self._sandboxes:
                free_sandboxes.put(sandbox)
            return list(pool.map(lambda job: self._answer_timed(job[0], job[1], free_sandboxes), calls))

    def close(self) -> None:
        """End all processes."""
        for sandbox in self._sandboxes:
            sandbox.close()

    def _answer_timed(
        self, call: ToolCall, prompt: Prompt, free_sandboxes: "SimpleQueue[Sandbox]"
    ) -> ToolResult:
        started_at = time.perf_counter()
        answer = self._answer(call, prompt, free_sandboxes)
        return answer._replace(seconds=time.perf_counter() - started_at)

    def _answer(self, call: ToolCall, prompt: Prompt, free_sandboxes: "SimpleQueue[Sandbox]") -> ToolResult:
        if call.problem or len(call.text) > MAX_CALL_CHARACTERS:
            return ToolResult(f"error: {call.problem or 'the call is too long'}", "failed")
        tool = next((name for name in self.config.tools if name == call.tool), None)
        match tool:
            case "calculator":
                return _answer_calculation(call.text)
            case "lookup":
                return _answer_lookup(call.text, prompt.columns.get(self.config.lookup_field))
            case "python":
                return self._run(call.text, free_sandboxes)
            case None:
                tool_names = ", ".join(self.config.tools)
                return ToolResult(
                    f"error: there is no tool {call.tool[:40]!r}; there are {tool_names}", "failed"
                )
            case _:
                assert_never(tool)

    def _run(self, program: str, free_sandboxes: "SimpleQueue[Sandbox]") -> ToolResult:
        """Run a program. The sandbox kills programs that hang, print too much or attack."""
        sandbox, seconds = free_sandboxes.get(), self.config.timeout_seconds
        try:
            outcome = sandbox.run_operation(
                "interpret",
                seconds=WALL_SECONDS_PER_CPU_SECOND * math.ceil(seconds),
                program=program,
                stdin="",
                cpu_seconds=math.ceil(seconds),
                memory_bytes=self.config.memory_mb * 2**20,
            )
            output, code = read_ended(outcome)
        except Unusable as error:
            raise EnvironmentFailed(f"the tool python cannot run here: {error}") from error
        except TimedOut:
            return ToolResult(f"error: no answer within {seconds:g} seconds", "timeout")
        except (SandboxError, ValueError):
            return ToolResult("error: the program was ended by the sandbox", "killed")
        finally:
            free_sandboxes.put(sandbox)
        return _answer_program(output, code)


def _answer_calculation(expression: str) -> ToolResult:
    try:
        return ToolResult(calculate(expression), "ok")
    except BadExpression as error:
        return ToolResult(f"error: {error}", "failed")


def _answer_lookup(key: str, table: Any) -> ToolResult:
    """Return the value of a key, matched exactly or ignoring case and surrounding space."""
    if not isinstance(table, dict):
        return ToolResult("error: there is no table for this question", "failed")
    stripped_key = key.strip()
    entry = table.get(stripped_key)
    if entry is None:
        alike = {str(name).strip().casefold(): value for name, value in table.items()}
        entry = alike.get(stripped_key.casefold())
    if entry is None:
        return ToolResult("error: there is no such key", "failed")
    return ToolResult(str(entry), "ok")


def _answer_program(output: str, code: int) -> ToolResult:
    """Return a program's output, or an error if a signal ended it: at a limit or by the system call
    filter.
    """
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return ToolResult("error: the program took too long", "timeout")
    if code < 0:
        return ToolResult("error: the program was ended by the sandbox", "killed")
    if code == 0:
        return ToolResult(output.rstrip("\n"), "ok")
    return ToolResult(output.rstrip("\n") or f"error: exit code {code}", "failed")


def tool_schema(name: ToolName) -> dict[str, Any]:
    """Return the JSON Schema of a tool for chat templates."""
    parameter, parameter_text, description = SCHEMAS[name]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string", "description": parameter_text}},
                "required": [parameter],
            },
        },
    }


SCHEMAS: dict[ToolName, tuple[str, str, str]] = {
    "calculator": ("expression", "e.g. 12*(3+4)", "Computes an arithmetic expression exactly."),
    "lookup": ("key", "The key to look up.", "Gives the value that belongs to a key."),
    "python": ("code", "The program.", "Runs a Python program and gives what it prints."),
}
"""Name and description of the parameter of each tool, and a description of the tool."""
