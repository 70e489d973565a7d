"""Tests of the breakdown of a metric's change, whose rows must add up, by hand and on real steps."""

import random
from statistics import fmean

import numpy as np
import pytest

from backend.metrics.store import write_points
from backend.rollouts.store import pack_groups, write_groups
from tests.factories import MadeCompletion, MadeGroup, make_run

RIGHT_COMPLETION = MadeCompletion(text="yes", reward=1.0, correct=True)
WRONG_COMPLETION = MadeCompletion(text="no", reward=0.0, correct=False, flags=("wrong",))


def add_points(database, run, points):
    with database.sessions.begin() as session:
        write_points(session, run.id, 1, [(step, values) for step, values in sorted(points.items())])


def store_groups(database, run, step, *groups, counted=()):
    with database.sessions.begin() as session:
        write_groups(session, pack_groups(run.id, step, 1, groups, counted_groups=counted))


def group(prompt, *completions, index=0, **fields):
    return MadeGroup(prompt=prompt, prompt_index=index, completions=completions, **fields)


def fetch_breakdown(client, run, metric="reward/mean", before="1", after="2", by="prompt"):
    params = {"metric": metric, "before": before, "after": after, "by": by}
    response = client.get(f"/api/v1/runs/{run.id}/breakdown", params=params)
    assert response.status_code == 200, response.text
    breakdown = response.json()
    assert sum(row["total"] for row in breakdown["rows"]) == pytest.approx(breakdown["change"], abs=1e-9)
    assert all(row["total"] == row["value"] + row["share"] for row in breakdown["rows"])
    return breakdown


def totals(breakdown):
    return {row["label"]: pytest.approx(row["total"], abs=1e-12) for row in breakdown["rows"]}


def store_two_steps(database, run):
    """Store steps in which prompt a stays right, b is forgotten, and c is only sampled at the second step."""
    store_groups(
        database,
        run,
        1,
        group("a", RIGHT_COMPLETION, RIGHT_COMPLETION),
        group("b", RIGHT_COMPLETION, RIGHT_COMPLETION, index=1),
    )
    store_groups(
        database,
        run,
        2,
        group("a", RIGHT_COMPLETION, RIGHT_COMPLETION),
        group("b", WRONG_COMPLETION, WRONG_COMPLETION, index=1),
        group("c", RIGHT_COMPLETION, WRONG_COMPLETION, index=2),
    )
    add_points(
        database,
        run,
        {1: {"reward/mean": 1.0, "reward/accuracy": 1.0}, 2: {"reward/mean": 0.5, "reward/accuracy": 0.5}},
    )


@pytest.mark.parametrize("metric", ["reward/mean", "reward/accuracy"])
def test_a_forgotten_prompt_is_the_first_row(client, database, run, metric):
    store_two_steps(database, run)
    breakdown = fetch_breakdown(client, run, metric)
    assert breakdown["change"] == -0.5
    first, *later_rows = breakdown["rows"]
    # shares 1/2 and 1/3: its mean fell from 1 to 0 at (1/2 + 1/3) / 2; the remainder is its share
    assert first["label"] == "sums/b"
    assert first["prompt"] == "b"
    assert first["value"] == pytest.approx(-5 / 12)
    assert first["share"] == pytest.approx((1 / 3 * 0 - 1 / 2 * 1) + 5 / 12 - 3 / 4 * (1 / 3 - 1 / 2))
    assert [row["kind"] for row in later_rows] == ["category", "category", "not_stored"]
    assert later_rows[-1]["total"] == pytest.approx(0, abs=1e-12)
    assert [(example["window"], example["step"]) for example in first["examples"]] == [
        ("before", 1),
        ("after", 2),
    ]
    groups = client.get("/api/v1/rollouts", params={"run": run.id, "step": 2}).json()["items"]
    assert first["examples"][1]["group"] == groups[1]["id"]


def test_groups_flags_and_lengths_also_add_up(client, database, run):
    store_two_steps(database, run)
    groups = fetch_breakdown(client, run, by="group")
    assert groups["rows"][0]["label"] in {"step 2, prompt 1", "step 1, prompt 0", "step 1, prompt 1"}
    flags = fetch_breakdown(client, run, by="flag")
    assert [row["marks"] for row in flags["rows"][:2]] in ([["wrong"], ["right"]], [["right"], ["wrong"]])
    lengths = fetch_breakdown(client, run, by="length")  # "no" has 2 tokens, "yes" 3
    assert {row["label"] for row in lengths["rows"] if row["kind"] == "category"} == {
        "below 3 tokens",
        "3 tokens and more",
    }


def test_terms_add_up_to_the_reward_with_their_weights_and_gates(client, database):
    rewards = [{"name": "correctness", "weight": 1.0}, {"name": "boxed_format", "weight": 0.2}]
    with database.sessions.begin() as session:
        run = make_run(session, config={"rewards": rewards})
    paid_completion = MadeCompletion(reward=1.2, rewards={"correctness": 1.0, "boxed_format": 1.0})
    gated_completion = MadeCompletion(reward=0.0, rewards={"correctness": 1.0, "boxed_format": 0.0})
    store_groups(database, run, 1, group("a", paid_completion, paid_completion))
    store_groups(database, run, 2, group("a", paid_completion, gated_completion))
    add_points(database, run, {1: {"reward/mean": 1.2}, 2: {"reward/mean": 0.6}})
    total_by_label = totals(fetch_breakdown(client, run, by="term"))
    assert total_by_label["correctness"] == 0
    assert total_by_label["boxed_format"] == -0.1
    assert total_by_label["gates and shaping"] == -0.5


