"""Measure a GPU in eight minutes, on a machine that may have only torch, transformers and peft.

    make gpu-folder GPU_FOLDER=DIR    with a network: collect wheels and the package with the model
    make gpu GPU_FOLDER=DIR           with a GPU
    make gpu ARGS=--rehearse          the same on a CPU with the tiny policy, whose times are not a GPU's

The parts run in this order, each in a separate process that is ended at its time limit and whose earlier
output counts:

    service     a run through the service, killed and resumed, compared with an undisturbed one
    step        a step compared with TRL's, and its parts with the limits of this machine
    learning    held-out accuracy of the recipe `smollm2_sums` before and after
    memory      measured peaks compared with their estimates
    tests       tests that need a GPU and did not run or failed before

The module imports only the standard library until the packages are available. It writes results.md in this
directory if it ran on a GPU, or the file of --out.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.md")
SECONDS_BY_PART = {"service": 110, "step": 150, "learning": 90, "memory": 50, "tests": 80}
"""Time limit of each part, in seconds."""

REHEARSAL_SECONDS = 600
ENDING_SECONDS = 10
TABLE_HEAD = ["| part | what | result |", "|---|---|---|"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a GPU in eight minutes.")
    parser.add_argument(
        "--folder", type=Path, default=ROOT.parent / "grpolab-gpu", help="wheels/ and models/"
    )
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with tiny sizes")
    parser.add_argument("--parts", nargs="+", choices=tuple(SECONDS_BY_PART), default=list(SECONDS_BY_PART))
    parser.add_argument("--trl", help="an interpreter that can import TRL; without it this one")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    variables = make_environment(folder, is_rehearsal=arguments.rehearse)
    if not arguments.rehearse:
        convert_model(folder, variables)
    started_at = time.monotonic()
    for line in TABLE_HEAD:
        print(line, flush=True)
    rows = [
        row for part_name in arguments.parts for row in print_rows(run_part(part_name, arguments, variables))
    ]
    print(f"\n{time.monotonic() - started_at:.0f} s", flush=True)
    results_path = arguments.out or (None if arguments.rehearse else RESULTS)
    if results_path is not None:
        rows = [re.sub(r"; rehearsal: .*(?= \|$)", "", row) for row in rows]
        results_path.write_text(
            "\n".join([caption(arguments, variables), "", *TABLE_HEAD, *rows]) + "\n", encoding="utf-8"
        )


def make_environment(folder: Path, *, is_rehearsal: bool) -> dict[str, str]:
    """Return the environment of the parts, after unpacking missing packages into the folder."""
    packages = folder / "packages"
    wheels = [wheel for wheel in sorted((folder / "wheels").glob("*.whl")) if not is_installed(wheel)]
    if wheels and not packages.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*pip, "--target", str(packages), *map(str, wheels)], check=True)
    paths = [str(ROOT), str(packages), os.environ.get("PYTHONPATH", "")]
    settings = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}
    if not is_rehearsal:
        settings["MODELS_DIR"] = str(folder / "models")
    return os.environ | settings | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def convert_model(folder: Path, variables: dict[str, str]) -> None:
    """Convert the packaged model to a policy, unless this has been done."""
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "models")}
    command = [sys.executable, "-m", "backend.service", "model"]
    subprocess.run(command, env=variables | pip, cwd=ROOT, check=True)


def is_installed(wheel: Path) -> bool:
    """Return True if this Python has the package of a wheel, in any version."""
    try:
        importlib.metadata.version(wheel.name.split("-")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def run_part(part_name: str, arguments: argparse.Namespace, variables: dict[str, str]) -> Iterator[str]:
    """Yield the rows of a part's table. The last row says if the part failed or ran out of time."""
    seconds = REHEARSAL_SECONDS if arguments.rehearse else SECONDS_BY_PART[part_name]
    job = {"part": part_name, "rehearse": arguments.rehearse, "trl": arguments.trl, "seconds": seconds}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.parts", json.dumps(job)],
        env=variables,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    timer = threading.Timer(seconds, end, [process])
    timer.start()
    assert process.stdout is not None  # noqa: S101 - told to the type checker
    try:
        for line in process.stdout:
            if line.startswith("{"):
                row = json.loads(line)
                if arguments.rehearse:
                    row["result"] = f"*not measured*; rehearsal: {row['result']}"
                yield format_row(part_name, row)
    finally:
        is_over = not timer.is_alive()
        timer.cancel()
        end(process)
    if process.returncode:
        reason = f"ended after {seconds} s" if is_over else f"failed with exit code {process.returncode}"
        yield format_row(part_name, {"what": "the rest", "result": f"not measured: {reason}"})


def end(process: "subprocess.Popen[str]") -> None:
    """Stop a part and its child processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(ENDING_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def format_row(part_name: str, row: dict[str, Any]) -> str:
    """Return one line of the table in Markdown."""
    cells = (re.sub(r"[|\s]+", " ", str(cell)) for cell in (part_name, row["what"], row["result"]))
    return f"| {' | '.join(cells)} |"


def print_rows(rows: Iterator[str]) -> Iterator[str]:
    """Yield the rows and print each."""
    for row in rows:
        print(row, flush=True)
        yield row


def caption(arguments: argparse.Namespace, variables: dict[str, str]) -> str:
    """Return the versions and the machine of the measurement."""
    script = (
        "import torch, transformers; "
        "print(torch.cuda.get_device_name() if torch.cuda.is_available() else 'a CPU', "
        "'with torch', torch.__version__ + ', transformers', transformers.__version__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True
    )
    with_what = f"{result.stdout.splitlines()[-1]}, Python {platform.python_version()}"
    if not arguments.rehearse:
        return f"`make gpu` on {with_what}."
    return (
        "Nothing of this is measured on a GPU yet. The rehearsal of `make gpu` with the tiny policy on "
        f"{with_what}, ran through all parts."
    )


if __name__ == "__main__":
    main()
