"""Learning evidence: each claim as experiments of the service itself, one committed JSON file per run.

    python -m benchmarks.evidence               everything that is not there yet, hours on 2 cores
    python -m benchmarks.evidence --claims a e  some claims; --seeds 2 the first seeds of each
    python -m benchmarks.evidence --table       only results.md, from what is there
    python -m benchmarks.evidence --pictures    the same, and Compare as Chromium draws the kept runs

Ctrl-C loses only what is training. Writes results.md beside this file; `make docs` brings it into docs/.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.common.service import ENDED, Service, machine
from benchmarks.common.sums import sums_rows, write_rows
from benchmarks.evidence.claims import CLAIMS
from benchmarks.evidence.picture import take_pictures
from benchmarks.evidence.results import report
from benchmarks.evidence.store import Wanted, is_outcome, keep, wanted

RESULTS = Path(__file__).parent / "results.md"
DATA_ROWS = {"train": 2000, "eval": 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train what is missing of the claims and tabulate them.")
    parser.add_argument("--claims", nargs="+", choices=sorted(CLAIMS), default=list(CLAIMS))
    parser.add_argument("--seeds", type=int, default=None, help="only the first seeds of each claim")
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument(
        "--pictures", action="store_true", help="train nothing; draw the kept runs in Chromium"
    )
    arguments = parser.parse_args()
    missing = [one for key in arguments.claims for one in wanted(key, arguments.seeds) if one.is_missing()]
    if arguments.pictures:
        take_pictures(arguments.claims)
    elif missing and not arguments.table:
        train(missing)
    text = f"{caption()}\n\n{report()}\n"
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


def train(missing: list[Wanted]) -> None:
    """Launch and keep, claim by claim; SIGTERM ends the service in order, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="grpolab-evidence-") as state:
        data = Path(state) / "data"
        data.mkdir()
        write_rows(data / "sums.jsonl", sums_rows(DATA_ROWS))
        service = Service(state, DATASETS_DIR=str(data))
        try:
            service.wait()
            for key, runs in groupby(missing, key=lambda one: one.claim):
                work_on(service, key, list(runs))
        finally:
            service.stop()


def work_on(service: Service, key: str, runs: list[Wanted]) -> None:
    """All missing runs of one claim; a variant that the service does not know is left out with a line."""
    refused = {
        variant: reason
        for variant in {one.variant for one in runs}
        if (reason := refusal(service, key, variant))
    }
    for variant, reason in refused.items():
        print(f"({key}) {variant}: left out, the service refuses it: {reason}", flush=True)
    runs = [one for one in runs if one.variant not in refused]
    launched: dict[str, Wanted] = {}
    for seed, group in groupby(runs, key=lambda one: one.seed):
        asked = {one.variant: one for one in group}
        body = {
            "name": f"({key}) {CLAIMS[key].title}",
            "base": CLAIMS[key].base,
            "variants": [{"name": name, **CLAIMS[key].variants[name]} for name in asked],
            "seeds": [seed],
        }
        answer = service.http.post("/api/v1/experiments", json=_plain(body)).raise_for_status().json()
        launched |= {run["id"]: asked[run["variant"]] for run in answer["runs"]}
    collect(service, launched)


def refusal(service: Service, key: str, variant: str) -> str:
    """Why the service would not start a variant; empty when it would."""
    claim = CLAIMS[key]
    body = {"base": claim.base, "variant": claim.variants[variant], "seed": 0}
    answer = service.http.post("/api/v1/validate", json=_plain(body))
    if answer.status_code != 422:
        answer.raise_for_status()
        return ""
    errors = answer.json()["errors"]
    return "; ".join(f"{error['path']} {error['message']}" for error in errors)


def collect(service: Service, launched: dict[str, Wanted]) -> None:
    """Write each run down as soon as it has ended."""
    waiting = dict(launched)
    while waiting:
        for run_id, asked in list(waiting.items()):
            run = service.http.get(f"/api/v1/runs/{run_id}").json()
            if run["status"] not in ENDED:
                continue
            if kept := is_outcome(run):
                keep(service, run, asked)
            del waiting[run_id]
            done = f"({asked.claim}) {len(launched) - len(waiting)} of {len(launched)}"
            lost = "" if kept else f", not kept: {run['reason']}"
            print(f"{done}: {asked.variant}, seed {asked.seed}{lost}", flush=True)
        time.sleep(1)


def caption() -> str:
    """What was measured with what."""
    facts = machine()
    return (
        f"Tiny policy, {os.cpu_count()} cores, one run per core; torch {facts['torch']}, transformers "
        f"{facts['transformers']}, Python {facts['python']}. Mean ± half the 95 % interval over n seeds "
        "(Student's t), at the end of the run: mean of the last 10 steps, accuracy from the last greedy "
        "evaluation, on 128 held-out prompts in the first round and 1,024 in the second. Differences have "
        "Welch's interval in the first round; in the second they are paired by seed and corrected by Holm's "
        "procedure over the claim. `make evidence` trains what is missing, `make evidence "
        "CLAIM=a` one claim; "
        "each run's numbers are in `benchmarks/evidence/runs.jsonl.zst`."
    )


def _plain(body: Any) -> Any:
    return json.loads(json.dumps(body))


if __name__ == "__main__":
    main()
