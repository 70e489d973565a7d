"""Tests of run lists over HTTP: queries with totals, actions on many runs, and saved views."""

import pytest
from sqlalchemy import text

from backend.runs import bulk
from tests.factories import make_experiment, make_run

pytestmark = pytest.mark.both_databases


@pytest.fixture
def new_runs(database):
    """A function that makes runs in a separate transaction, and returns their ids by name."""

    def make(*names, **fields):
        with database.sessions.begin() as session:
            return {name: make_run(session, name=name, **fields).id for name in names}

    return make


def get(client, path, status=200, **params):
    response = client.get(f"/api/v1{path}", params=params)
    assert response.status_code == status, response.text
    return response.json()


def act_on_runs(client, action, status=200, **body):
    response = client.post("/api/v1/runs/actions", json={"action": action, **body})
    assert response.status_code == status, response.text
    return response.json()


def listed_names(client, **params):
    return {run["name"]: run for run in get(client, "/runs", **params)["items"]}


def test_a_list_has_the_total_on_its_first_page_and_all_ids_on_request(client, new_runs):
    ids = new_runs(*(f"run-{number}" for number in range(7)))
    new_runs("other", status="failed")
    page = get(client, "/runs", query="run", limit=3)
    assert (len(page["items"]), page["total"]) == (3, 7)
    next_page = get(client, "/runs", query="run", limit=3, cursor=page["next"])
    assert "total" not in next_page
    assert get(client, "/runs", query="status = failed")["total"] == 1
    assert get(client, "/runs", limit=200)["total"] == 8
    all_ids = [run["id"] for run in get(client, "/runs", query="run", limit=200)["items"]]
    assert get(client, "/runs/ids", query="run")["ids"] == all_ids
    assert sorted(all_ids) == sorted(ids.values())


def test_filters_offer_the_values_of_all_listed_runs_and_find_them_by_a_substring(client, database):
    with database.sessions.begin() as session:
        full_experiment, small_experiment = (
            make_experiment(session, name=name) for name in ("100% ablation", "lengths")
        )
        for seed in range(3):
            make_run(session, experiment_id=full_experiment.id, seed=seed, tags=["kept", "paper"])
        make_run(session, experiment_id=small_experiment.id, variant="dapo", tags=["kept"])
        make_run(session, experiment_id=small_experiment.id, variant="hidden", deleted_at=1.0)

    def values(**params):
        items = get(client, "/run-values", **params)["items"]
        return [(item["value"], item["label"], item["runs"]) for item in items]

    by_runs = [(full_experiment.id, "100% ablation", 3), (small_experiment.id, "lengths", 1)]
    assert values(field="experiment") == by_runs
    assert values(field="experiment", search="0% A") == by_runs[:1]
    assert values(field="variant") == [("grpo", "grpo", 3), ("dapo", "dapo", 1)]
    assert values(field="tag", experiment=small_experiment.id) == [("kept", "kept", 1)]
    assert values(field="tag", limit=1) == [("kept", "kept", 4)]


def test_a_list_marks_settings_that_differ_from_the_usual_ones(client, new_runs):
    config = {"preset": "grpo", "optimizer": {"lr": 0.03}, "rewards": [{"name": "think_format"}]}
    new_runs("changed", config=config, seed=5)
    new_runs("usual", config={"preset": "dapo"})
    new_runs("strange", origin="trl", config_hash="f" * 64, config={})
    runs = listed_names(client, include="changes")
    assert runs["changed"]["changes"] == {"optimizer.lr": 0.03, "rewards": ["think_format"]}
    assert runs["usual"]["changes"] == {}
    assert "changes" not in listed_names(client)["usual"]


def test_an_unreadable_query_is_refused_at_its_character(client):
    problem = get(client, "/runs", 422, query="reward/mean > high")
    (error,) = problem["errors"]
    assert error == {"path": "query", "message": "reward/mean is a number; got 'high'", "position": 14}


@pytest.mark.parametrize(
    ("action", "opposite", "params"),
    [
        ("tag", "untag", {"tag": "old"}),
        ("archive", "unarchive", {"archived": "true"}),
        ("trash", "restore", {"deleted": "true"}),
    ],
)
def test_an_action_is_idempotent_and_can_be_undone_exactly(client, new_runs, action, opposite, params):
    ids = new_runs("a", "b", "c")
    tag = {"tag": "old"} if action == "tag" else {}
    act_on_runs(client, action, ids=[ids["c"]], **tag)
    outcome = act_on_runs(client, action, ids=[*ids.values(), ids["a"], "nobody"], **tag)
    assert (outcome["matched"], sorted(outcome["changed"])) == (4, [ids["a"], ids["b"]])
    assert (outcome["missing"], outcome["refused"]) == (1, [])
    assert listed_names(client, **params).keys() == {"a", "b", "c"}
    assert act_on_runs(client, action, ids=list(ids.values()), **tag)["changed"] == []
    assert sorted(act_on_runs(client, opposite, ids=outcome["changed"], **tag)["changed"]) == [
        ids["a"],
        ids["b"],
    ]
    assert listed_names(client, **params).keys() == {"c"}


