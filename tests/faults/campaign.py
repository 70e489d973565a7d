"""Rounds of chaos: runs of a real tiny GRPO training are disturbed until they end, and then judged."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from backend.storage.engine import open_read_session
from tests.faults.audit import audit
from tests.faults.chaos import Chaos
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.verdict import Record, Verdict, judge, read_record

SAMPLING = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 26, "temperature": 1.3}
BASE_CONFIG: dict[str, Any] = {
    "steps": 18,
    "problems": [{"name": "sums", "operands": 2, "low": 1, "high": 60}],
    "rewards": [
        {"name": "correctness"},
        {"name": "boxed_format", "weight": 0.2},
        {"name": "length", "weight": 0.1},
    ],
    "sampling": SAMPLING,
    "optimizer": {"lr": 1e-3},
    "evaluation": {"every": 6, "prompts": 4},
    "checkpointing": {"every": 3, "keep": 3},
}
"""A small but real training: rewards differ within groups, and every step moves the weights."""

VARIANT_CONFIGS: tuple[dict[str, Any], ...] = (
    {"preset": "grpo"},
    {"preset": "grpo", "sampling": SAMPLING | {"staleness": 2}},
    {
        "preset": "dapo",
        "filters": {"groups": {"type": "zero_variance"}, "refill": {"type": "active", "max_batches": 3}},
    },
    {"preset": "ppo", "updates": {"epochs": 1, "minibatches": 2}},
)
"""Variants with a reference policy, a sampler two steps old, groups kept for the next step, and a critic."""

_references: dict[str, Record] = {}


def configs(number: int, *, steps: int = 18) -> list[dict[str, Any]]:
    """Return the configs of this number of runs, cycling through the variants deterministically."""
    return [
        BASE_CONFIG
        | VARIANT_CONFIGS[n % len(VARIANT_CONFIGS)]
        | {"seed": n % len(VARIANT_CONFIGS), "steps": steps}
        for n in range(number)
    ]


def references(installation: FaultyInstallation, run_configs: Sequence[dict[str, Any]]) -> list[Record]:
    """Return the record of each run without interruption, trained once in this process."""
    missing_configs = {
        json.dumps(config): config for config in run_configs if json.dumps(config) not in _references
    }
    run_ids = installation.queue(list(missing_configs.values()))
    installation.wait_until_ended(run_ids)
    with open_read_session(installation.sessions) as session:
        for key, run_id in zip(missing_configs, run_ids, strict=True):
            _references[key] = read_record(session, run_id)
            gradient_norms = [
                metric_value
                for (name, *_), metric_value in _references[key].items()
                if name == "optim/grad_norm"
            ]
            assert sum(1 for _, norm in gradient_norms if norm) > len(gradient_norms) / 2, (
                "a training that moves nothing"
            )
    return [_references[json.dumps(config)] for config in run_configs]


@dataclass(frozen=True)
class Round:
    """The outcome of one set of runs."""

    kind: Kind
    seed: int
    faults: Counter[str]
    verdict: Verdict
    seconds: float
    measured: dict[str, Any] = field(default_factory=dict)
    """Other figures for the ledger."""

    @property
    def is_clean(self) -> bool:
        """True if nothing was lost, duplicated or changed."""
        return self.verdict.is_clean and not self.faults["stale_rows"]

    def line(self) -> dict[str, Any]:
        """Return the round as a line of the ledger."""
        return {
            **self.kind._asdict(),
            "seed": self.seed,
            "faults": dict(sorted(self.faults.items())),
            **{key: figure for key, figure in asdict(self.verdict).items() if key != "sentences"},
            "violations": len(self.verdict.sentences),
            "seconds": round(self.seconds, 1),
            **self.measured,
        }


def play(
    installation: FaultyInstallation, faults: Sequence[str], *, seed: int, runs: int, steps: int = 18
) -> Round:
    """Queue runs, and more if they end too soon, until all faults have struck, and then judge them."""
    run_configs = configs(runs, steps=steps)
    expected = references(installation, run_configs)
    start_time = time.monotonic()
    chaos, remaining_faults = Chaos(installation, seed), list(faults)
    expected_records: dict[str, Record] = {}
    while remaining_faults or not expected_records:
        run_ids = installation.queue(run_configs)
        expected_records |= dict(zip(run_ids, expected, strict=True))
        chaos.storm(run_ids, remaining_faults)
    seconds = time.monotonic() - start_time
    return Round(
        installation.kind, seed, chaos.counts, reach_verdict(installation, chaos, expected_records), seconds
    )


def reach_verdict(installation: FaultyInstallation, chaos: Chaos, expected: dict[str, Record]) -> Verdict:
    """Return the audit and the comparison, once everything has ended."""
    findings = audit(installation.sessions, installation.settings.state, damaged=installation.damaged)
    with open_read_session(installation.sessions) as session:
        return judge(session, chaos.witness, expected, findings)
