"""Tests of counts over steps, evaluation probes and the atlas of prompts, by hand on both databases."""

import json

from sqlalchemy import delete

from backend.config.pass_rates import read_rates
from backend.rollouts.store import pack_groups, write_groups
from backend.storage.models import GroupTally
from tests.factories import MadeCompletion, MadeGroup

RIGHT_COMPLETION = MadeCompletion(reward=1.0, correct=True)
WRONG_COMPLETION = MadeCompletion(text="no", reward=0.0, correct=False, flags=("wrong",))
PAID_COMPLETION = MadeCompletion(text="no", reward=0.5, correct=False, flags=("wrong", "repetitive"))


def store_groups(database, run, *groups, step=1, attempt=1, counted=()):
    with database.sessions.begin() as session:
        write_groups(session, pack_groups(run.id, step, attempt, groups, counted_groups=counted))


def get_json(client, path, **params):
    response = client.get(f"/api/v1/rollouts/{path}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


def matching(client, run, *marks, **params):
    counts = get_json(client, "counts", run=run.id, mark=",".join(marks), **params)
    return [(item["step"], item["matching"], item["stored"], item["completions"]) for item in counts["items"]]


def test_completions_with_all_the_marks_are_counted_at_every_step(client, database, run):
    store_groups(
        database,
        run,
        MadeGroup(completions=(RIGHT_COMPLETION, WRONG_COMPLETION, PAID_COMPLETION, PAID_COMPLETION)),
        step=1,
    )
    store_groups(database, run, MadeGroup(completions=(RIGHT_COMPLETION, RIGHT_COMPLETION)), step=3)
    assert matching(client, run) == [(1, 4, 4, 4), (3, 2, 2, 2)]
    assert matching(client, run, "wrong") == [(1, 3, 3, 4), (3, 0, 0, 2)]
    assert matching(client, run, "wrong", "rewarded") == [(1, 2, 2, 4), (3, 0, 0, 2)]
    assert matching(client, run, "repetitive", "right") == [(1, 0, 0, 4), (3, 0, 0, 2)]
    assert matching(client, run, min_reward=0.5) == [(1, 3, 3, 4), (3, 2, 2, 2)]
    assert matching(client, run, "same_reward") == [(1, 0, 0, 4), (3, 2, 2, 2)]


def test_groups_that_are_not_stored_count_separately(client, database, run):
    left_out = MadeGroup(completions=(WRONG_COMPLETION, WRONG_COMPLETION), prompt_index=1, left_out="equal")
    store_groups(
        database, run, MadeGroup(completions=(WRONG_COMPLETION, RIGHT_COMPLETION)), counted=[left_out]
    )
    assert matching(client, run, "wrong") == [(1, 3, 1, 4)]
    assert matching(client, run, "left_out") == [(1, 2, 0, 4)]
    assert matching(client, run, "equal") == matching(client, run, "left_out")
    assert matching(client, run, "surplus") == [(1, 0, 0, 4)]


def question(name, *completions, index=0, kind="train"):
    return MadeGroup(prompt=name, completions=completions, prompt_index=index, kind=kind)


def test_the_atlas_separates_never_always_lost_and_learned(client, database, run):
    for step in range(1, 9):
        groups = [
            question("never", WRONG_COMPLETION, WRONG_COMPLETION, index=0),
            question("always", RIGHT_COMPLETION, RIGHT_COMPLETION, index=1),
            question(
                "lost",
                *(
                    (RIGHT_COMPLETION, WRONG_COMPLETION)
                    if step <= 4
                    else (WRONG_COMPLETION, WRONG_COMPLETION)
                ),
                index=2,
            ),
            question(
                "learned",
                *(
                    (WRONG_COMPLETION, WRONG_COMPLETION)
                    if step <= 6
                    else (RIGHT_COMPLETION, WRONG_COMPLETION)
                ),
                index=3,
            ),
        ]
        store_groups(database, run, *groups, step=step)
    single_question = question("once", MadeCompletion(correct=None, reward=None), index=4)
    store_groups(database, run, single_question, step=8)
    atlas = get_json(client, "prompts", run=run.id)
    by_name = {item["prompt"]: item for item in atlas["items"]}
    assert {name: item["state"] for name, item in by_name.items()} == {
        "never": "never", "always": "always", "lost": "lost", "learned": "learned", "once": "ungraded",
    }  # fmt: skip
    assert by_name["lost"]["windows"] == [0.5] * 4 + [0] * 4
    assert by_name["learned"]["drift"] == 0.5
    assert by_name["learned"]["rate"] == 2 / 16
    assert atlas["items"][0]["prompt"] == "lost"
    assert (atlas["first_step"], atlas["last_step"]) == (1, 8)
    never_right = get_json(client, "prompts", run=run.id, state="never")
    assert [item["prompt"] for item in never_right["items"]] == ["never"]
    assert never_right["matching"] == 1


def test_the_steps_of_one_prompt_are_listed(client, database, run):
    for step in (1, 2, 3):
        store_groups(database, run, question("often", RIGHT_COMPLETION), step=step)
    store_groups(database, run, question("once", WRONG_COMPLETION), step=4)
    items = get_json(client, "steps", run=run.id, prompt="sums/often")["items"]
    assert [item["step"] for item in items] == [1, 2, 3]


def test_a_selection_becomes_rows_that_name_their_source(client, database, run):
    store_groups(
        database, run, question("hard", WRONG_COMPLETION), question("easy", RIGHT_COMPLETION, index=1)
    )
    response = client.get("/api/v1/rollouts/prompts.jsonl", params={"run": run.id, "state": "never"})
    rows = [json.loads(line) for line in response.text.splitlines()]
    assert rows == [{"prompt": "hard", "answer": "2", "source_run": run.id, "source_prompt": "sums/hard"}]


def test_pass_rates_are_stored_for_later_runs_and_outlive_their_run(client, database, run, settings):
    hard_question, easy_question = (
        question("hard", WRONG_COMPLETION, WRONG_COMPLETION),
        question("easy", RIGHT_COMPLETION, WRONG_COMPLETION, index=1),
    )
    store_groups(
        database, run, hard_question, easy_question, question("once", MadeCompletion(correct=None), index=2)
    )
    response = client.post("/api/v1/rollouts/pass-rates", json={"run": run.id})
    assert response.status_code == 201, response.text
    stored_rates = response.json()
    assert (stored_rates["run"], stored_rates["run_name"], stored_rates["prompts"]) == (run.id, run.name, 2)
    assert client.post("/api/v1/rollouts/pass-rates", json={"run": run.id}).json() == stored_rates
    rates = read_rates(settings.datasets_dir, stored_rates["sha256"])
    assert rates.by_id == {"sums/hard": 0.0, "sums/easy": 0.5}
    assert (rates.rate("gone", " easy"), rates.rate("gone", "other")) == (0.5, None)

    with database.sessions.begin() as session:
        session.execute(delete(GroupTally).where(GroupTally.run_id == run.id))
    assert get_json(client, f"pass-rates/{stored_rates['sha256']}") == stored_rates
    body = {"base": {"data": {"pass_rates": stored_rates["sha256"], "min_pass_rate": 0.1}}}
    assert client.post("/api/v1/validate", json=body).status_code == 200


def test_probes_are_solved_lost_and_forgotten_at_their_steps(client, database, run):
    for step, completions in (
        (0, (WRONG_COMPLETION,)),
        (10, (RIGHT_COMPLETION,)),
        (20, (RIGHT_COMPLETION,)),
        (30, (WRONG_COMPLETION,)),
    ):
        store_groups(database, run, question("a", *completions, kind="eval"), step=step)
    store_groups(database, run, question("b", RIGHT_COMPLETION, kind="eval", index=1), step=20)
    probes = get_json(client, "probes", run=run.id)
    first_probe, second_probe = (item["runs"][0] for item in probes["items"])
    assert probes["runs"] == [{"id": run.id, "steps": [0, 10, 20, 30]}]
    assert first_probe == {
        "rates": [0, 1, 1, 0], "stored": [True] * 4, "first_solved": 10, "first_lost": 30, "forgotten": True,
    }  # fmt: skip
    assert second_probe["rates"] == [None, None, 1, None]
    assert not second_probe["forgotten"]
