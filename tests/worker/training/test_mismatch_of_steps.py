"""The simulator of caps gives back what the trainer logged at the run's own cap."""

import numpy as np
import pytest

from backend.base.errors import NotFound
from backend.metrics.store import write_points
from backend.rollouts.mismatch import mismatch
from backend.rollouts.store import pack_groups, write_groups
from tests.factories import make_run
from tests.gate import first_in_gate

CHANGES = {
    "steps": 4,
    "sampling": {"prompts_per_step": 8, "group_size": 8, "staleness": 2},
    "filters": {"groups": {"type": "none"}, "refill": {"type": "none"}},
    "optimizer": {"lr": 0.003, "warmup_steps": 0},
}
CORRECTIONS = (
    {"type": "token_tis", "cap": 1.02},
    {"type": "token_mask", "low": 0.97, "high": 1.03},
    {"type": "seq_tis", "level": "product", "cap": 1.05},
    {"type": "seq_tis", "level": "geo", "cap": 1.001},
    {"type": "seq_mask", "level": "product", "low": 0.9, "high": 1.1},
    {"type": "seq_mask", "level": "geo", "low": 0.99, "high": 1.01},
)


def stored(session, steps_of, changes):
    records = steps_of(changes)
    run = make_run(session, config=changes)
    write_points(session, run.id, 1, [(record.step, dict(record.metrics)) for record in records])
    for record in records:
        write_groups(session, pack_groups(run.id, record.step, 1, record.groups))
    return run, records


@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.parametrize("correction", first_in_gate(1, CORRECTIONS), ids=str)
def test_the_own_cap_gives_the_logged_numbers(steps_of, session, correction, minibatches):
    changes = CHANGES | {"objective": {"correction": correction}, "updates": {"minibatches": minibatches}}
    run, records = stored(session, steps_of, changes)
    for record in records:
        answer = mismatch(session, run, record.step, None, "product")
        assert answer["own_cap"] == correction.get("cap", correction.get("high"))
        own_cap = next(cap for cap in answer["caps"] if cap["cap"] == answer["own_cap"])
        logged = record.metrics
        assert own_cap["limited"] == pytest.approx(logged["mismatch/masked_frac"], abs=1e-6)
        assert own_cap["ess"] == pytest.approx(logged["mismatch/ess"], abs=1e-4)
        assert answer["tokens"] == logged["tokens/generated"]
        assert max(answer["age"]) == logged["sampling/staleness"]
        largest = max(answer["caps"], key=lambda cap: cap["cap"])
        if correction["type"] == "token_tis":
            assert largest["mean"] == pytest.approx(logged["mismatch/rho_mean"], abs=1e-4)
            assert largest["lost"] == pytest.approx(0, abs=1e-9)
    assert any(record.metrics["mismatch/masked_frac"] > 0 for record in records)


def test_caps_are_monotonous_and_other_corrections_can_be_tried(steps_of, session):
    run, records = stored(session, steps_of, CHANGES | {"objective": {"correction": {"type": "token_tis"}}})
    for kind in ("token_tis", "token_mask", "seq_tis", "seq_mask"):
        answer = mismatch(session, run, records[-1].step, kind, "geo")
        assert (answer["own_cap"] is not None) == (kind == "token_tis")
        limited = [cap["limited"] for cap in answer["caps"]]
        assert limited == sorted(limited, reverse=True)
        assert all(0 <= cap["ess"] <= 1 + 1e-12 for cap in answer["caps"])
        lost = [cap["lost"] for cap in answer["caps"]]
        assert np.all(np.diff(lost) <= 1e-12)
    with pytest.raises(NotFound, match="no stored tokens"):
        mismatch(session, run, 99, None, "product")
