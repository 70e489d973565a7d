"""Tests of runs over HTTP, on both databases."""

import json
from typing import Any

import pytest

from backend.http.paging import write_cursor
from backend.runs.events import add_event
from backend.runs.schemas import RunItem, RunPage
from backend.runs.store import append_log
from backend.storage.models import Checkpoint
from tests.factories import make_attempt, make_experiment, make_run


@pytest.fixture
def new_run(database):
    """A function that makes a run in a separate transaction."""

    def make(**fields):
        with database.sessions.begin() as session:
            return make_run(session, **fields)

    return make


def get(client, path, **params):
    response = client.get(f"/api/v1{path}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


def names(client, **params):
    return [item["name"] for item in get(client, "/runs", **params)["items"]]


def summary(**last: Any):
    return {"step": 1, "last": {"reward/mean": last["reward"]} if last else {}, "best": {}}


def test_a_listed_run_has_every_field_and_config_and_attempts_on_request(client, database):
    with database.sessions.begin() as session:
        experiment = make_experiment(session, name="sweep")
        run = make_run(
            session, experiment_id=experiment.id, tags=["a"], notes="n", summary=summary(reward=0.5)
        )
        make_attempt(session, run, 1, from_step=-1)
    page = get(client, "/runs")
    RunPage.model_validate(page)
    item = page["items"][0]
    assert (item["experiment"], item["experiment_name"]) == (experiment.id, "sweep")
    assert (item["tags"], item["notes"], item["summary"]["last"]) == (["a"], "n", {"reward/mean": 0.5})
    assert item["config_hash"] == run.config_hash
    assert "config" not in item
    assert "attempts" not in item
    full_item = get(client, "/runs", include="config,attempts")["items"][0]
    assert full_item["config"]["steps"] == 150
    assert full_item["attempts"][0]["from_step"] == -1
    run_json = get(client, f"/runs/{run.id}")
    assert run_json.pop("cost").keys() == {"slot_hours", "gpu_hours", "money", "judges"}
    assert run_json == full_item
    assert RunItem.model_validate(full_item).created_at.endswith("Z")


def test_runs_are_filtered_by_status_name_tag_variant_and_experiment(client, database, new_run):
    with database.sessions.begin() as session:
        experiment = make_experiment(session, name="sweep")
        make_run(session, name="calm-lynx", status="running", experiment_id=experiment.id, tags=["good one"])
    new_run(name="odd_heron", status="failed", variant="dapo", tags=["good"])
    new_run(name="oddXheron", archived_at=1.0)
    new_run(name="gone", deleted_at=1.0)
    assert names(client, status="running,queued") == ["calm-lynx"]
    assert names(client, query="D_H") == ["odd_heron"]
    assert names(client, query="APO") == ["odd_heron"]  # of the variant
    assert names(client, query="wee") == ["calm-lynx"]  # of the experiment
    assert names(client, tag="good") == ["odd_heron"]
    assert names(client, variant="dapo") == ["odd_heron"]
    assert names(client, experiment=experiment.id) == ["calm-lynx"]
    assert names(client, archived="true") == ["oddXheron"]
    assert names(client, deleted="true") == ["gone"]


def test_a_missing_or_nonfinite_value_sorts_last_in_both_directions(client, new_run):
    rewards: dict[str, dict[str, Any]] = {
        "a": {"reward": 0.2},
        "b": {},
        "c": {"reward": 0.9},
        "d": {"reward": "NaN"},
    }
    for name, last in rewards.items():
        new_run(name=name, summary=summary(**last))
    assert names(client, sort="summary.reward/mean")[:2] == ["a", "c"]
    assert names(client, sort="-summary.reward/mean")[:2] == ["c", "a"]


@pytest.mark.parametrize(
    "sort",
    [
        "created_at", "-created_at", "name", "-last_step", "summary.reward/mean", "-summary.reward/mean",
        "-summary.loss/total", "config.optimizer.lr", "-config.optimizer.lr", "config.objective.kl.coef",
        "config.preset", "-config.objective.kl.type",
    ],
)  # fmt: skip
def test_pages_contain_each_run_once_while_runs_are_added(client, new_run, sort):
    for number in range(7):
        last = {"reward/mean": number / 10, "loss/total": number // 2} if number % 3 else {}
        kl: dict[str, Any] = {"type": "k3", "coef": (1 + number) / 10} if number % 2 else {"type": "none"}
        config: dict[str, Any] = {
            "preset": ("grpo", "dapo")[number % 2],
            "optimizer": {"lr": (1 + number // 3) / 1e6},
        }
        config["objective"] = {"kl": kl}
        new_run(
            name=f"run-{number % 4}", last_step=number % 2, created_at=float(number), config=config,
            summary={"step": 1, "last": last, "best": {}},
        )  # fmt: skip
    ids_before = [item["id"] for item in get(client, "/runs", sort=sort)["items"]]
    listed_ids: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = get(client, "/runs", sort=sort, limit=2, cursor=cursor)
        listed_ids += [item["id"] for item in page["items"]]
        cursor = page["next"]
        new_run(name="zz", created_at=0.0 if sort.startswith("-") else 1e9)
        assert len(listed_ids) < 40
    assert [run for run in listed_ids if run in ids_before] == ids_before
    assert len(listed_ids) == len(set(listed_ids))


@pytest.mark.parametrize(
    ("params", "path", "phrase"),
    [
        ({"sort": "config.optimizer.rl"}, "sort", "there is no field"),
        ({"sort": "config"}, "sort", "created_at"),
        ({"sort": 'summary.a"b'}, "sort", "summary.<metric>"),
        ({"sort": "summary.rewrad/mean"}, "sort", "did you mean reward/mean"),
        ({"status": "crashed"}, "status", "'crashed'"),
        ({"cursor": "nonsense"}, "cursor", "not a cursor of this list"),
        ({"limit": "1000"}, "limit", "200"),
        ({"limit": "many"}, "limit", "'many'"),
    ],
)
def test_a_wrong_parameter_is_named_with_the_expectation(client, params, path, phrase):
    response = client.get("/api/v1/runs", params=params)
    assert response.status_code == 422
    error = response.json()["errors"][0]
    assert error["path"] == path
    assert phrase in error["message"]


@pytest.mark.parametrize(
    ("sort", "position"),
    [
        ("-created_at", ["text", "x"]),
        ("name", [1, "x"]),
        ("-created_at", [2**70, "x"]),
        ("-created_at", [1.5, "a\0"]),
        ("-created_at", [float("nan"), "a"]),
        ("-created_at", [True, "a"]),
        ("-created_at", [None, "a"]),
        ("last_step", [1e300, "a"]),
        ("last_step", [2**40, "a"]),
        ("seed", [1.5, "a"]),
        ("seed", [1]),
        ("summary.reward/mean", ["0.5", "a"]),
    ],
)
def test_a_forged_cursor_is_refused(client, new_run, sort, position):
    new_run()
    params = {"sort": sort, "cursor": write_cursor(position, order=sort)}
    response = client.get("/api/v1/runs", params=params)
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert error == {"path": "cursor", "message": "is not a cursor of this list"}


@pytest.mark.parametrize("position", [[2**40, 0], [1, 2**40], [True, 1], [1.5, 1]])
def test_an_output_cursor_out_of_range_is_refused(client, new_run, position):
    cursor = write_cursor(position, order="asc")
    response = client.get(f"/api/v1/runs/{new_run().id}/logs", params={"cursor": cursor})
    assert response.status_code == 422


def test_a_run_is_renamed_tagged_archived_and_its_history_is_kept(client, new_run):
    run = new_run()
    changes = {"name": "new name", "tags": ["x"], "notes": "because", "priority": 5, "archived": True}
    response = client.patch(f"/api/v1/runs/{run.id}", json=changes)
    assert response.status_code == 200
    assert changes.items() <= response.json().items()
    assert client.patch(f"/api/v1/runs/{run.id}", json={"archived": False}).json()["archived"] is False


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"status": "finished"}, "status"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"priority": 10**9}, "priority"),
        ({"tags": ["x"] * 51}, "tags"),
        ({"notes": "a\0b"}, "notes"),
        ({"name": "\ud800"}, "name"),
        ({"tags": ["fine", "\ud800"]}, "tags.1"),
        ({"priority": float("inf")}, "priority"),
        ({"priority": 2**70}, "priority"),
    ],
)
def test_an_invalid_change_is_refused_at_its_field(client, new_run, changes, path):
    run = new_run()
    content = json.dumps(changes)  # escaped, since an unpaired surrogate cannot be sent otherwise
    headers = {"Content-Type": "application/json"}
    response = client.patch(f"/api/v1/runs/{run.id}", content=content, headers=headers)
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert error["path"] == path


