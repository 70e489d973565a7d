"""The parts of `benchmarks.gpu`, each in a separate process that prints table rows as lines of JSON."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from backend.catalog.policies.weight_files import read_weights
from backend.config.recipes import RECIPES
from benchmarks.common.peers import run
from benchmarks.common.service import ENDED_STATUSES, Service
from benchmarks.learning.__main__ import metric_rows
from benchmarks.step.workload import TINY_WORKLOAD, Workload
from worker.problems.sums import Sums

ROOT = Path(__file__).parents[2]
STEP_DIRECTORY = ROOT / "benchmarks" / "step"
MODEL_NAME = "SmolLM2-135M-Instruct"
MACHINE_PREFIXES = ("time/", "throughput/", "machine/", "memory/")
TEST_FILES = (
    "tests/worker/policy/test_packing.py",
    "tests/models/test_memory_estimates.py",
    "tests/worker/rollout/test_graph_decoder.py",
)
WAIT_SECONDS = 0.2


class Sizes(NamedTuple):
    """Sizes of the parts, on a GPU or in a rehearsal."""

    base: dict[str, Any]
    """Config of the runs through the service."""
    service_steps: int
    workload: Workload
    rounds: int
    copied_values: int
    """Number of values of the copy that measures bandwidth."""
    matrix: int
    """Number of rows of the matrices that measure arithmetic."""
    memory: dict[str, Any]
    learning_steps: int


class Job(NamedTuple):
    """A part's job, as the parent process sends it."""

    part: str
    rehearse: bool
    trl: str | None
    seconds: int


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    sizes = rehearsed() if job.rehearse else on_gpu()
    for quantity, result in FUNCTION_BY_PART[job.part](job, sizes):
        print(json.dumps({"what": quantity, "result": result}), flush=True)


def on_gpu() -> Sizes:
    """Return the sizes of the measurement."""
    recipe = RECIPES["smollm2_sums"].config.model_dump(mode="json", exclude={"seed"})
    models = Path(os.environ["MODELS_DIR"])
    if not torch.cuda.is_available():
        raise SystemExit("this Python's torch sees no CUDA device; `--rehearse` works without one")
    if not (models / MODEL_NAME).is_dir():
        raise SystemExit(f"{models / MODEL_NAME} is missing: `make gpu-folder` makes it")
    return Sizes(
        base=recipe,
        service_steps=12,
        workload=Workload(str(models / MODEL_NAME), 8, 8, 256, 1e-6, 2, 6, "cuda"),
        rounds=3,
        copied_values=2**28,
        matrix=8192,
        memory={"policy": {"dtype": "bfloat16"}, "sampling": {"max_new_tokens": 256}},
        learning_steps=1000,
    )


def rehearsed() -> Sizes:
    """Return the sizes of a rehearsal with the tiny policy on a CPU."""
    base = {"sampling": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 40}}
    return Sizes(
        base=base,
        service_steps=4,
        workload=TINY_WORKLOAD._replace(prompts_per_step=4, group_size=4, warm_up_steps=1, steps=3),
        rounds=1,
        copied_values=2**22,
        matrix=256,
        memory={},
        learning_steps=4,
    )


Rows = Iterator[tuple[str, str]]


@contextmanager
def start_service() -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="grpolab-gpu-") as state:
        service = Service(state, WORKER_SLOTS="1")
        try:
            service.wait()
            yield service
        finally:
            service.http.close()
            service.stop()


def launch(service: Service, *layers: dict[str, Any]) -> str:
    """Launch a run whose config is merged from layers, and return its id."""
    config: dict[str, Any] = {}
    for layer in layers:
        for section, fields in layer.items():
            is_part = isinstance(fields, dict) and isinstance(config.get(section), dict)
            config[section] = config[section] | fields if is_part else fields
    body = {"name": "gpu", "base": config, "variants": [{"name": "run"}], "seeds": [0]}
    answer = service.http.post("/api/v1/experiments", json=body)
    if not answer.is_success:
        raise SystemExit(f"not launched: {answer.text[:500]}")
    return str(answer.json()["runs"][0]["id"])


