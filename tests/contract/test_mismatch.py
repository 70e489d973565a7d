"""Tests of caps of the sampler correction over stored tokens, by hand and on both databases."""

import math
from dataclasses import replace

import numpy as np
import pytest

from backend.metrics.store import write_points
from backend.rollouts.store import pack_groups, write_groups
from tests.factories import MadeCompletion, MadeGroup, make_run

RHO = (0.6, 1.0, 1.9, 4.0)


def Sampled(text="abcd", rho=RHO, *, masked=False, **fields):  # noqa: N802 - stands next to MadeCompletion
    """Return one token for each rho."""
    logprob = np.full(len(rho), -3.0, np.float32)
    mask = {"mask": np.zeros(len(rho), np.float32)} if masked else {}
    arrays = mask | {"logprob": logprob, "policy_logprob": logprob + np.log(rho).astype(np.float32)}
    return replace(MadeCompletion(text, **fields), arrays=arrays)


@pytest.fixture
def run(database):
    correction = {"type": "token_tis", "cap": 3.0}
    with database.sessions.begin() as session:
        return make_run(session, config={"objective": {"correction": correction}})


def store_group(database, run, *groups, step=1):
    with database.sessions.begin() as session:
        write_groups(session, pack_groups(run.id, step, 1, groups))


def mismatch_at(client, run, step=1, **params):
    response = client.get("/api/v1/rollouts/mismatch", params={"run": run.id, "step": step, **params})
    assert response.status_code == 200, response.text
    return response.json()


def at_cap(document, cap):
    return next(
        weights_at_cap for weights_at_cap in document["caps"] if weights_at_cap["cap"] == pytest.approx(cap)
    )


def test_weights_under_a_cap_match_the_formula(client, database, run):
    store_group(database, run, MadeGroup(completions=(Sampled(),)))
    document = mismatch_at(client, run)
    assert (document["kind"], document["run_cap"], document["tokens"], document["groups"]) == (
        "token_tis",
        3.0,
        4,
        1,
    )
    at_two = at_cap(document, 2.0)  # weights 0.6, 1, 1.9, 2
    assert at_two["limited"] == pytest.approx(1 / 4)
    assert at_two["mean"] == pytest.approx(5.5 / 4, abs=1e-6)
    assert at_two["ess"] == pytest.approx(5.5**2 / (4 * (0.36 + 1 + 1.9**2 + 4)), abs=1e-6)
    assert at_two["lost"] == pytest.approx(1 - 5.5 / 7.5, abs=1e-6)
    assert at_cap(document, 3.0)["mean"] == pytest.approx(6.5 / 4, abs=1e-6)
    mask = at_cap(
        mismatch_at(client, run, kind="token_mask"), 2**0.5
    )  # 0.6 and 1 stay, 1.9 and 4 are excluded
    assert (mask["limited"], mask["mean"]) == (pytest.approx(1 / 2), pytest.approx(1.6 / 4, abs=1e-6))


def test_completions_share_the_product_or_the_geometric_mean(client, database, run):
    store_group(database, run, MadeGroup(completions=(Sampled(), Sampled(rho=(1.0, 1.0, 1.0, 1.0)))))
    product = at_cap(mismatch_at(client, run, kind="seq_tis"), 2.0)  # 0.6 * 1 * 1.9 * 4 exceeds the cap
    assert (product["limited"], product["mean"]) == (pytest.approx(1 / 2), pytest.approx(1.5))
    geometric = at_cap(mismatch_at(client, run, kind="seq_tis", level="geo"), 2.0)
    assert geometric["mean"] == pytest.approx((math.pow(4.56, 1 / 4) + 1) / 2, abs=1e-6)


def test_masked_tokens_and_untrained_groups_are_ignored(client, database, run):
    groups = [
        MadeGroup(completions=(Sampled(), Sampled(masked=True))),
        MadeGroup(prompt_index=1, completions=(MadeCompletion(),)),
    ]
    store_group(database, run, *groups, step=4)
    with database.sessions.begin() as session:
        write_points(session, run.id, 1, [(4, {"sampling/staleness": 2.0})])
    document = mismatch_at(client, run, step=4)
    assert (document["tokens"], document["completions"], document["groups"], document["of_groups"]) == (
        4,
        1,
        1,
        2,
    )
    assert document["position"] == [0, 1, 2, 3]
    assert document["age"] == [2, 2, 2, 2]


def test_missing_values_are_reported(client, database, run):
    for params, status in (
        ({"step": 1}, 404),
        ({"step": -1}, 422),
        ({"step": 1, "kind": "moon"}, 422),
        ({"step": 1, "level": "moon"}, 422),
    ):
        response = client.get("/api/v1/rollouts/mismatch", params={"run": run.id} | params)
        assert response.status_code == status, response.text
    assert (
        "no stored tokens" in client.get("/api/v1/rollouts/mismatch", params={"run": run.id, "step": 1}).text
    )
    assert client.get("/api/v1/rollouts/mismatch", params={"run": "nobody", "step": 1}).status_code == 404


def test_the_loss_of_another_trainers_run_is_not_recomputed(client, database):
    with database.sessions.begin() as session:
        foreign_run = make_run(session, origin="trl")
        foreign_run.config = {"beta": 0.04}
    store_group(database, foreign_run, MadeGroup(completions=(Sampled(),)))
    order = {"run": foreign_run.id, "step": 1, "variants": [{"preset": "dapo"}]}
    response = client.post("/api/v1/rollouts/what-if", json=order)
    assert response.status_code == 404, response.text
    assert "trained elsewhere" in response.json()["detail"]
