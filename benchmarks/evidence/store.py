"""One JSON file per finished run; a run whose file is there is never trained again."""

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from backend.config.merge import resolve
from backend.config.presets import PRESETS
from benchmarks.evidence.claims import CLAIMS, Claim
from benchmarks.service import Service, machine

RUNS = Path(__file__).parent / "runs"
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
    def file(self) -> Path:
        """Where its result is kept."""
        name = re.sub(r"[^a-z0-9]+", "-", self.variant.lower()).strip("-")
        return RUNS / f"{self.claim}-{name}-{self.seed}.json"

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
        if not self.file.exists():
            return None
        result: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
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
    for seed in range(claim.seeds if seeds is None else seeds):
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
    lines = json.dumps(result, indent=1, allow_nan=False)
    one_line_lists = re.sub(r"\[[^\[\]{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]), lines)
    asked.file.write_text(one_line_lists + "\n", encoding="utf-8")


def _rounded(text: str) -> float | str | None:
    """Four significant digits; NaN and infinities as words, so that the file is JSON."""
    if not text:
        return None
    value = float(text)
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else text
