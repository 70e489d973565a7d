"""The record of finished evidence runs: `runs.jsonl.zst`. A run that has a line there is not trained again.

`zstdcat benchmarks/evidence/runs.jsonl.zst` prints it.
"""

import csv
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from backend.base.durable_files import publish
from backend.config.merge import resolve
from backend.config.presets import PRESETS
from benchmarks.common.service import Service, machine
from benchmarks.evidence.claim import Claim
from benchmarks.evidence.claims import CLAIMS

RUNS = Path(__file__).parent / "runs.jsonl.zst"
LEVEL = 19
"""Of zstd: the file is written seldom and is part of every checkout."""
KEPT = re.compile(
    r"reward/(mean|accuracy|think_format/mean)|eval/accuracy.*|policy/entropy|length/(mean.*|truncated_frac)|"
    r"clip/.*_frac|ratio/max|kl/k[13]|mismatch/(k3|rho_max|ess)|groups/(kept|zero_variance)_frac|"
    r"sampling/generated_batches|optim/grad_norm|tokens/total|time/wall_seconds"
)
"""Metrics that are kept of a run."""
DIGITS = 4
NEW_FIELDS = {"k3_limit", "decayed"}
"""Fields whose defaults are not what every run had before there were these fields."""

Series = dict[str, list[float | None]]


class Wanted(NamedTuple):
    """One run that a claim asks for."""

    claim: str
    variant: str
    seed: int

    @property
    def asked(self) -> dict[str, Any]:
        """The fields that it is launched with and those of its preset; another setting is another run.

        So is another default of a field that acts in it: a bound of k3, which there was before, or none.
        """
        base, variant = CLAIMS[self.claim].base, CLAIMS[self.claim].variants[self.variant]
        name = variant.get("preset") or base.get("preset")
        asked: dict[str, Any] = {
            "base": base,
            "variant": variant,
            "preset": PRESETS[name].changes if name else {},
        }
        kl = resolve(base, variant, self.seed).objective.kl
        if kl.type in {"k3", "r_k3"}:
            asked["k3_limit"] = kl.k3_limit
        return json.loads(json.dumps(asked))

    def found(self) -> dict[str, Any] | None:
        """Its result, if it was trained with this setting, or with it and the defaults of before.

        `is_earlier` says which.
        """
        result = recorded().get(self)
        if result is None:
            return None
        is_earlier = result["asked"] != self.asked
        if is_earlier and result["asked"] != _before_new_fields(self.asked):
            return None
        return result | {"is_earlier": is_earlier}

    def is_missing(self) -> bool:
        """Whether it is still to be trained with the defaults of now."""
        result = self.found()
        return result is None or result["is_earlier"]


def _before_new_fields(asked: dict[str, Any]) -> dict[str, Any]:
    """The setting as it was written down before k3_limit, decayed and of were fields."""
    return json.loads(json.dumps(asked), object_hook=_without_new_fields)


def _without_new_fields(fields: dict[str, Any]) -> dict[str, Any]:
    is_scale = fields.get("type") == "batch_std"
    return {
        name: value
        for name, value in fields.items()
        if name not in NEW_FIELDS and not (is_scale and name == "of")
    }


def wanted(key: str, seeds: int | None = None) -> Iterator[Wanted]:
    """All runs of a claim, seed by seed."""
    claim: Claim = CLAIMS[key]
    count = claim.seeds if seeds is None else seeds
    for seed in range(claim.first_seed, claim.first_seed + count):
        for variant in claim.variants:
            yield Wanted(key, variant, seed)


def is_outcome(run: dict[str, Any]) -> bool:
    """Whether training itself ended the run, by a stop rule if it did; other failures say nothing."""
    return run["status"] != "failed" or "no finite loss" in run["reason"]


def keep(service: Service, run: dict[str, Any], asked: Wanted) -> None:
    """Write down a run that has ended, from the metrics as anybody may download them."""
    text = service.http.get(f"/api/v1/runs/{run['id']}/metrics.csv").text
    rows = list(csv.DictReader(text.splitlines()))
    names = [name for name in rows[0] if KEPT.fullmatch(name)] if rows else []
    result = {
        "claim": asked.claim,
        "variant": asked.variant,
        "seed": asked.seed,
        "asked": asked.asked,
        "status": run["status"],
        "reason": run["reason"],
        "machine": machine(),
        "steps": [int(row["step"]) for row in rows],
        "series": {name: [_rounded(row[name]) for row in rows] for name in sorted(names)},
    }
    recorded()[asked] = json.loads(json.dumps(result, allow_nan=False))
    write(recorded())


@cache
def recorded() -> dict[Wanted, dict[str, Any]]:
    """The result of each run that was trained; whoever changes it writes it."""
    if not RUNS.exists():
        return {}
    lines = zstandard.decompress(RUNS.read_bytes()).decode().splitlines()
    results = [json.loads(line) for line in lines]
    return {Wanted(one["claim"], one["variant"], one["seed"]): one for one in results}


def write(results: dict[Wanted, dict[str, Any]]) -> None:
    """Replace the record, in one piece."""
    lines = "".join(json.dumps(results[key], allow_nan=False) + "\n" for key in sorted(results))
    draft = RUNS.with_suffix(".draft")
    draft.write_bytes(zstandard.compress(lines.encode(), LEVEL))
    publish(draft, RUNS)


def _rounded(text: str) -> float | str | None:
    """Four significant digits; NaN and infinities as words, so that the file is JSON."""
    if not text:
        return None
    value = float(text)
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else text
