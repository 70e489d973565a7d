"""Tests of imports with several runs or with completions, over HTTP and in the database."""

import json
from urllib.parse import urlencode

import pytest
from sqlalchemy import func, select

from backend.runs.events import add_event
from backend.service.cli import main
from backend.storage.models import Event, Experiment, Run
from tests.factories import stored_completions

BINARY_HEADERS = {"Content-Type": "application/octet-stream"}
TWO_RUNS = "run,step,reward\na,1,0.25\nb,1,0.5\na,2,0.75\nb,2,1\n"
TWO_SEEDS = "seed,step,reward\n0,1,0.25\n1,1,0.75\n"
VERL_DUMP = "".join(
    json.dumps({"input": "1+1=", "output": text, "gts": "2", "score": score, "step": 3, "acc": score}) + "\n"
    for text, score in (("2", 1.0), ("<b>3</b>\x00", 0.0))
)


def send(client, content, *, headers=None, **params):
    query = urlencode({"file": "log.csv", **params})
    return client.post(
        f"/api/v1/imports?{query}", content=content.encode(), headers=BINARY_HEADERS | (headers or {})
    )


def count(client, table):
    with client.app.state.lab.sessions() as session:
        return session.scalar(select(func.count()).select_from(table))


def completions(client):
    with client.app.state.lab.sessions() as session:
        return len(stored_completions(session))


def test_each_run_of_a_file_becomes_a_run_of_one_experiment(client):
    preview = send(client, TWO_RUNS, dry_run="true").json()
    assert [(run["label"], run["is_chosen"], run["run"], run["rows"]) for run in preview["runs"]] == [
        ("a", True, None, 2),
        ("b", True, None, 2),
    ]
    assert count(client, Run) == 0
    imported_runs = send(client, TWO_RUNS).json()["runs"]
    runs = [client.get(f"/api/v1/runs/{imported_run['run']}").json() for imported_run in imported_runs]
    assert [(run["name"], run["variant"], run["summary"]["last"]) for run in runs] == [
        ("a", "a", {"reward/mean": 0.75}),
        ("b", "b", {"reward/mean": 1.0}),
    ]
    assert runs[0]["experiment"] == runs[1]["experiment"]


def test_one_run_of_a_file_can_be_chosen(client):
    document = send(client, TWO_RUNS, runs='["b"]', name="mine").json()
    assert [(run["label"], run["is_chosen"], bool(run["run"])) for run in document["runs"]] == [
        ("a", False, False),
        ("b", True, True),
    ]
    assert (document["name"], document["report"]["rows"], count(client, Run)) == ("mine", 2, 1)


def test_a_seed_column_makes_seeds_of_one_variant(client):
    imported_runs = send(client, TWO_SEEDS).json()["runs"]
    runs = [client.get(f"/api/v1/runs/{imported_run['run']}").json() for imported_run in imported_runs]
    assert [(run["variant"], run["seed"]) for run in runs] == [("log", 0), ("log", 1)]
    assert len({run["name"] for run in runs}) == 2


def test_the_same_key_creates_the_runs_of_a_file_once(client):
    responses = [send(client, TWO_RUNS, headers={"Idempotency-Key": "k"}).json()["runs"] for _ in range(2)]
    assert responses[0] == responses[1]
    assert count(client, Run) == 2


def test_nothing_is_stored_if_the_second_run_fails(client, monkeypatch):
    calls = iter([add_event])

    def fail_the_second_time(*args, **options):
        next(calls)(*args, **options)

    monkeypatch.setattr("backend.exchange.imports.store.add_event", fail_the_second_time)
    assert send(client, TWO_RUNS).status_code == 500
    assert count(client, Run) == count(client, Experiment) == 0


@pytest.mark.parametrize(
    ("params", "phrase"),
    [
        ({"runs": '["c"]'}, "the file has no run 'c', but 'a', 'b'"),
        ({"runs": "a"}, "expected a JSON list of labels"),
        ({"name": "x"}, "is for one run, and the file has 2: choose one of them with `runs`"),
        ({"seed": 1}, "is for one run"),
        ({"mapping": '{"none": "x"}'}, "there is no column 'none'"),
    ],
)
def test_a_wrong_choice_of_runs_is_refused(client, params, phrase):
    response = send(client, TWO_RUNS, **params)
    assert response.status_code == 422
    assert phrase in response.text


def test_completions_of_verl_become_rollouts_with_their_prompt_and_answer(client):
    run = send(client, VERL_DUMP, file="3.jsonl").json()["run"]
    [step] = client.get("/api/v1/rollouts/steps", params={"run": run}).json()["items"]
    assert step["step"] == 3
    [group] = client.get("/api/v1/rollouts", params={"run": run, "step": 3}).json()["items"]
    assert (group["prompt"], group["answer"], group["reward_mean"]) == ("1+1=", "2", 0.5)
    assert [completion["reward"] for completion in group["completions"]] == [1.0, 0.0]
    item = client.get(f"/api/v1/runs/{run}").json()
    assert item["summary"]["last"]["reward/accuracy"] == 0.5


