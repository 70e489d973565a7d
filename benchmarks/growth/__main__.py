"""Growth of a step's work: processor time at four sizes of each dimension, and the exponent between them.

    python -m benchmarks.growth            some minutes on one core
    python -m benchmarks.growth --quick    few repetitions, whose results are not kept

Each dimension is measured in a process of its own, with one thread. Writes results.md beside this file; `make
docs` brings it into docs/.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.growth.dimensions import DIMENSIONS

HERE = Path(__file__).parent
GOAL = 1.05
"""Largest exponent where the work is linear."""


class Growth(NamedTuple):
    """Processor time of one dimension."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """Of size in seconds: the slope of the least squares line through the logarithms."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    @property
    def last(self) -> float:
        """Exponent between the two largest sizes, where what does not grow counts least."""
        return float(np.log(self.seconds[-1] / self.seconds[-2]) / np.log(self.sizes[-1] / self.sizes[-2]))


def main() -> None:
    parser = argparse.ArgumentParser(description="exponents of a step's work in its sizes")
    parser.add_argument("--quick", action="store_true", help="few repetitions, whose results are not kept")
    parser.add_argument("--dimension", choices=DIMENSIONS, help="measure one, and print its seconds as JSON")
    arguments = parser.parse_args()
    repeats = 2 if arguments.quick else 7
    if arguments.dimension:
        chosen = DIMENSIONS[arguments.dimension]
        print(json.dumps([chosen.measure(size, repeats) for size in chosen.sizes]))
        return
    text = table({name: in_a_process(name, quick=arguments.quick) for name in DIMENSIONS}, repeats)
    print(text)
    if not arguments.quick:
        (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def in_a_process(name: str, *, quick: bool) -> Growth:
    """The figures of a dimension."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.growth", "--dimension", name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *(["--quick"] if quick else [])],
        stdout=subprocess.PIPE, text=True, check=True, env=environment,
    )  # fmt: skip
    found = Growth(DIMENSIONS[name].sizes, tuple(json.loads(done.stdout.splitlines()[-1])))
    print(f"{name}: {found.exponent:.2f}", flush=True)
    return found


def table(found: dict[str, Growth], repeats: int) -> str:
    """The figures in Markdown."""
    setting = (
        f"Processor time, one thread, median of {repeats}; {platform.machine()}, Python "
        f"{platform.python_version()}. The goal is an exponent of at most {GOAL} where the work is linear."
    )
    lines = [
        setting,
        "",
        "| grows | sizes | milliseconds | exponent | of the last doubling |",
        "|---|---|---|---|---|",
    ]
    for name, growth in found.items():
        sizes = ", ".join(f"{size:,}" for size in growth.sizes)
        times = ", ".join(f"{1000 * each:.3g}" for each in growth.seconds)
        title = DIMENSIONS[name].title
        lines.append(f"| {title} | {sizes} | {times} | {growth.exponent:.2f} | {growth.last:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