def test_a_queued_run_stops_immediately_and_can_be_resumed(client, new_run):
    run = new_run()
    post = lambda verb: client.post(f"/api/v1/runs/{run.id}/{verb}")  # noqa: E731
    assert (post("pause").json()["status"], post("pause").status_code) == ("paused", 409)
    assert post("resume").json()["status"] == "queued"
    assert (post("stop").status_code, post("stop").status_code) == (202, 409)
    assert post("retry").json()["status"] == "queued"
    problem = post("resume").json()
    assert problem["title"] == "Conflict"
    assert problem["detail"] == f"run {run.id!r} is queued; resume needs a run that is paused or stopped"


def test_a_running_run_continues_until_its_step_ends_after_a_request(client, new_run):
    run = new_run(status="running", lease_until=4e9)
    document = client.post(f"/api/v1/runs/{run.id}/stop").json()
    assert (document["status"], document["requested_action"]) == ("running", "stop")


def test_the_trash_keeps_a_run_until_it_is_restored(client, new_run):
    run = new_run()
    assert client.delete(f"/api/v1/runs/{run.id}").json()["deleted"] is True
    assert names(client) == []
    assert client.post(f"/api/v1/runs/{run.id}/restore").json()["deleted"] is False
    assert names(client) == [run.name]


def test_a_clone_is_queued_with_the_same_config_and_its_changes(client, new_run):
    run = new_run(seed=3, config={"steps": 20})
    body = {"changes": {"sampling": {"group_size": 4}}}
    clone = client.post(f"/api/v1/runs/{run.id}/clone", json=body).json()
    assert clone["id"] != run.id
    assert clone["status"] == "queued"
    assert (clone["config"]["steps"], clone["config"]["seed"]) == (20, 3)
    assert clone["config"]["sampling"]["group_size"] == 4
    reseeded = client.post(f"/api/v1/runs/{run.id}/clone", json={"changes": {"seed": 7}}).json()
    assert (reseeded["seed"], reseeded["config"]["seed"]) == (7, 7)
    rejected_response = client.post(f"/api/v1/runs/{run.id}/clone", json={"changes": {"steps": -1}})
    assert rejected_response.json()["errors"][0]["path"] == "steps"


