"""Seconds to reward 512 completions by a judge that takes one second for each.

    python -m benchmarks.rewards

The judge is a server on this machine that answers in vLLM's form after a second. Writes results.md beside
this file.
"""

import argparse
import threading
import time
from pathlib import Path
from typing import Any

from backend.config.served_rewards import JudgeReward
from backend.settings import Settings
from benchmarks.service import machine
from tests.worker.rewards.test_judge import PROMPT, Server, grade
from worker.rewards.served import ServedTerm

HERE = Path(__file__).parent
COMPLETIONS = 512


def main() -> None:
    """Time some rounds, print and keep the table."""
    parser = argparse.ArgumentParser(description="how long a judge of one second takes")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = [judged(round_) for round_ in range(parser.parse_args().rounds)]
    on = ", ".join(f"{name} {value}" for name, value in machine().items())
    lines = [
        f"{COMPLETIONS} completions, a judge of one second, JUDGE_CONCURRENCY at its default; {on}.",
        "",
        "| round | seconds | requests at once, most |",
        "|---|---|---|",
        *(f"| {number} | {seconds:.1f} | {most} |" for number, (seconds, most) in enumerate(rounds, start=1)),
    ]
    text = "\n".join(lines)
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def judged(round_: int) -> tuple[float, int]:
    """Seconds of one round, and the most requests that the judge had at once."""
    with Server() as server:
        server.respond = _slowly
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = Settings(judge_url=f"http://127.0.0.1:{server.server_port}/v1", judge_model="judge")
        term = ServedTerm(JudgeReward(), settings)
        started = time.perf_counter()
        found = term.rewards([(PROMPT, f"round {round_}, number {at}") for at in range(COMPLETIONS)])
        seconds = time.perf_counter() - started
        server.shutdown()
        if found != [1.0] * COMPLETIONS:
            raise SystemExit("the judge gave every completion the best grade, the rewards differ")
        return seconds, server.most


def _slowly(body: Any) -> Any:
    time.sleep(1)
    return grade(10)(body)


if __name__ == "__main__":
    main()
