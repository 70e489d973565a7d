"""Seconds to reward 512 completions by a judge that takes one second for each.

    python -m benchmarks.rewards

The judge is a server on this machine, in a process of its own, that answers in vLLM's form after a second and
keeps connections open, as vLLM does. Writes results.md beside this file.

Processor seconds say what a round costs whatever else the machine does; with the judge's one second and its
default concurrency of 256, 512 completions take at least two.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from backend.base.settings import Settings
from backend.config.served_rewards import JudgeReward
from benchmarks.common.service import machine
from tests.worker.rewards.test_judge import PROMPT, Handler, Server, grade
from worker.rewards.served import ServedTerm

HERE = Path(__file__).parent
COMPLETIONS = 512


class Round(NamedTuple):
    """One round of 512 completions."""

    seconds: float
    own: float
    """Processor seconds of the trainer's side."""
    judge: float
    """Processor seconds of the judge's process."""
    most: int
    """Most requests that the judge had at once."""


class KeptOpen(Handler):
    """Answers one request after the other on a connection."""

    protocol_version = "HTTP/1.1"


def main() -> None:
    """Time some rounds, print and keep the table."""
    parser = argparse.ArgumentParser(description="how long a judge of one second takes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help="be the judge, until standard input ends")
    asked = parser.parse_args()
    if asked.serve:
        serve()
        return
    rounds = [judged(round_) for round_ in range(asked.rounds)]
    on = ", ".join(f"{name} {value}" for name, value in machine().items())
    lines = [
        f"{COMPLETIONS} completions, a judge of one second, JUDGE_CONCURRENCY at its default; {on}.",
        "",
        "| round | seconds | processor seconds | judge's | requests at once, most |",
        "|---|---|---|---|---|",
        *(
            f"| {number} | {found.seconds:.1f} | {found.own:.2f} | {found.judge:.2f} | {found.most} |"
            for number, found in enumerate(rounds, start=1)
        ),
    ]
    text = "\n".join(lines)
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def judged(round_: int) -> Round:
    """One round, with a judge that begins for it."""
    command = [sys.executable, "-m", "benchmarks.rewards", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as judge:
        port = int(judge.stdout.readline()) if judge.stdout else 0
        settings = Settings(judge_url=f"http://127.0.0.1:{port}/v1", judge_model="judge")
        term = ServedTerm(JudgeReward(), settings)
        started, worked = time.perf_counter(), time.process_time()
        found = term.rewards([(PROMPT, f"round {round_}, number {at}") for at in range(COMPLETIONS)])
        seconds, own = time.perf_counter() - started, time.process_time() - worked
        said = json.loads(judge.communicate()[0])
    if found != [1.0] * COMPLETIONS:
        raise SystemExit("the judge gave every completion the best grade, the rewards differ")
    return Round(seconds, own, said["processor"], said["most"])


def serve() -> None:
    """Judge until standard input ends, then say what it took."""
    with Server() as server:
        server.RequestHandlerClass = KeptOpen
        server.respond = _slowly
        worked = time.process_time()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()
        print(json.dumps({"processor": time.process_time() - worked, "most": server.most}))


def _slowly(body: Any) -> Any:
    time.sleep(1)
    return grade(10)(body)


if __name__ == "__main__":
    main()