def test_a_checkpoint_is_evaluated_by_a_run_without_steps(client, database, new_run):
    run = new_run(seed=5, config={"steps": 20})
    with database.sessions.begin() as session:
        for step in (10, 20):
            session.add(
                Checkpoint(
                    run_id=run.id,
                    step=step,
                    attempt=1,
                    path=f"s{step}",
                    sha256="",
                    bytes_total=0,
                    manifest={},
                )
            )
    path = f"/api/v1/runs/{run.id}/evaluations"
    response = client.post(path, json={"step": 10, "prompts": 7, "k": 3})
    assert response.status_code == 202
    child = response.json()
    assert (child["status"], child["parent_run"], child["fork_step"]) == ("queued", run.id, 10)
    assert (child["config"]["steps"], child["config"]["seed"]) == (0, 5)
    assert child["config"]["evaluation"] == {
        "every": 1,
        "prompts": 7,
        "k": 3,
        "effort": False,
        "suites": [],
    }
    assert client.post(path).json()["fork_step"] == 20
    assert client.post(path, json={"step": 15}).json()["errors"] == [
        {
            "path": "step",
            "message": f"{run.name} has no checkpoint of step 15; it has checkpoints of steps: 10, 20",
        }
    ]
    assert client.post(path, json={"k": 0}).json()["errors"][0]["path"] == "k"
    assert client.post("/api/v1/runs/nothing/evaluations").status_code == 404


