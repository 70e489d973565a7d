"""Tests of storing rollouts in SQL and reading them, on both databases."""

import io
import math
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select, update

from backend.rollouts import reading
from backend.rollouts.packing import pack_tokens, unpack_text
from backend.rollouts.reading import load_tokens
from backend.rollouts.store import pack_groups, write_groups
from backend.storage.completion_codec import decode, encode
from backend.storage.models import RolloutGroup, RolloutTokens, RunPrompt
from tests.factories import MadeCompletion, MadeGroup, make_attempt, make_group, make_run, stored_completions

pytestmark = pytest.mark.both_databases

HOSTILE_TEXT = "a\0b\ud800c\u202e</script>é"


def rollouts(client, run, **params):
    response = client.get("/api/v1/rollouts", params={"run": run.id, **params})
    assert response.status_code == 200, response.text
    return response.json()


def store_group(database, run, *groups, step=1, attempt=1):
    with database.sessions.begin() as session:
        write_groups(session, pack_groups(run.id, step, attempt, groups))


def test_the_exact_text_is_kept_and_a_clean_copy_is_searched(session):
    run = make_run(session)
    make_group(session, run, prompt=HOSTILE_TEXT, completions=(MadeCompletion(text=HOSTILE_TEXT),))
    [rollout] = stored_completions(session)
    assert rollout.text == HOSTILE_TEXT
    assert rollout.clean_text == "a\\x00b\\ud800c\u202e</script>é"
    assert unpack_text(session.scalars(select(RolloutGroup.prompt)).one()) == HOSTILE_TEXT


def test_tokens_join_to_the_text_and_have_their_values(session):
    run = make_run(session)
    make_group(session, run, completions=(MadeCompletion(text="x"), MadeCompletion(text=HOSTILE_TEXT)))
    rollout = stored_completions(session)[1]
    tokens = load_tokens(session, rollout.id)
    assert "".join(tokens["tokens"]) == HOSTILE_TEXT
    assert tokens["arrays"]["logprob"][:3] == [0.0, -1.0, -2.0]
    assert len(tokens["arrays"]["entropy"]) == len(tokens["mask"]) == len(HOSTILE_TEXT)


def test_nonfinite_rewards_are_spelled_out(client, database, run):
    completion = MadeCompletion(
        reward=math.nan, advantage=-math.inf, rewards={"mine": math.inf, "none": None}
    )
    store_group(database, run, MadeGroup(completions=(completion, MadeCompletion(reward=1.0))))
    group = rollouts(client, run)["items"][0]
    completion_json = group["completions"][0]
    assert (completion_json["reward"], completion_json["advantage"]) == ("NaN", "-Infinity")
    assert completion_json["rewards"] == {"mine": "Infinity", "none": None}
    assert (group["reward_mean"], group["reward_std"]) == (1.0, 0.0)


def test_groups_are_paged_by_step_kind_and_prompt(client, database, run):
    for step in (0, 1, 2):
        kind = "eval" if step == 0 else "train"
        store_group(
            database, run, *(MadeGroup(prompt_index=number, kind=kind) for number in range(3)), step=step
        )
    group_positions: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = rollouts(client, run, limit=2, cursor=cursor)
        group_positions += [(item["step"], item["prompt_index"]) for item in page["items"]]
        cursor = page["next"]
    assert group_positions == [(step, number) for step in (0, 1, 2) for number in range(3)]


def test_groups_are_found_by_properties_of_one_completion(client, database, run):
    good_group = MadeGroup(prompt="1+1=?", prompt_index=0, completions=(MadeCompletion(text="Two. 100%"),))
    bad_group = MadeGroup(
        prompt="2+2=?",
        prompt_index=1,
        completions=(MadeCompletion(text="five", reward=0.0, correct=False, flags=("wrong", "truncated")),),
    )
    store_group(database, run, good_group, bad_group)

    def prompts_with(**params):
        return [item["prompt"] for item in rollouts(client, run, **params)["items"]]

    assert prompts_with(min_reward=0.5) == ["1+1=?"]
    assert prompts_with(max_reward=0.5) == ["2+2=?"]
    assert prompts_with(flag="truncated") == ["2+2=?"]
    assert prompts_with(flag="trunc") == []
    assert prompts_with(correct="false") == ["2+2=?"]
    assert prompts_with(q="two. 100%") == ["1+1=?"]
    assert prompts_with(q="%") == ["1+1=?"]
    assert prompts_with(prompt="sums/2+2=?") == ["2+2=?"]
    assert prompts_with(sort="-reward") == ["1+1=?", "2+2=?"]
    assert prompts_with(sort="reward", limit=1) == ["2+2=?"]