def test_windows_of_random_steps_add_up_in_every_way(client, database, run):
    rng = random.Random(0)
    points = {}
    for step in range(1, 9):
        groups = [
            group(
                f"prompt {rng.randrange(90)}",
                *(
                    MadeCompletion(
                        text="x" * rng.randrange(1, 200),
                        reward=(reward := rng.choice([0.0, 0.5, 1.0, None])),
                        rewards={"correctness": reward},
                        correct=rng.choice([True, False, None]),
                        flags=tuple(rng.sample(("repetitive", "unparsed"), rng.randrange(3))),
                        finish_reason=rng.choice(["stop", "length"]),
                    )
                    for _ in range(4)
                ),
                index=index,
            )
            for index in range(rng.randrange(20, 40))
        ]
        store_groups(database, run, step, *groups[::2], counted=groups[1::2])
        all_completions = [completion for step_group in groups for completion in step_group.completions]
        rewards = [completion.reward for completion in all_completions if completion.reward is not None]
        points[step] = {
            "reward/mean": fmean(rewards),
            "reward/correctness/mean": fmean(rewards),
            "length/mean": fmean(len(completion.text) for completion in all_completions),
            "length/truncated_frac": fmean(
                completion.finish_reason == "length" for completion in all_completions
            ),
        }
    add_points(database, run, points)
    for metric in points[1]:
        for by in ("prompt", "group", "flag", "length"):
            breakdown = fetch_breakdown(client, run, metric, "1-4", "3-8", by)
            if by != "length" and metric != "reward/correctness/mean":
                assert breakdown["rows"][-1]["total"] == pytest.approx(0, abs=1e-9), (metric, by)
    assert [row["kind"] for row in fetch_breakdown(client, run, by="group", after="2-8")["rows"][-2:]] == [
        "others",
        "not_stored",
    ]
    fetch_breakdown(client, run, by="term", before="1-4", after="5-8")


def test_a_metric_that_cannot_be_decomposed_gives_a_reason(client, database, run):
    store_two_steps(database, run)
    add_points(database, run, {1: {"policy/entropy": 1.0, "kl/k3": float("nan")}})

    def fetch_refusal(status, **params):
        query = {"metric": "reward/mean", "before": "1", "after": "2", "by": "prompt"} | params
        response = client.get(f"/api/v1/runs/{run.id}/breakdown", params=query)
        assert response.status_code == status, response.text
        return response.text

    assert "not a sum over completions" in fetch_refusal(422, metric="optim/grad_norm")
    assert "not a sum over completions" in fetch_refusal(422, metric="<script>alert(1)</script>")
    assert "not a sum of terms" in fetch_refusal(422, metric="reward/accuracy", by="term")
    assert "before it begins" in fetch_refusal(422, before="9-3")
    assert "has not recorded length/mean" in fetch_refusal(404, metric="length/mean")
    assert "no finite value at steps 5 to 9" in fetch_refusal(404, after="5-9")
    for before in ("", "-1", "1-2-3", "a", "1" * 10, "1;2", "٣"):
        fetch_refusal(422, before=before)
    fetch_refusal(422, by="moon")
    assert (
        client.get(
            "/api/v1/runs/nobody/breakdown", params={"metric": "a", "before": "1", "after": "2"}
        ).status_code
        == 404
    )


def completion_with_tokens(text):
    """Return a completion whose tokens have their number as entropy, and a loss of an eighth each."""
    count = len(text)
    values = {"entropy": float(count), "kl": 0.5, "loss": 0.125}
    return MadeCompletion(
        text, arrays={name: np.full(count, token_value, np.float32) for name, token_value in values.items()}
    )


@pytest.mark.parametrize(
    ("metric", "first", "second", "not_stored"),
    [
        ("policy/entropy", (2 * 2 + 4 * 4) / 6, 6.0, 0.0),
        ("kl/k3", 0.5, 0.5, 0.0),
        ("loss/total", 6 * 0.125, 12 * 0.125, 0.0),
        ("policy/entropy", (2 * 2 + 4 * 4) / 6, 7.0, 1.0),
    ],
)
def test_token_values_add_up_and_unstored_ones_are_the_remainder(
    client, database, run, metric, first, second, not_stored
):
    store_groups(database, run, 1, group("a", completion_with_tokens("xx"), completion_with_tokens("xxxx")))
    store_groups(
        database, run, 2, group("a", completion_with_tokens("x" * 6), completion_with_tokens("x" * 6))
    )
    add_points(database, run, {1: {metric: first}, 2: {metric: second}})
    breakdown = fetch_breakdown(client, run, metric=metric)
    assert breakdown["rows"][-1]["total"] == pytest.approx(not_stored, abs=1e-6)
    lengths = fetch_breakdown(client, run, metric=metric, by="length")
    assert lengths["change"] == breakdown["change"]