def test_events_and_output_are_paged_in_order(client, database, new_run):
    run = new_run()
    with database.sessions.begin() as session:
        for number in range(5):
            add_event(session, "alert", f"event {number}", run_id=run.id, level="error", data={"n": number})
            append_log(session, run.id, 1, number, f"line {number}\n")
        append_log(session, run.id, 1, 0, "again\n")
    page = get(client, f"/runs/{run.id}/events", limit=3)
    next_page = get(client, f"/runs/{run.id}/events", cursor=page["next"])
    messages = [event["message"] for event in page["items"] + next_page["items"]]
    assert messages == [f"event {number}" for number in range(5)]
    assert next_page["next"] is None
    first = get(client, f"/runs/{run.id}/logs", limit=2)
    assert [chunk["text"] for chunk in first["items"]] == ["line 0\n", "line 1\n"]
    assert get(client, f"/runs/{run.id}/logs", cursor=first["next"])["items"][0]["number"] == 2
    newest_page = get(client, f"/runs/{run.id}/logs", order="desc", limit=1)
    assert newest_page["items"][0]["number"] == 4
    assert (
        get(client, f"/runs/{run.id}/logs", order="desc", limit=1, cursor=newest_page["next"])["items"][0][
            "number"
        ]
        == 3
    )


def test_checkpoint_files_are_downloaded_only_by_their_listed_names(client, database, new_run, settings):
    run = new_run()
    folder = settings.artifact_dir(run.id) / "s000010-a1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "secret.txt").write_text("not listed")
    (folder / "link").symlink_to("/etc/hostname")
    with database.sessions.begin() as session:
        row = {"path": "s000010-a1", "sha256": "0" * 64, "bytes_total": 2}
        manifest = {"files": ["config.json", "link", "../../../token"], "accuracy": 0.5}
        session.add(Checkpoint(run_id=run.id, step=10, attempt=1, manifest=manifest, **row))
    item = get(client, f"/runs/{run.id}/checkpoints")["items"][0]
    assert (item["step"], item["accuracy"]) == (10, 0.5)
    response = client.get(f"/api/v1/runs/{run.id}/files/{item['files'][0]['name']}")
    assert response.content == b"{}"
    assert response.headers["content-disposition"].startswith("attachment")
    for name in ("secret.txt", "link", "../token", "..%2ftoken", "../../../token", "/etc/hostname"):
        assert client.get(f"/api/v1/runs/{run.id}/files/s000010-a1/{name}").status_code == 404
    assert client.get(f"/api/v1/runs/{run.id}/files//etc/hostname").status_code == 404


def test_the_queue_shows_the_order_and_the_reason_why_runs_wait(client, new_run):
    new_run(name="second", queued_at=20.0)
    new_run(name="first", queued_at=30.0, priority=1)
    new_run(name="later", queued_at=10.0, priority=-1, run_after=4e9, own_failures=1)
    page = get(client, "/queue", limit=2)
    items = page["items"] + get(client, "/queue", cursor=page["next"])["items"]
    assert [(item["position"], item["name"]) for item in items] == [(1, "first"), (2, "second"), (3, "later")]
    assert items[0]["why"] == "a worker (none is running)"
    assert items[2]["why"].endswith("1 failed so far")
