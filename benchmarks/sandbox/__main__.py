"""Time to judge one answer in the sandbox, beside the same work in a process without it.

    python -m benchmarks.sandbox

Writes results.md beside this file; `make docs` brings it into docs/.
"""

import argparse
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

from backend.base.sandbox.layers import layers, missing_layers
from backend.base.sandbox.process import Sandbox
from benchmarks.common.service import machine
from worker.rewards import judging
from worker.rewards.correctness import JUDGING

HERE = Path(__file__).parent
PLACE = {"task": "chain_sum", "config": {}, "seed": 5, "offset": 3}

Asked = dict[str, object]
Row = tuple[str, list[float], list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description="what the sandbox costs")
    parser.add_argument("--answers", type=int, default=200, help="of each kind")
    answers = parser.parse_args().answers
    with Sandbox(JUDGING) as sandbox:
        began = time.perf_counter()
        sandbox.ask("equal", expected="1", found="1+0", seconds=60)
        start = time.perf_counter() - began
        rows = [compare(sandbox, name, request, answers) for name, request in KINDS.items()]
    text = table(rows, start, answers)
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def equation(number: int) -> Asked:
    """A pair of expressions that no cache has met."""
    return {"op": "equal", "expected": f"{number}*x+{number + 1}", "found": f"{number + 1}+x*{number}"}


def fraction(number: int) -> Asked:
    """A pair of numbers likewise."""
    return {"op": "equal", "expected": rf"\frac{{{number}}}{{7}}", "found": f"{number}/7 + 0"}


def task(number: int) -> Asked:
    """An answer to a task of reasoning_gym."""
    return {"op": "gym_score", "found": str(number), **PLACE}


KINDS: dict[str, Callable[[int], Asked]] = {
    "two expressions, by math-verify": equation,
    "two numbers, by math-verify": fraction,
    "an answer to a task of reasoning_gym": task,
}


def compare(sandbox: Sandbox, name: str, request: Callable[[int], Asked], answers: int) -> Row:
    """Seconds of each answer, judged by turns in the sandbox and in this process."""
    fresh = count(1000)
    operation = judging.OPERATIONS[str(request(0)["op"])]
    operation.prepare(request(0))
    confined, direct = [], []
    for _ in range(answers):
        asked = request(next(fresh))
        began = time.perf_counter()
        sandbox.ask(**asked, seconds=30)  # type: ignore[arg-type]
        confined.append(time.perf_counter() - began)
        asked = request(next(fresh))
        began = time.perf_counter()
        operation.answer(asked)
        direct.append(time.perf_counter() - began)
    return name, confined, direct


def table(rows: list[Row], start: float, answers: int) -> str:
    """The figures in Markdown."""
    absent = {layer.name for layer in missing_layers()}
    names = ", ".join(layer.name for layer in layers() if layer.name not in absent)
    where = f"{machine()['cores']} cores, Python {machine()['python']}"
    lines = [
        f"{answers} answers of each kind, judged by turns in the sandbox and in a process without it; "  # noqa: ISC004
        f"layers: {names}; starting a sandbox with math-verify took {start:.1f} s; {where}.",
        "",
        "| median for one answer | sandbox | without | difference |",
        "|---|---|---|---|",
    ]
    for name, confined, direct in rows:
        inside, outside = 1000 * median(confined), 1000 * median(direct)
        lines.append(f"| {name} | {inside:.1f} ms | {outside:.1f} ms | {inside - outside:.1f} ms |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
