"""Tests of budgets of token values: what is removed, in which order, and how it is reported."""

from dataclasses import replace

import pytest
import zstandard
from sqlalchemy import func, select, update

from backend.base.settings import Settings
from backend.rollouts.packing import pack_tokens, unpack_arrays, unpack_tokens
from backend.rollouts.token_budget import TokenBudget
from backend.storage.models import Event, RolloutGroup, RolloutTokens, Run
from tests.factories import make_group, make_run

STEP_COUNT = 6


@pytest.fixture
def run(database):
    with database.sessions.begin() as session:
        run = make_run(session, last_step=STEP_COUNT)
        for step in range(1, STEP_COUNT + 1):
            make_group(session, run, step=step)
        make_group(session, run, step=3, kind="eval")
    return run


def token_bytes(database, run):
    """Return the bytes of token values at each step of a run that has any."""
    query = (
        select(RolloutGroup.step, func.sum(func.length(RolloutTokens.data)))
        .join(RolloutTokens, RolloutTokens.group_id == RolloutGroup.id)
        .where(RolloutGroup.run_id == run.id)
        .group_by(RolloutGroup.step)
        .order_by(RolloutGroup.step)
    )
    with database.sessions() as session:
        return {step: int(size) for step, size in session.execute(query)}


def apply_budgets(database, monkeypatch, *, run_bytes=0, total_bytes=0):
    """Apply the budgets once, in bytes."""
    budget = TokenBudget(Settings(), database.sessions)
    monkeypatch.setattr(budget, "_of_run", run_bytes)
    monkeypatch.setattr(budget, "_of_all", total_bytes)
    for _ in budget.sweep():
        pass
    return budget


def load_value_names(database, run):
    """Return the names of the values at each step that has tokens."""
    query = select(RolloutGroup.step, RolloutTokens.data).join(
        RolloutTokens, RolloutTokens.group_id == RolloutGroup.id
    )
    with database.sessions() as session:
        rows = session.execute(query.where(RolloutGroup.run_id == run.id))
        return {step: sorted(unpack_arrays(frame)[0]) for step, frame in rows}


def messages(database, run):
    with database.sessions() as session:
        query = select(Event.message).where(Event.run_id == run.id, Event.kind == "tokens")
        return list(session.scalars(query.order_by(Event.id)))


def stripped_size(database, run):
    """Return the bytes of a step without the values that only colour tokens."""
    with database.sessions() as session:
        frame = session.scalar(select(RolloutTokens.data).limit(1))
    stripped = [
        replace(tokens, arrays={"logprob": tokens.arrays["logprob"]}) for tokens in unpack_tokens(frame)
    ]
    return len(pack_tokens(stripped))


def test_values_that_only_colour_tokens_are_removed_first_from_the_oldest_step_on(database, run, monkeypatch):
    bytes_before = token_bytes(database, run)
    freed = bytes_before[1] - stripped_size(database, run)
    apply_budgets(database, monkeypatch, run_bytes=sum(bytes_before.values()) - freed - 1)
    value_names = load_value_names(database, run)
    assert value_names == {1: ["logprob"], 2: ["logprob"]} | {
        step: ["entropy", "logprob"] for step in (3, 4, 5, 6)
    }
    assert len(messages(database, run)) == 1
    assert "removed values that colour tokens up to step 2 to keep" in messages(database, run)[0]
    bytes_after = token_bytes(database, run)
    apply_budgets(database, monkeypatch, run_bytes=sum(bytes_after.values()))
    assert (token_bytes(database, run), len(messages(database, run))) == (bytes_after, 1)


def test_tokens_are_removed_next_except_for_the_latest_step(client, database, run, monkeypatch):
    apply_budgets(database, monkeypatch, run_bytes=1)
    assert list(token_bytes(database, run)) == [STEP_COUNT]
    assert load_value_names(database, run)[STEP_COUNT] == ["entropy", "logprob"]
    (group,) = client.get("/api/v1/rollouts", params={"run": run.id, "step": 2}).json()["items"]
    document = client.get(f"/api/v1/rollouts/{group['completions'][0]['id']}/tokens").json()
    assert document["tokens"] == []
    assert document["note"].startswith(
        "removed values that colour tokens up to step 5 and all tokens up to step 5"
    )
    assert len(group["completions"]) == 2
    order = {"run": run.id, "step": 2, "variants": []}
    assert "removed values" in client.post("/api/v1/rollouts/what-if", json=order).json()["detail"]


