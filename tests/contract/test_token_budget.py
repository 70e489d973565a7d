"""Budgets of token values: what gives way, in which order, and what is said about it, on both databases."""

from dataclasses import replace

import numpy as np
import pytest
import zstandard
from sqlalchemy import func, select, update

from backend.base.settings import Settings
from backend.rollouts import token_budget
from backend.rollouts.packing import pack_tokens, unpack_arrays, unpack_tokens
from backend.rollouts.reading import tokens_of
from backend.rollouts.token_budget import TokenBudget
from backend.storage.models import Event, GroupTally, RolloutGroup, RolloutTokens, Run
from tests.factories import MadeCompletion, make_group, make_run, stored_completions

STEPS = 6
LONG = "".join(chr(32 + (n * n * 7919 + n // 3) % 90) for n in range(4_000))


def with_alternatives(text):
    """A completion with the likeliest token at each token."""
    completion = MadeCompletion(text)
    ids = np.array(completion.token_ids, np.float32)
    logprobs = -np.random.default_rng(0).random(len(ids)).astype(np.float32)
    more = {"alternative_0_id": ids, "alternative_0_logprob": logprobs}
    return replace(completion, arrays={**completion.arrays, **more})


@pytest.fixture
def run(database):
    with database.sessions.begin() as session:
        run = make_run(session, last_step=STEPS)
        for step in range(1, STEPS + 1):
            make_group(session, run, step=step)
        make_group(session, run, step=3, kind="eval")
    return run


def sizes(database, run):
    """Bytes of the token values at each step of a run that has any."""
    query = (
        select(RolloutGroup.step, func.sum(func.length(RolloutTokens.data)))
        .join(RolloutTokens, RolloutTokens.group_id == RolloutGroup.id)
        .where(RolloutGroup.run_id == run.id)
        .group_by(RolloutGroup.step)
        .order_by(RolloutGroup.step)
    )
    with database.sessions() as session:
        return {step: int(size) for step, size in session.execute(query)}


def sweep(database, monkeypatch, *, of_run=0, of_all=0):
    """A look with budgets in bytes."""
    budget = TokenBudget(Settings(), database.sessions)
    monkeypatch.setattr(budget, "_of_run", of_run)
    monkeypatch.setattr(budget, "_of_all", of_all)
    for _ in budget.sweep():
        pass
    return budget


def values_of(database, run):
    """Names of the values at each step that has tokens."""
    query = select(RolloutGroup.step, RolloutTokens.data).join(
        RolloutTokens, RolloutTokens.group_id == RolloutGroup.id
    )
    with database.sessions() as session:
        rows = session.execute(query.where(RolloutGroup.run_id == run.id))
        return {step: sorted(unpack_arrays(data)[0]) for step, data in rows}


def messages(database, run):
    with database.sessions() as session:
        query = select(Event.message).where(Event.run_id == run.id, Event.kind == "tokens")
        return list(session.scalars(query.order_by(Event.id)))


def stripped_size(database, run):
    """Bytes of a step once the values that only colour tokens are gone."""
    with database.sessions() as session:
        data = session.scalar(select(RolloutTokens.data).limit(1))
    stripped = [
        replace(tokens, arrays={"logprob": tokens.arrays["logprob"]}) for tokens in unpack_tokens(data)
    ]
    return len(pack_tokens(stripped))


def test_within_its_budget_a_run_keeps_everything_and_nothing_is_said(database, run, monkeypatch):
    before = sizes(database, run)
    sweep(database, monkeypatch, of_run=sum(before.values()))
    assert (sizes(database, run), messages(database, run)) == (before, [])


def test_values_that_only_colour_tokens_go_first_from_the_oldest_step_on(database, run, monkeypatch):
    before = sizes(database, run)
    freed = before[1] - stripped_size(database, run)
    sweep(database, monkeypatch, of_run=sum(before.values()) - freed - 1)
    value_names = values_of(database, run)
    assert value_names == {1: ["logprob"], 2: ["logprob"]} | {
        step: ["entropy", "logprob"] for step in (3, 4, 5, 6)
    }
    assert len(messages(database, run)) == 1
    assert "removed values that colour tokens up to step 2 to keep" in messages(database, run)[0]
    after = sizes(database, run)
    sweep(database, monkeypatch, of_run=sum(after.values()))
    assert (sizes(database, run), len(messages(database, run))) == (after, 1)


def test_then_the_tokens_go_but_for_the_newest_step(client, database, run, monkeypatch):
    sweep(database, monkeypatch, of_run=1)
    assert list(sizes(database, run)) == [STEPS]
    assert values_of(database, run)[STEPS] == ["entropy", "logprob"]
    (group,) = client.get("/api/v1/rollouts", params={"run": run.id, "step": 2}).json()["items"]
    answer = client.get(f"/api/v1/rollouts/{group['completions'][0]['id']}/tokens").json()
    assert answer["tokens"] == []
    assert answer["note"].startswith(
        "removed values that colour tokens up to step 5 and all tokens up to step 5"
    )
    assert len(group["completions"]) == 2
    order = {"run": run.id, "step": 2, "variants": []}
    assert "removed values" in client.post("/api/v1/rollouts/what-if", json=order).json()["detail"]


def test_over_the_budget_of_the_installation_the_run_with_most_gives_way(database, run, monkeypatch):
    with database.sessions.begin() as session:
        small = make_run(session, name="small", last_step=1)
        make_group(session, small, step=1)
        make_group(session, small, step=2)
    before = sizes(database, small)
    total = sum(before.values()) + sum(sizes(database, run).values())
    sweep(database, monkeypatch, of_all=total - 1)
    assert sizes(database, small) == before
    assert values_of(database, run)[1] == ["logprob"]
    assert "of the installation within" in messages(database, run)[0]
    sweep(database, monkeypatch, of_all=1)
    assert list(sizes(database, run)) == [STEPS]
    assert list(sizes(database, small)) == [2]


def test_a_sweep_that_was_cut_off_goes_on_and_says_it_once(database, run, monkeypatch):
    budget = TokenBudget(Settings(token_mb_per_run=1, token_mb=0), database.sessions)
    monkeypatch.setattr(budget, "_of_run", 1)
    pieces = budget.sweep()
    for _ in range(4):
        next(pieces)
    del pieces
    assert messages(database, run) == []
    sweep(database, monkeypatch, of_run=1)
    assert list(sizes(database, run)) == [STEPS]
    assert len(messages(database, run)) == 1


def test_a_step_that_is_too_large_to_compute_again_is_refused_before_it_is_read(client, database, run):
    with database.sessions.begin() as session:
        session.execute(update(GroupTally).values(tokens=GroupTally.completions * 100_000))
        session.execute(update(RolloutTokens).values(data=b"never read"))
    order = {"run": run.id, "step": 3, "variants": []}
    with database.sessions.begin() as session:
        make_group(session, run, step=3, prompt_index=1, completions=(MadeCompletion(),) * 1_024)
        session.execute(update(GroupTally).values(tokens=GroupTally.completions * 100_000))
    answer = client.post("/api/v1/rollouts/what-if", json=order)
    assert answer.status_code == 409
    assert "1,026 completions of 102,600,000 tokens together are too many" in answer.json()["detail"]


def test_alternatives_give_way_before_anything_else(database, monkeypatch):
    with database.sessions.begin() as session:
        run = make_run(session, last_step=STEPS, config={"recording": {"alternatives": 1}})
        completion = with_alternatives(text="x" * 50)
        for step in (1, 2, 3):
            make_group(session, run, step=step, completions=(completion,))
    before = sizes(database, run)
    sweep(database, monkeypatch, of_run=sum(before.values()) - 1)
    names = values_of(database, run)
    assert names[1] == ["entropy", "logprob"]
    assert names[2] == names[3] == sorted(completion.arrays)
    [message] = messages(database, run)
    assert message.startswith("removed alternatives up to step 1 to keep")
    with database.sessions() as session:
        first, last = (stored_completions(session, RolloutGroup.step == step)[0].id for step in (1, 3))
        gone, last_tokens = tokens_of(session, first), tokens_of(session, last)
    assert (gone["alternatives"], gone["note"]) == (None, message)
    assert last_tokens["alternatives"]["ids"][49] == [ord("x") % 1000]
    assert last_tokens["alternatives"]["strings"] == {str(ord("x")): "x"}
    assert last_tokens["note"] == ""


@pytest.mark.parametrize("config", [{"recording": "all"}, {"recording": [1]}, {"recording": None}, {}])
def test_a_config_of_another_trainer_does_not_end_the_sweep(database, monkeypatch, config):
    """An archive brings tokens and a config of any form; the reconciler goes through it, too."""
    with database.sessions.begin() as session:
        run = make_run(session, last_step=STEPS, origin="script")
        session.execute(update(Run).where(Run.id == run.id).values(config=config))
        for step in (1, 2):
            make_group(session, run, step=step, completions=(with_alternatives(text="x" * 50),))
    sweep(database, monkeypatch, of_run=1)
    assert messages(database, run)[0].startswith(
        "removed values that colour tokens up to step 1 and all tokens"
    )


DAMAGED = b"\x28\xb5\x2f\xfdbroken"
NEWER = zstandard.compress((13).to_bytes(4, "little") + b'{"version":9}')


DEEP = zstandard.compress((5_000).to_bytes(4, "little") + b"[" * 5_000)


@pytest.mark.parametrize("data", [DAMAGED, NEWER, DEEP], ids=["damaged", "newer", "deep"])
def test_a_damaged_frame_gives_way_with_the_tokens_and_holds_up_no_budget(database, run, monkeypatch, data):
    with database.sessions.begin() as session:
        other_run = make_run(session, last_step=STEPS, name="other")
        for step in range(1, STEPS + 1):
            make_group(session, other_run, step=step)
        first = RolloutGroup.run_id == run.id, RolloutGroup.step == 1
        ids = select(RolloutGroup.id).where(*first)
        session.execute(update(RolloutTokens).where(RolloutTokens.group_id.in_(ids)).values(data=data))
    size = sum(sizes(database, run).values())
    for _ in range(2):
        sweep(database, monkeypatch, of_run=size - 1)
    assert 1 in sizes(database, run)  # the values of a later step were enough
    [damage, removed] = messages(database, run)
    assert damage.startswith("the tokens of 1 group at step 1 are damaged and stay until")
    assert "values that colour tokens up to step 2" in removed
    sweep(database, monkeypatch, of_run=1, of_all=1)
    assert list(sizes(database, run)) == list(sizes(database, other_run)) == [STEPS]
    assert sum("are damaged" in message for message in messages(database, run)) == 1


def test_where_the_largest_run_has_one_step_the_next_one_gives_way(database, run, monkeypatch):
    with database.sessions.begin() as session:
        large = make_run(session, name="one step", last_step=1)
        make_group(session, large, step=1, completions=(MadeCompletion(text=LONG),) * 8)
    limit = sum(sizes(database, large).values()) + sum(sizes(database, run).values()) // 2
    assert sum(sizes(database, large).values()) > sum(sizes(database, run).values())
    sweep(database, monkeypatch, of_all=limit)
    assert sum(sizes(database, large).values()) + sum(sizes(database, run).values()) <= limit
    assert messages(database, large) == []


def test_bytes_of_a_run_that_trains_are_right_though_old_steps_are_counted_once(database, run, monkeypatch):
    monkeypatch.setattr(token_budget, "LATE_STEPS", 2)
    budget = TokenBudget(Settings(), database.sessions)
    chance = np.random.default_rng(0)
    last_step, ends = STEPS, []
    for attempt in (1, 1, 1, 1, 2, 2, 2):
        with database.sessions.begin() as session:
            for late in (last_step - 1, last_step):  # an evaluation, stored after its step
                make_group(session, run, step=late, kind="eval", prompt_index=1 + len(ends))
            for _ in range(int(chance.integers(1, 4))):
                last_step += 1
                make_group(session, run, step=last_step)
            session.execute(update(Run).where(Run.id == run.id).values(last_step=last_step, attempt=attempt))
        monkeypatch.setattr(budget, "_of_run", sum(sizes(database, run).values()) - 1)
        for _ in budget.sweep():
            run_size = budget._known[run.id]
        assert run_size.size == sum(sizes(database, run).values())
        ends.append(run_size.end)
    assert ends == sorted(set(ends))
    assert ends[-1] == last_step - 2


def test_two_services_that_take_turns_remove_no_more_than_one(database, monkeypatch):
    """What the other one has removed is counted again before anything gives way."""
    with database.sessions.begin() as session:
        runs = [make_run(session, last_step=STEPS) for _ in range(3)]
        for run in runs[:2]:
            for step in range(1, STEPS + 1):
                make_group(session, run, step=step)
    first, second = (TokenBudget(Settings(), database.sessions) for _ in range(2))
    limit = sum(sum(sizes(database, run).values()) for run in runs[:2])
    for budget in (first, second):
        monkeypatch.setattr(budget, "_of_all", limit)
        assert list(budget.sweep())
    with database.sessions.begin() as session:
        make_group(session, runs[2], step=1)
        session.get_one(Run, runs[2].id).last_step += 1  # a change of the stamp, so that it is counted
    list(first.sweep())
    after_one = [sizes(database, run) for run in runs]
    assert sum(sum(size.values()) for size in after_one) <= limit
    list(second.sweep())
    assert [sizes(database, run) for run in runs] == after_one


def test_a_frame_with_an_unknown_kind_of_values_is_damaged(database, run, monkeypatch):
    with database.sessions.begin() as session:
        group = session.scalars(select(RolloutGroup.id).where(RolloutGroup.step == 1)).first()
        raw = zstandard.decompress(session.get_one(RolloutTokens, group).data)
        assert b'"f3"' in raw
        frame = zstandard.compress(raw.replace(b'"f3"', b'"f8"', 1))
        session.execute(update(RolloutTokens).where(RolloutTokens.group_id == group).values(data=frame))
    sweep(database, monkeypatch, of_run=1)
    assert list(sizes(database, run)) == [STEPS]
    assert any("no kind of values is named 'f8'" in message for message in messages(database, run))
