"""Pushing from TRL: a training whose service is killed for two minutes, and the time that pushing takes.

    python -m benchmarks.push

First a real GRPOTrainer pushes to a service that is killed and started again in the middle; at the end every
value and completion is compared with what the trainer logged. Then, in one training, blocks of steps push to
nothing, to GRPO Lab and to Trackio by turns. Writes results.md beside this file.
"""

import argparse
import json
import math
import os
import platform
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from backend.base.settings import Settings
from backend.exchange.imports.guess import is_step_name
from backend.exchange.imports.plan import metric_name
from backend.http.auth.tokens import writer_token
from benchmarks.common.peers import ROOT, python_of_trl
from benchmarks.common.service import Service
from benchmarks.step.workload import TINY
from worker.problems.sums import Sums

HERE = Path(__file__).parent
ID = "benchmark"
SMALL = (4, 4, 32)
FULL = (TINY.prompts_per_step, TINY.group_size, TINY.max_new_tokens)
"""Prompts of a step, completions of each, tokens of each at most."""
WARM_UP_STEPS = 6
"""Steps that are not counted."""


def main() -> None:
    parser = argparse.ArgumentParser(description="what pushing from TRL costs, and whether anything is lost")
    parser.add_argument("--steps", type=int, default=400, help="of the training whose service is killed")
    parser.add_argument("--absence", type=float, default=120, help="seconds for which the service is away")
    parser.add_argument(
        "--blocks", type=int, default=18, help="blocks of five steps that take turns; 0: none"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    text = "\n".join([*outage(arguments), "", *(overhead(arguments) if arguments.blocks else [])])
    print(text)
    if arguments.blocks:
        (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


Sizes = tuple[int, int, int]


class Training:
    """A trainer in a process of its own, and the service that it pushes to."""

    def __init__(
        self, directory: str, arguments: argparse.Namespace, *, steps: int, sizes: Sizes, block: int
    ) -> None:
        self.state = f"{directory}/state"
        self.service = Service(self.state, command="serve")
        self.service.wait_until_it_answers()
        problem = Sums(seed=0)
        asked = [problem.sample(index, "train") for index in range(sizes[0] * steps)]
        self._job = {
            "steps": steps,
            "sizes": sizes,
            "block": block,
            "threads": arguments.threads,
            "directory": directory,
            "url": self.service.url,
            "token": writer_token(Settings(state_dir=Path(self.state)), "benchmark"),
            "id": ID,
            "prompts": [{"prompt": each.text, "answer": each.answer} for each in asked],
        }
        self._lines: list[str] = []

    def start(self) -> None:
        quiet = {
            "OMP_NUM_THREADS": str(self._job["threads"]),
            "HF_HUB_OFFLINE": "1",
            "TRACKIO_DIR": self.state,
        }
        with tempfile.TemporaryFile("w+") as job:
            json.dump(self._job, job)
            job.seek(0)
            self.process = subprocess.Popen(
                [python_of_trl(), HERE / "trl_side.py"],
                env=os.environ | quiet | {"PYTHONPATH": str(ROOT), "TRL_EXPERIMENTAL_SILENCE": "1"},
                stdin=job,
                stdout=subprocess.PIPE,
                text=True,
            )
        self._reader = threading.Thread(target=lambda: self._lines.extend(self.process.stdout or ()))
        self._reader.start()

    def result(self) -> dict[str, Any]:
        """The last line of its output, once it has ended."""
        self._reader.join()
        if self.process.wait():
            raise SystemExit("the trainer failed")
        found: dict[str, Any] = json.loads(self._lines[-1])
        return found

    def run(self) -> dict[str, Any]:
        """The only run of the service; empty before there is one."""
        items = self.service.get("/runs")["items"]
        return items[0] if items else {}


def outage(arguments: argparse.Namespace) -> list[str]:
    """A training whose service dies in the middle."""
    with tempfile.TemporaryDirectory(prefix="gp-") as directory:
        training = Training(directory, arguments, steps=arguments.steps, sizes=SMALL, block=0)
        training.start()
        while training.run().get("last_step", 0) < arguments.steps // 8:
            time.sleep(0.5)
        before = training.run()["last_step"]
        training.service.process.send_signal(signal.SIGKILL)
        training.service.process.wait()
        time.sleep(arguments.absence)
        has_ended = training.process.poll() is not None
        training.service = Service(training.state, command="serve", port=training.service.port)
        training.service.wait_until_it_answers()
        back = time.perf_counter()
        while (run := training.run())["last_step"] < before + 2:
            time.sleep(0.5)
        caught = time.perf_counter() - back
        result = training.result()
        run = training.run()
        lost, doubled, values = _compare(training, run["id"], result["history"])
        groups = sum(
            each["groups"] for each in training.service.get("/rollouts/steps", run=run["id"])["items"]
        )
        training.service.stop()
    if has_ended:
        raise SystemExit("the training ended while the service was away: take more --steps")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    setting = (
        f"GRPOTrainer on the tiny policy, {arguments.steps} steps of {SMALL[0]} x {SMALL[1]} completions; "
        f"service on SQLite killed (SIGKILL) at step {before} for {arguments.absence:.0f} s; "
        f"{arguments.threads} threads, {platform.machine()}, Python {platform.python_version()}, {versions}."
    )
    return [
        setting,
        "",
        "| what | figure |",
        "|---|---|",
        f"| status at the end | {run['status']}, step {run['last_step']} |",
        f"| values logged, lost, doubled or changed | {values:,}, {lost}, {doubled} |",
        f"| groups of completions sampled, stored | {arguments.steps * SMALL[0]:,}, {groups:,} |",
        f"| new steps stored after the service came back | {caught:.1f} s |",
    ]


def _compare(training: Training, run: str, history: list[dict[str, Any]]) -> tuple[int, int, int]:
    """(lost, doubled or changed, logged) values, of what the trainer logged and what the CSV holds."""
    logged: dict[tuple[int, str], float] = {}
    for row in history:
        for label, value in row.items():
            if isinstance(value, int | float) and not is_step_name(label):
                logged[row["step"], metric_name(label, set())[0]] = float(value)
    text = training.service.http.get(f"/api/v1/runs/{run}/metrics.csv").text.splitlines()
    head = text[0].split(",")
    stored: dict[tuple[int, str], list[float]] = defaultdict(list)
    for line in text[1:]:
        cells = dict(zip(head, line.split(","), strict=True))
        step = int(cells.pop("step"))
        for name, cell in cells.items():
            if cell:
                stored[step, name].append(float(cell))
    lost = sum(place not in stored for place in logged)
    wrong = sum(
        place not in logged or len(values) != 1 or not _same(values[0], logged[place])
        for place, values in stored.items()
    )
    return lost, wrong, len(logged)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def overhead(arguments: argparse.Namespace) -> list[str]:
    """One training in which the loggers take turns."""
    with tempfile.TemporaryDirectory(prefix="gp-") as directory:
        training = Training(directory, arguments, steps=5 * arguments.blocks, sizes=FULL, block=5)
        training.start()
        result = training.result()
        training.service.stop()
    counted = [each for each in result["steps"] if each["step"] > WARM_UP_STEPS]
    setting = (
        f"One run of {5 * arguments.blocks} steps of 16 x 8 completions; blocks of five steps push "
        "metrics and completions to nothing, GRPO Lab and Trackio by turns; medians; load average "
        f"{os.getloadavg()[0]:.1f} at the end."
    )
    head = (
        "| pushed to | its calls in the training thread, wall / processor time | a step, wall "
        "| a step, processor time of all threads |"
    )
    lines = [setting, "", head, "|---|---|---|---|"]
    for name in ("nothing", "GRPO Lab", "Trackio"):
        own = [each for each in counted if each["logger"] == name]
        calls, cpu, wall, all_cpu = (
            median(each[key] for each in own) for key in ("calls", "calls_cpu", "wall", "cpu")
        )
        lines.append(f"| {name} | {calls * 1e3:.2f} / {cpu * 1e3:.2f} ms | {wall:.3f} s | {all_cpu:.3f} s |")
    return lines


if __name__ == "__main__":
    main()