def test_over_the_budget_of_the_installation_the_largest_run_is_reduced(database, run, monkeypatch):
    with database.sessions.begin() as session:
        small_run = make_run(session, name="small", last_step=1)
        make_group(session, small_run, step=1)
        make_group(session, small_run, step=2)
    bytes_before = token_bytes(database, small_run)
    total = sum(bytes_before.values()) + sum(token_bytes(database, run).values())
    apply_budgets(database, monkeypatch, total_bytes=total - 1)
    assert token_bytes(database, small_run) == bytes_before
    assert load_value_names(database, run)[1] == ["logprob"]
    assert "of the installation within" in messages(database, run)[0]
    apply_budgets(database, monkeypatch, total_bytes=1)
    assert list(token_bytes(database, run)) == [STEP_COUNT]
    assert list(token_bytes(database, small_run)) == [2]


def test_an_interrupted_reduction_continues_and_is_reported_once(database, run, monkeypatch):
    budget = TokenBudget(Settings(token_mb_per_run=1, token_mb=0), database.sessions)
    monkeypatch.setattr(budget, "_of_run", 1)
    sweep = budget.sweep()
    for _ in range(4):
        next(sweep)
    del sweep
    assert messages(database, run) == []
    apply_budgets(database, monkeypatch, run_bytes=1)
    assert list(token_bytes(database, run)) == [STEP_COUNT]
    assert len(messages(database, run)) == 1


DAMAGED_FRAME = b"\x28\xb5\x2f\xfdbroken"
NEWER_FRAME = zstandard.compress((13).to_bytes(4, "little") + b'{"version":9}')


DEEP_FRAME = zstandard.compress((5_000).to_bytes(4, "little") + b"[" * 5_000)


@pytest.mark.parametrize("data", [DAMAGED_FRAME, NEWER_FRAME, DEEP_FRAME], ids=["damaged", "newer", "deep"])
def test_a_damaged_frame_is_removed_with_the_tokens_and_does_not_block_the_budget(
    database, run, monkeypatch, data
):
    with database.sessions.begin() as session:
        other_run = make_run(session, last_step=STEP_COUNT, name="other")
        for step in range(1, STEP_COUNT + 1):
            make_group(session, other_run, step=step)
        first = RolloutGroup.run_id == run.id, RolloutGroup.step == 1
        ids = select(RolloutGroup.id).where(*first)
        session.execute(update(RolloutTokens).where(RolloutTokens.group_id.in_(ids)).values(data=data))
    size = sum(token_bytes(database, run).values())
    for _ in range(2):
        apply_budgets(database, monkeypatch, run_bytes=size - 1)
    assert 1 in token_bytes(database, run)  # removing the values of a later step was enough
    [damage, removed] = messages(database, run)
    assert damage.startswith("the tokens of 1 group at step 1 are damaged and stay until")
    assert "values that colour tokens up to step 2" in removed
    apply_budgets(database, monkeypatch, run_bytes=1, total_bytes=1)
    assert list(token_bytes(database, run)) == list(token_bytes(database, other_run)) == [STEP_COUNT]
    assert sum("are damaged" in message for message in messages(database, run)) == 1


def test_two_services_in_turn_remove_no_more_than_one(database, monkeypatch):
    """What the other service has removed is counted again before anything else is removed."""
    with database.sessions.begin() as session:
        runs = [make_run(session, last_step=STEP_COUNT) for _ in range(3)]
        for run in runs[:2]:
            for step in range(1, STEP_COUNT + 1):
                make_group(session, run, step=step)
    first, second = (TokenBudget(Settings(), database.sessions) for _ in range(2))
    limit = sum(sum(token_bytes(database, run).values()) for run in runs[:2])
    for budget in (first, second):
        monkeypatch.setattr(budget, "_of_all", limit)
        assert list(budget.sweep())
    with database.sessions.begin() as session:
        make_group(session, runs[2], step=1)
        session.get_one(Run, runs[2].id).last_step += 1  # a change of the stamp, so that it is counted
    list(first.sweep())
    after_one = [token_bytes(database, run) for run in runs]
    assert sum(sum(size.values()) for size in after_one) <= limit
    list(second.sweep())
    assert [token_bytes(database, run) for run in runs] == after_one
