"""Tests of signal budgets over steps and of whole runs, logged or from tallies, on both databases."""

import pytest

from backend.config.signal_budget import PARTS, UNITS, budget_metric
from backend.metrics.store import write_points
from backend.rollouts.store import pack_groups, write_groups
from tests.factories import MadeCompletion, MadeGroup, make_run

RIGHT_COMPLETION = MadeCompletion(text="yes", reward=1.0, correct=True)
WRONG_COMPLETION = MadeCompletion(text="no", reward=0.0, correct=False, flags=("wrong",))
TRUNCATED_COMPLETION = MadeCompletion(text="and so", reward=0.0, correct=False, finish_reason="length")
UNSCORED_COMPLETION = MadeCompletion(text="no", reward=None, correct=None)


def add_points(database, run, values, attempt=1):
    with database.sessions.begin() as session:
        write_points(session, run.id, attempt, sorted(values.items()))


def budget(client, *runs, **params):
    response = client.get(
        "/api/v1/signal-budget", params={"runs": ",".join(run.id for run in runs), **params}
    )
    assert response.status_code == 200, response.text
    return response.json()["items"]


def budget_metrics(step):
    """Return a budget of 1..7 completions by part, with ten tokens and a tenth of a second each."""
    return {
        budget_metric(use, unit): factor * (index + 1) * step
        for unit, factor in zip(UNITS, (1, 10, 0.1), strict=True)
        for index, use in enumerate(PARTS)
    }


def test_a_logged_budget_is_summed_over_ranges_of_steps(client, database, run):
    add_points(database, run, {step: budget_metrics(step) for step in (1, 2, 3, 4)})
    [run_budget] = budget(client, run, bins=2)
    assert (run_budget["source"], run_budget["steps"], run_budget["parts"]) == ("trainer", 4, list(PARTS))
    assert run_budget["totals"]["completions"] == [10, 20, 30, 40, 50, 60, 70]
    assert run_budget["totals"]["tokens"] == [100, 200, 300, 400, 500, 600, 700]
    assert run_budget["totals"]["seconds"] == pytest.approx([1, 2, 3, 4, 5, 6, 7], abs=1e-12)
    assert [(step_range["first"], step_range["last"]) for step_range in run_budget["bins"]] == [
        (1, 2),
        (3, 4),
    ]
    assert run_budget["bins"][0]["completions"] == [3, 6, 9, 12, 15, 18, 21]
    assert budget(client, run)[0]["bins"] == []


def test_a_run_without_a_logged_budget_is_counted_by_its_marks_and_says_so(client, database, run):
    groups = [
        MadeGroup(
            completions=(RIGHT_COMPLETION, WRONG_COMPLETION, TRUNCATED_COMPLETION, UNSCORED_COMPLETION)
        ),
        MadeGroup(completions=(RIGHT_COMPLETION, RIGHT_COMPLETION), prompt_index=1),
        MadeGroup(completions=(WRONG_COMPLETION, WRONG_COMPLETION), prompt_index=2, left_out="equal"),
        MadeGroup(completions=(RIGHT_COMPLETION, WRONG_COMPLETION), prompt_index=3, left_out="accuracy"),
        MadeGroup(
            completions=(WRONG_COMPLETION,), prompt_index=4
        ),  # a single completion, which equals no other
        MadeGroup(completions=(WRONG_COMPLETION, WRONG_COMPLETION), prompt_index=0, kind="eval"),
    ]
    with database.sessions.begin() as session:
        write_groups(session, pack_groups(run.id, 3, 1, groups[:2], counted_groups=groups[2:]))
    [run_budget] = budget(client, run, bins=10)
    assert run_budget["source"] == "rollouts"
    assert dict(zip(run_budget["parts"], run_budget["totals"]["completions"], strict=True)) == {
        "truncated": 1, "equal_right": 2, "equal_wrong": 2, "left_out": 2, "untold": 4,
    }  # fmt: skip
    assert run_budget["totals"]["tokens"] == [6, 6, 4, 5, 9]
    assert "seconds" not in run_budget["totals"]
    assert run_budget["bins"] == [
        {"first": 3, "last": 3, "completions": [1, 2, 2, 2, 4], "tokens": [6, 6, 4, 5, 9]}
    ]


def test_runs_are_answered_in_their_order_and_bad_requests_are_refused(client, database, run):
    with database.sessions.begin() as session:
        other_run = make_run(session)
    assert [run_budget["run"] for run_budget in budget(client, other_run, run)] == [other_run.id, run.id]
    for params, status in (
        ({"runs": ","}, 422),
        ({"runs": run.id, "bins": 201}, 422),
        ({"runs": run.id, "bins": -1}, 422),
        ({"runs": "nobody"}, 404),
        ({"runs": ",".join(f"r{n}" for n in range(101))}, 422),
    ):
        assert client.get("/api/v1/signal-budget", params=params).status_code == status, params