def test_completions_can_be_added_to_an_imported_run_and_replaced(client):
    run = send(client, "step,reward\n1,0.5\n").json()["run"]
    for _ in range(2):
        response = send(client, VERL_DUMP, file="3.jsonl", into=run)
        assert (response.status_code, response.json()["run"]) == (201, run)
    assert completions(client) == 2
    item = client.get(f"/api/v1/runs/{run}").json()
    last = item["summary"]["last"]
    assert (item["last_step"], last["reward/mean"], last["text/structure_answerless"]) == (3, 0.5, 1.0)
    with client.app.state.lab.sessions() as session:
        messages = session.scalars(select(Event.message).order_by(Event.id)).all()
    assert messages[-1] == "2 completions imported from 3.jsonl"


LOOP, PROSE = "abc" * 200, "The sum of one and one is two, as a short addition shows at once."


def dump(step, *texts, **columns):
    rows = [
        {"input": "1+1=", "output": text, "gts": "2", "score": 0.0, "step": step} | columns for text in texts
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def curve(client, run, metric):
    """Return {step: value} of a metric."""
    body = client.get(f"/api/v1/runs/{run}/metrics.csv").text.splitlines()
    names, *rows = (line.split(",") for line in body)
    position = names.index(metric)
    return {int(row[0]): float(row[position]) for row in rows if row[position]}


def test_imported_completions_get_repetition_format_and_script_metrics(client):
    run = send(
        client, dump(1, PROSE, r"\boxed{2}") + dump(2, LOOP, "сумма") + dump(3, "2"), file="x.jsonl"
    ).json()["run"]
    assert curve(client, run, "text/structure_ok") == {1: 0.5, 2: 0.0, 3: 0.0}
    assert set(curve(client, run, "text/unusual_script_frac").values()) == {0.0}  # a prompt without letters
    repetition = curve(client, run, "text/repetition")
    assert repetition[1] < 0.1
    assert repetition[2] > 0.45
    unjudged_causes = {
        detector["cause"] for detector in client.get(f"/api/v1/runs/{run}/diagnosis").json()["unjudged"]
    }
    assert not unjudged_causes & {"repetition", "broken_format", "language_mix"}


def test_text_metrics_of_the_log_are_kept(client):
    log = "step,reward,text/repetition\n1,0.5,0.25\n2,0.5,0.25\n"
    run = send(client, log).json()["run"]
    assert send(client, dump(2, LOOP) + dump(3, LOOP), file="x.jsonl", into=run).status_code == 201
    values_by_step = curve(client, run, "text/repetition")
    assert (values_by_step[1], values_by_step[2]) == (0.25, 0.25)
    assert values_by_step[3] > 0.9
    assert curve(client, run, "text/structure_ok") == {2: 0.0, 3: 0.0}


def test_completions_added_to_a_step_count_with_the_stored_ones(client):
    run = send(client, "step,reward\n1,0.5\n").json()["run"]
    for texts in ((r"\boxed{2}",), ("2", "3", "4")):
        send(client, dump(1, *texts, input=str(texts)), file="x.jsonl", into=run)
    stored_groups = client.get("/api/v1/rollouts", params={"run": run}).json()["items"]
    expected = 0.0 if len(stored_groups) == 1 else 0.25  # the second file replaces one prompt
    assert curve(client, run, "text/structure_ok") == {1: expected}


def test_completions_cannot_be_added_to_a_run_that_was_not_imported(client):
    assert send(client, VERL_DUMP, into="0" * 26).status_code == 422
    assert "has no completions" in send(client, "step,reward\n1,1\n", into="0" * 26).text
    body = {"name": "mine", "variants": [{"name": "a"}], "seeds": [0]}
    [launched_run] = client.post("/api/v1/experiments", json=body).json()["runs"]
    launched_run = launched_run if isinstance(launched_run, str) else launched_run["id"]
    response = send(client, VERL_DUMP, into=launched_run)
    assert response.status_code == 409
    assert "completions are added to runs that were imported" in response.json()["detail"]
    assert completions(client) == 0


@pytest.mark.parametrize("database", ["sqlite_url", "postgres_url"])
def test_the_command_imports_runs_and_completions(request, settings, monkeypatch, tmp_path, capsys, database):
    monkeypatch.setenv("DATABASE_URL", request.getfixturevalue(database))
    monkeypatch.setenv("STATE_DIR", str(settings.state_dir))
    two_runs_log, dump = tmp_path / "two.csv", tmp_path / "3.jsonl"
    two_runs_log.write_text(TWO_RUNS)
    dump.write_text(VERL_DUMP)
    assert main(["import", str(two_runs_log), "--run", "b"]) == 0
    output = capsys.readouterr().out
    assert "a (2 rows, 0 completions) not chosen" in output
    run = output.rpartition("run b (")[2].partition(")")[0]
    assert main(["import", str(dump), "--into", run]) == 0
    assert "2 completions of 1 prompts are stored as rollouts." in capsys.readouterr().out
