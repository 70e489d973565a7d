"""Breakdown of the changes that a real run logs: every mean over completions is found in what it stored."""

import pytest

from backend.metrics.store import write_points
from backend.rollouts.breakdown.cells import By
from backend.rollouts.breakdown.change import Window, breakdown_of
from backend.rollouts.store import pack_groups, write_groups
from tests.factories import make_run

CHANGES = {
    "steps": 4,
    "sampling": {"max_new_tokens": 16, "prompts_per_step": 4, "group_size": 4},
    "evaluation": {"every": 2, "prompts": 8},
    "length": {"truncated": {"type": "keep"}, "penalty": {"type": "soft_overlong", "cache_fraction": 0.5}},
}
MEANS = (
    "reward/mean",
    "reward/accuracy",
    "reward/correctness/mean",
    "length/mean",
    "length/truncated_frac",
    "text/repetition",
)
EVALUATED = ("eval/accuracy", "eval/length_mean", "eval/truncated_frac")
WAYS: tuple[By, ...] = ("prompt", "group", "flag", "length")


@pytest.mark.parametrize("refill", ["none", "active"])
def test_the_rows_hold_all_of_every_change(steps_of, session, refill):
    filters = {
        "groups": {"type": "none" if refill == "none" else "zero_variance"},
        "refill": {"type": refill},
    }
    records = steps_of(CHANGES | {"filters": filters})
    run = make_run(session, config=CHANGES)
    write_points(session, run.id, 1, [(record.step, dict(record.metrics)) for record in records])
    for record in records:
        write_groups(session, pack_groups(run.id, record.step, 1, record.groups, with_tokens=False))
    for metric in (*MEANS, *EVALUATED):
        for by in (*WAYS, *(("term",) if metric == "reward/mean" else ())):
            breakdown = breakdown_of(session, run, metric, Window(1, 2), Window(3, 4), by)
            parts = [row["total"] for row in breakdown["rows"]]
            assert sum(parts) == pytest.approx(breakdown["change"], abs=1e-9)
            assert parts[-1] == pytest.approx(0, abs=1e-9), (metric, by)