def test_an_action_on_a_query_changes_exactly_its_runs_in_batches(client, new_runs, monkeypatch):
    monkeypatch.setattr(bulk, "BATCH_SIZE", 3)
    new_runs(*(f"run-{number}" for number in range(8)), tags=["x"])
    new_runs("other")
    outcome = act_on_runs(client, "archive", query="run and tag = x")
    assert (outcome["matched"], len(outcome["changed"])) == (8, 8)
    assert listed_names(client).keys() == {"other"}
    assert act_on_runs(client, "unarchive", query="tag = x", archived=True)["matched"] == 8
    assert len(listed_names(client)) == 9


def test_a_database_failure_after_a_batch_is_reported_with_the_progress(
    client, new_runs, database, monkeypatch
):
    monkeypatch.setattr(bulk, "BATCH_SIZE", 2)
    ids = sorted(new_runs("a", "b", "c").values())
    act_on_batch = bulk._act_on_batch

    def fail(session, action, batch, tag, outcome):
        if ids[0] in batch:
            session.execute(text("SELECT * FROM no_such_table"))
        act_on_batch(session, action, batch, tag, outcome)

    monkeypatch.setattr(bulk, "_act_on_batch", fail)
    problem = act_on_runs(client, "archive", 503, ids=ids)
    assert "after 2 of 3 runs, which keep their change" in problem["detail"]
    assert listed_names(client).keys() == {"a"}
    monkeypatch.undo()
    assert act_on_runs(client, "archive", ids=ids)["changed"] == [ids[0]]


def test_runs_that_cannot_be_changed_are_named_with_a_reason(client, new_runs):
    tagged_run = new_runs("full", tags=[str(number) for number in range(50)])["full"]
    assert act_on_runs(client, "tag", ids=[tagged_run], tag="one more")["refused"] == [
        {"id": tagged_run, "name": "full", "reason": "a run has at most 50 tags"}
    ]
    assert "is not in the trash" in act_on_runs(client, "delete", ids=[tagged_run])["refused"][0]["reason"]
    waiting_run = new_runs("waiting")["waiting"]
    assert set(act_on_runs(client, "stop", ids=[waiting_run, tagged_run])["changed"]) == {
        tagged_run,
        waiting_run,
    }
    assert listed_names(client)["waiting"]["status"] == "stopped"


def test_a_running_run_in_the_trash_is_asked_to_stop_and_continues_when_restored(client, new_runs, database):
    run = new_runs("a", status="running", attempt=1)["a"]
    assert act_on_runs(client, "trash", ids=[run])["changed"] == [run]
    assert listed_names(client, deleted="true")["a"]["requested_action"] == "stop"
    act_on_runs(client, "restore", ids=[run])
    assert listed_names(client)["a"]["requested_action"] == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"action": "archive"}, "either ids or a query"),
        ({"action": "archive", "ids": [], "query": "a"}, "either ids or a query"),
        ({"action": "tag", "ids": []}, "expected a tag"),
        ({"action": "archive", "ids": [], "tag": "x"}, "expected a tag"),
        ({"action": "archive", "query": ""}, "at least 1"),
        ({"action": "archive", "query": "name ="}, "expected a value"),
        ({"action": "vanish", "ids": []}, "action"),
        ({"action": "archive", "ids": ["x"] * 10_001}, "10000"),
    ],
)
def test_an_ambiguous_action_is_refused(client, body, reason):
    response = client.post("/api/v1/runs/actions", json=body)
    assert (response.status_code, reason in response.text) == (422, True), response.text


VIEW = {"name": "best dapo", "query": "preset = dapo", "sort": "-summary.reward/mean", "columns": ["verdict"]}


def save_view(client, status=200, **view):
    response = client.put("/api/v1/views", json=view)
    assert response.status_code == status, response.text
    return response.json()


def test_a_view_is_saved_replaced_listed_and_deleted(client):
    saved_view = save_view(client, **VIEW)
    assert {name: saved_view[name] for name in VIEW} == VIEW
    replaced_view = save_view(client, **VIEW | {"query": "preset = grpo", "group": "variant"})
    assert (replaced_view["id"], replaced_view["query"], replaced_view["group"]) == (
        saved_view["id"],
        "preset = grpo",
        "variant",
    )
    save_view(client, name="all")
    assert [view["name"] for view in get(client, "/views")["items"]] == ["all", "best dapo"]
    assert client.delete(f"/api/v1/views/{saved_view['id']}").json() == replaced_view
    assert client.delete(f"/api/v1/views/{saved_view['id']}").status_code == 404