def test_a_later_attempt_hides_the_groups_that_it_repeated(client, database, run):
    with database.sessions.begin() as session:
        make_attempt(session, run, 1, from_step=-1)
        make_attempt(session, run, 2, from_step=1)
        for step, attempt in ((1, 1), (2, 1), (2, 2)):
            make_group(session, run, step=step, attempt=attempt)
    attempts = [(item["step"], item["attempt"]) for item in rollouts(client, run)["items"]]
    assert attempts == [(1, 1), (2, 2)]


def test_a_page_is_limited_by_its_content_and_not_by_claimed_tokens(client, database, run, monkeypatch):
    monkeypatch.setattr(reading, "MAX_PAGE_TOKENS", 2_500)
    long_completion = MadeCompletion(text="x" * 4_000)
    groups = [MadeGroup(prompt_index=n, completions=(long_completion,)) for n in range(3)]
    packed_groups = pack_groups(run.id, 1, 1, groups, with_tokens=False)
    for group in packed_groups.groups:
        claimed_completions = [
            completion._replace(tokens=1) for completion in decode(group["id"], group["completions"])
        ]
        group["completions"] = encode(claimed_completions)
    with database.sessions.begin() as session:
        write_groups(session, packed_groups)
    assert len(rollouts(client, run, step=1)["items"]) == 2
    store_group(database, run, *(MadeGroup(prompt="p" * 8_000, prompt_index=n) for n in range(3)), step=2)
    assert len(rollouts(client, run, step=2)["items"]) == 1


DAMAGED_ZSTD = b"\x28\xb5\x2f\xfdbroken"


@pytest.fixture
def groups(database, run):
    """Two groups of a step."""
    with database.sessions.begin() as session:
        return [make_group(session, run, step=1, prompt_index=n, prompt=f"{n}+1=?") for n in range(2)]


@pytest.mark.parametrize("name", ["prompt", "answer"])
def test_a_group_with_a_damaged_text_reports_it_and_others_are_read(client, database, run, groups, name):
    with database.sessions.begin() as session:
        session.execute(update(RolloutGroup).where(RolloutGroup.id == groups[0]).values({name: DAMAGED_ZSTD}))
        session.execute(update(RunPrompt).where(RunPrompt.id == "sums/0+1=?").values({name: DAMAGED_ZSTD}))
    items = rollouts(client, run)["items"]
    assert [len(group["completions"]) for group in items] == [2, 2]
    assert [group[name] for group in items] == ["", {"prompt": "1+1=?", "answer": "2"}[name]]
    assert items[0]["damage"].startswith(f"its {name}: it cannot be unpacked")
    assert items[1]["damage"] == ""
    params = {"runs": run.id}
    lines = client.get("/api/v1/rollouts/search/export", params=params).content.splitlines()
    table = client.get("/api/v1/rollouts/search/export", params={**params, "file": "parquet"}).content
    for rows in (list(map(orjson.loads, lines)), pq.read_table(io.BytesIO(table)).to_pylist()):
        damaged_rows = sorted((row["prompt_index"], bool(row["damage"])) for row in rows)
        assert damaged_rows == [(0, True), (0, True), (1, False), (1, False)]
    prompts = client.get("/api/v1/rollouts/prompts", params={"run": run.id}).json()["items"]
    assert sorted(prompt[name] for prompt in prompts) == sorted(
        ["", {"prompt": "1+1=?", "answer": "2"}[name]]
    )
    rows = client.get("/api/v1/rollouts/prompts.jsonl", params={"run": run.id}).text.splitlines()
    assert [orjson.loads(row)["prompt"] for row in rows] == ["1+1=?"]


EMPTY_TOKENS = pack_tokens([])


@pytest.mark.parametrize("data", [DAMAGED_ZSTD, EMPTY_TOKENS], ids=["broken", "of no completion"])
def test_damaged_tokens_are_reported_and_their_neighbours_are_read(client, database, run, groups, data):
    with database.sessions.begin() as session:
        is_damaged = RolloutTokens.group_id == groups[0]
        session.execute(update(RolloutTokens).where(is_damaged).values(data=data))
    first, second = (
        client.get(f"/api/v1/rollouts/{group['completions'][0]['id']}/tokens").json()
        for group in rollouts(client, run)["items"]
    )
    assert (first["tokens"], bool(first["damage"])) == ([], True)
    assert (len(second["tokens"]) > 0, second["damage"]) == (True, "")
    for path in ("loss", "mismatch"):
        response = client.get(f"/api/v1/rollouts/{path}", params={"run": run.id, "step": 1})
        assert response.status_code in (200, 404)  # no log-probabilities of the trainer are recorded
    sums = client.get("/api/v1/rollouts/loss", params={"run": run.id, "step": 1}).json()
    assert [bool(group["damage"]) for group in sums["groups"]] == [data == DAMAGED_ZSTD, False]
    order = {"run": run.id, "step": 1, "variants": []}
    assert client.post("/api/v1/rollouts/what-if", json=order).status_code < 500