def wait_until(service: Service, run_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while not condition(current_run := service.get(f"/runs/{run_id}")):
        time.sleep(WAIT_SECONDS)
    return dict(current_run)


def wait_until_ended(service: Service, run_id: str) -> dict[str, Any]:
    return wait_until(service, run_id, lambda run_record: run_record["status"] in ENDED_STATUSES)


def service_part(_job: Job, sizes: Sizes) -> Rows:
    steps = sizes.service_steps
    changes = {
        "steps": steps,
        "checkpointing": {"every": max(1, steps // 3)},
        "evaluation": {"every": steps // 2, "prompts": 16},
    }
    with start_service() as service:
        [slot] = service.get("/workers")["items"]
        started_at = time.monotonic()
        undisturbed_id = launch(service, sizes.base, changes)
        run_record = wait_until_ended(service, undisturbed_id)
        yield (
            f"a run of {steps} steps on {slot['device']}",
            (
                f"{run_record['status']} after {time.monotonic() - started_at:.0f} s "
                f"{run_record['reason'] or ''}"
            ),
        )
        killed_id = launch(service, sizes.base, changes)
        halfway_record = wait_until(
            service, killed_id, lambda run_record: (run_record["last_step"] or 0) >= steps // 2
        )
        os.kill(halfway_record["attempts"][-1]["pid"], signal.SIGKILL)
        repeated_record = wait_until_ended(service, killed_id)
        yield (
            "the same, killed with -9 half way",
            f"{repeated_record['status']}, {len(repeated_record['attempts'])} attempts",
        )
        yield "its metrics beside the undisturbed run's", compare_runs(service, undisturbed_id, killed_id)


def compare_runs(service: Service, first_run: str, second_run: str) -> str:
    """Return the differences between the metrics of two runs, except those of the machine."""
    largest_difference, position = 0.0, ""
    pairs = zip(metric_rows(service, first_run), metric_rows(service, second_run), strict=True)
    for first_row, second_row in pairs:
        for name, text in first_row.items():
            if name.startswith(MACHINE_PREFIXES) or text == second_row[name]:
                continue
            values = [float(cell) if cell else float("nan") for cell in (text, second_row[name])]
            difference = abs(values[0] - values[1]) / max(map(abs, values))
            if not difference <= largest_difference:
                largest_difference, position = difference, f"{name} of step {first_row['step']}"
    return (
        f"largest relative difference {largest_difference:.2g}, {position}"
        if position
        else "equal bit for bit"
    )


def learning_part(job: Job, sizes: Sizes) -> Rows:
    stop = {"type": "wall_time", "seconds": 0.6 * job.seconds}
    changes = {
        "steps": sizes.learning_steps,
        "stop_rules": [stop],
        "evaluation": {"every": max(2, sizes.learning_steps // 50), "prompts": 128},
        "checkpointing": {"every": 0},
    }
    with start_service() as service:
        run_id = launch(service, sizes.base, changes)
        accuracies: dict[int, str] = {}
        while True:
            status = service.get(f"/runs/{run_id}")["status"]
            rows = metric_rows(service, run_id) if status not in {"queued", "starting"} else []
            for row in rows:
                if row.get("eval/accuracy") and int(row["step"]) not in accuracies:
                    accuracies[int(row["step"])] = row["eval/accuracy"]
                    seconds = float(row["time/wall_seconds"] or 0)
                    result = f"{float(row['eval/accuracy']):.1%} after {seconds:.0f} s"
                    yield f"held-out accuracy after {row['step']} steps", result
            if status in ENDED_STATUSES:
                return
            time.sleep(1)


def memory_part(_job: Job, sizes: Sizes) -> Rows:
    adapters = {"all weights": {"type": "none"}, "LoRA": {"type": "lora"}}
    with start_service() as service:
        for name, adapter in adapters.items():
            layers = (
                *(sizes.base, sizes.memory, {"steps": 2, "checkpointing": {"every": 0}}),
                {"evaluation": {"every": 0}, "policy": sizes.memory.get("policy", {}) | {"adapter": adapter}},
            )
            run_id = launch(service, *layers)
            ended_run = wait_until_ended(service, run_id)
            config = {"base": ended_run["config"]}
            estimate = service.http.post("/api/v1/validate", json=config).raise_for_status().json()["memory"]
            peaks = [row.get("memory/peak_bytes") for row in metric_rows(service, run_id)]
            peak = max((float(peak_text) for peak_text in peaks if peak_text), default=float("nan"))
            expected = estimate["peak_bytes"] or float("nan")
            yield (
                f"peak with {name}, of the estimate",
                f"{peak / 1e9:.2f} of {expected / 1e9:.2f} GB, {peak / expected:.2f}",
            )


def step_part(job: Job, sizes: Sizes) -> Rows:
    workload = sizes.workload
    bandwidth, rate = (
        measure_bandwidth(workload.device, sizes.copied_values),
        measure_rate(workload.device, sizes.matrix),
    )
    yield "bandwidth of a copy, here", f"{bandwidth / 1e9:,.0f} GB/s"
    yield f"products of {sizes.matrix} x {sizes.matrix} matrices, here", f"{rate / 1e9:,.0f} GFLOP/s"
    problem = Sums(seed=0)
    samples = [problem.sample(index, "train") for index in range(workload.prompts_per_step * workload.steps)]
    prompts = [{"prompt": prompt.text, "answer": prompt.answer} for prompt in samples]
    threads = len(os.sched_getaffinity(0))
    task = {"workload": workload._asdict(), "threads": threads, "seed": 0, "prompts": prompts}
    our_figures, trl_figures, has_trl = [], [], True
    for number in range(sizes.rounds):
        try:
            trl_figures += (
                [run(job.trl or sys.executable, STEP_DIRECTORY / "trl_side.py", task)] if has_trl else []
            )
        except subprocess.CalledProcessError:
            has_trl = False
            yield "TRL's step", "not measured: it failed, or TRL is not installed here"
        our_figures.append(run(sys.executable, STEP_DIRECTORY / "our_side.py", task))
        trl_text = f", TRL {trl_figures[-1]['median_seconds']:.3f} s" if trl_figures else ""
        yield f"step, round {number + 1}", f"{our_figures[-1]['median_seconds']:.3f} s{trl_text}"
    seconds = {
        name: median(figures[name] for figures in our_figures)
        for name in our_figures[0]
        if name != "versions"
    }
    if trl_figures:
        share = seconds["median_seconds"] / median(figures["median_seconds"] for figures in trl_figures)
        yield "step, of TRL's", f"{share:.2f} (goal: at most 0.5)"
    yield from compare_step_parts(workload, seconds, bandwidth, rate)


def compare_step_parts(workload: Workload, seconds: dict[str, float], bandwidth: float, rate: float) -> Rows:
    """Compare sampling with reading all weights per token, and learning with six operations per weight."""
    values = sum(weight.values for weight in read_weights(workload.path))
    width = 2 if workload.device == "cuda" else 4
    reading_seconds = workload.max_new_tokens * values * width / bandwidth
    sampling_seconds = seconds["time/sample_seconds"]
    yield (
        "sampling: reading the weights once a token, of its time",
        (
            f"{reading_seconds:.3f} of {sampling_seconds:.3f} s, "
            f"{reading_seconds / sampling_seconds:.0%} (goal: 40 %)"
        ),
    )
    yield "scoring", f"{seconds.get('time/score_seconds', 0.0):.3f} s"
    tokens = workload.prompts_per_step * workload.group_size * seconds["length/mean"]
    arithmetic_seconds = 6 * values * tokens / rate
    learning_seconds = seconds["time/update_seconds"]
    yield (
        "learning: its products at the rate above, of its time",
        (
            f"{arithmetic_seconds:.3f} of {learning_seconds:.3f} s, "
            f"{arithmetic_seconds / learning_seconds:.0%} (goal: 40 %)"
        ),
    )


def measure_fastest(call: Callable[[], object], device: str, repeats: int = 10) -> float:
    """Return the seconds of the fastest of several calls."""
    fastest = float("inf")
    for _ in range(repeats):
        started_at = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        fastest = min(fastest, time.perf_counter() - started_at)
    return fastest


def measure_bandwidth(device: str, values: int) -> float:
    """Return the bytes per second that a copy reads and writes."""
    source = torch.ones(values, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / measure_fastest(lambda: target.copy_(source), device)


def measure_rate(device: str, rows: int) -> float:
    """Return the floating-point operations per second of matrix products, bfloat16 on a GPU."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    matrix = torch.ones(rows, rows, device=device, dtype=dtype)
    return 2 * float(rows) ** 3 / measure_fastest(lambda: matrix @ matrix, device)


def tests_part(job: Job, _sizes: Sizes) -> Rows:
    """Run each test file separately. A rehearsal only collects the tests."""
    for file in TEST_FILES:
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-n", "0", file]
        result = subprocess.run(
            [*command, "--collect-only"] if job.rehearse else command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        failed_tests = re.findall(r"^FAILED (\S+)", result.stdout, re.MULTILINE)
        last = (result.stdout.strip().splitlines() or [result.stderr[-200:]])[-1].strip("= ")
        yield file, f"{last} {' '.join(failed_tests[:5])}"


FUNCTION_BY_PART: dict[str, Callable[[Job, Sizes], Rows]] = {
    "service": service_part,
    "step": step_part,
    "learning": learning_part,
    "memory": memory_part,
    "tests": tests_part,
}

if __name__ == "__main__":
    main()
