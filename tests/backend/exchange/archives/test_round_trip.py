"""Tests that archives of runs are imported bit by bit, and that hostile archives are refused."""

import io
import json
import math
import shutil
import tarfile
from hashlib import sha256
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select, update

from backend.config.run import RunConfig
from backend.exchange.archives.contents import LABELS, MANIFEST, PROMPTS, TABLES, TALLIES
from backend.exchange.imports.run_archive import rollouts as archived_rollouts
from backend.metrics.sealing import find_sealable, seal
from backend.rollouts.labels import LabelRequest, put_label
from backend.rollouts.store import pack_groups, write_groups
from backend.runs.events import add_event
from backend.service.cli import main
from backend.storage.engine import open_read_session
from backend.storage.models import (
    Checkpoint,
    Event,
    Metric,
    MetricBlock,
    RolloutGroup,
    RolloutTokens,
    Run,
    RunPrompt,
)
from tests.factories import (
    MadeCompletion,
    MadeGroup,
    make_attempt,
    make_checkpoint,
    make_experiment,
    make_group,
    make_run,
    stored_completions,
    write_metric,
)
from tests.gate import first_in_gate

TRUNCATED_ZSTD = b"\x28\xb5\x2f\xfdbroken"
UNUSUAL_TEXT = "a\0b\ud83d, 答え <script>"
TURN = {
    "tool": "python",
    "outcome": "failed",
    "seconds": 0.25,
    "is_cut": True,
    "call": [0, 2],
    "observation": [2, 5],
    "tokens": [2, 5],
}
VALUE_BY_STEP = {0: 0.1, 1: math.nan, 2: math.inf, 3: -math.inf, 4: -0.0, 5: 1e-320, 9: 0.30000000000000004}


def make_full_run(client, settings, **fields):
    """Make a run with data of every kind and two attempts, the second of which resumed after step 3."""
    with client.app.state.lab.sessions.begin() as session:
        experiment = make_experiment(session)
        columns = {"status": "finished", "last_step": 9, "attempt": 2, "experiment_id": experiment.id}
        columns |= {"notes": "two\nlines", "tags": ["a"], "started_at": 1000.25, "finished_at": 2000.5}
        run = make_run(session, **columns | fields)
        for number, from_step in ((1, -1), (2, 3)):
            attempt = make_attempt(session, run, number, from_step=from_step)
            attempt.versions, attempt.ended_at, attempt.started_at = {"torch": "2.13"}, 2000.5, 1000.25
        for step, metric_value in VALUE_BY_STEP.items():
            write_metric(session, run, "reward/mean", {step: metric_value}, attempt=1 if step <= 3 else 2)
        write_metric(session, run, "loss/total", {4: 7.0, 5: 8.0}, attempt=1)  # hidden by the second attempt
        strange_completion = MadeCompletion(
            text=UNUSUAL_TEXT,
            reward=math.nan,
            advantage=-0.0,
            rewards={"x": math.inf, "y": None},
            turns=(TURN,),
        )
        session.flush()
        make_group(
            session,
            run,
            step=2,
            attempt=1,
            prompt=UNUSUAL_TEXT,
            completions=(MadeCompletion(), strange_completion),
        )
        make_group(session, run, step=5, attempt=2, kind="eval", tokens=False)
        make_group(session, run, step=5, attempt=1)  # hidden
        unstored = MadeGroup(
            prompt=UNUSUAL_TEXT + "?", prompt_index=7, left_out="equal", completions=(strange_completion,) * 3
        )
        left_out = MadeGroup(prompt_index=8, left_out="surplus")
        write_groups(session, pack_groups(run.id, 6, 2, [left_out], counted_groups=[unstored]))
        probe = MadeGroup(prompt="probe", kind="eval", prompt_index=1)
        write_groups(session, pack_groups(run.id, 9, 2, [], counted_groups=[probe]))
        write_groups(
            session, pack_groups(run.id, 8, 1, [], counted_groups=[MadeGroup(prompt_index=3)])
        )  # hidden
        labelled_rollout = next(
            completion.id for completion in stored_completions(session) if completion.reward is None
        )
        put_label(session, labelled_rollout, LabelRequest(label="weird", note="答え\n<b>"), "operator")
        add_event(session, "checkpoint", "continued", run_id=run.id, step=3, attempt=2, data={"n": 0.5})
        make_checkpoint(session, run, settings.state, step=9, attempt=2, content=b"\0\1weights")
        return run.id


def download_archive(client, run, **params):
    response = client.get(f"/api/v1/runs/{run}/archive", params={"checkpoints": "true"} | params)
    assert response.status_code == 200, response.text
    return response.content


def read_archive_files(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def make_tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def sign_archive(files):
    """Return an archive of these files with a manifest that matches them."""
    manifest = json.loads(files[MANIFEST])
    members = {name: content for name, content in files.items() if name != MANIFEST}
    manifest["files"] = {
        name: {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        for name, content in members.items()
    }
    return make_tar({MANIFEST: json.dumps(manifest).encode(), **members})


def send(client, content, *, headers=None, **params):
    kind = {"Content-Type": "application/octet-stream"}
    query = urlencode({"file": "run.tar", **params})
    return client.post(f"/api/v1/imports?{query}", content=content, headers=kind | (headers or {}))


def import_archive(client, content, **params):
    response = send(client, content, **params)
    assert response.status_code == 201, response.text
    return response.json()["run"]


def test_an_archive_that_is_imported_and_archived_again_is_the_same(client, settings):
    run = make_full_run(client, settings)
    first = read_archive_files(download_archive(client, run))
    copy = import_archive(client, download_archive(client, run), experiment="elsewhere")
    second = read_archive_files(download_archive(client, copy))
    assert first.keys() == second.keys()
    assert list(first) == [MANIFEST, *TABLES, *(name for name in first if name.startswith("checkpoints/"))]
    for name in first.keys() - {MANIFEST, "run.json", "events.jsonl"}:
        assert first[name] == second[name], name
    first_run, second_run = json.loads(first["run.json"]), json.loads(second["run.json"])
    assert {k: v for k, v in first_run.items() if v != second_run[k]}.keys() <= {"experiment", "verdict"}
    lines, lines_again = first["events.jsonl"].splitlines(), second["events.jsonl"].splitlines()
    assert lines_again[:-1] == lines
    assert json.loads(lines_again[-1])["message"].startswith(
        "imported from an archive of GRPO Lab, run.tar: 7 values"
    )


def test_an_imported_run_shows_what_the_first_one_shows(client, settings):
    run = make_full_run(client, settings)
    copy = import_archive(client, download_archive(client, run))
    run_answers = [client.get(f"/api/v1/runs/{run_id}").json() for run_id in (run, copy)]
    assert (run_answers[1]["origin"], run_answers[1]["name"]) == ("grpolab", "brave-otter 2")
    assert [attempt["from_step"] for attempt in run_answers[1]["attempts"]] == [-1, 3]
    for name in ("config", "config_hash", "summary", "status", "last_step", "tags", "notes", "started_at"):
        assert run_answers[0][name] == run_answers[1][name], name
    for path in ("metrics.csv", "metrics.csv?attempts=newest"):
        assert len({client.get(f"/api/v1/runs/{run_id}/{path}").text for run_id in (run, copy)}) == 1
    groups = [
        client.get("/api/v1/rollouts", params={"run": run_id}).json()["items"] for run_id in (run, copy)
    ]
    texts = [[c["text"] for group in stored_groups for c in group["completions"]] for stored_groups in groups]
    assert texts[0] == texts[1]
    blocks = [
        [c["blocks"] for group in stored_groups for c in group["completions"]] for stored_groups in groups
    ]
    assert blocks[0] == blocks[1]
    assert any(blocks[0])
    assert len(texts[0]) == 6
    tokens = [
        [client.get(f"/api/v1/rollouts/{c['id']}/tokens").json() for c in stored_groups[0]["completions"]]
        for stored_groups in groups
    ]
    for run_tokens, copy_tokens in zip(*tokens, strict=True):
        assert {k: v for k, v in run_tokens.items() if k != "id"} == {
            k: v for k, v in copy_tokens.items() if k != "id"
        }


def test_a_secret_in_an_archive_is_not_stored(client):
    secret = "hf_" + "c" * 34
    with client.app.state.lab.sessions.begin() as session:
        run = make_run(session, status="finished", last_step=2, name=secret, notes=secret, tags=[secret])
        make_attempt(session, run, 1, from_step=-1)
        write_metric(session, run, "loss/total", {1: 1.0})
        secret_completion = MadeCompletion(text=f"it is {secret}", rewards={secret: 1.0}, turns=(TURN,))
        session.flush()
        make_group(
            session,
            run,
            step=2,
            prompt=secret,
            answer=secret,
            completions=(MadeCompletion(), secret_completion),
        )
        completion = next(
            completion.id for completion in stored_completions(session) if secret in completion.text
        )
        session.flush()
        put_label(
            session, completion, LabelRequest.model_construct(label="x", note=secret, version=0), "operator"
        )
        add_event(session, "data", "told", run_id=run.id, data={secret: secret})
        run_id = run.id
    copy = import_archive(client, download_archive(client, run_id))
    texts = [client.get(f"/api/v1/runs/{copy}{path}").text for path in ("", "/events")]
    rollouts = client.get("/api/v1/rollouts", params={"run": copy})
    texts += [rollouts.text, client.get("/api/v1/rollouts/prompts", params={"run": copy}).text]
    texts += [
        text.decode(errors="replace") for text in read_archive_files(download_archive(client, copy)).values()
    ]
    assert not [text for text in texts if secret in text]
    plain_completion, secret_completion = rollouts.json()["items"][0]["completions"]
    assert secret_completion["text"] == "it is [secret]"
    tokens = [
        client.get(f"/api/v1/rollouts/{completion['id']}/tokens")
        for completion in (plain_completion, secret_completion)
    ]
    assert "".join(tokens[0].json()["tokens"]) == plain_completion["text"], tokens[0].text
    assert tokens[1].json()["tokens"] == []


@pytest.mark.nightly
def test_counts_prompts_and_labels_are_those_of_the_first_run(client, settings):
    run = make_full_run(client, settings)
    copy = import_archive(client, download_archive(client, run))
    for path, params in (
        ("counts", {"mark": "left_out"}),
        ("counts", {"mark": "equal"}),
        ("counts", {"kind": "eval"}),
        ("prompts", {}),
        ("probes", {}),
    ):
        responses = [
            client.get(f"/api/v1/rollouts/{path}", params={"run": run_id, **params}).json()
            for run_id in (run, copy)
        ]
        comparable_answers = [
            {key: value for key, value in answer.items() if key != "runs"} for answer in responses
        ]
        assert comparable_answers[0] == comparable_answers[1], path
        assert comparable_answers[0]["items"], path
    labelled_completions = [
        client.get("/api/v1/rollouts/search", params={"runs": run_id, "label": "weird"}).json()["items"]
        for run_id in (run, copy)
    ]
    assert labelled_completions[0][0]["labels"] == labelled_completions[1][0]["labels"]
    assert labelled_completions[1][0]["labels"][0]["note"] == "答え\n<b>"
    assert labelled_completions[0][0]["id"] != labelled_completions[1][0]["id"]
    left_out = client.get("/api/v1/rollouts", params={"run": copy, "step": 6}).json()["items"]
    assert [group["left_out"] for group in left_out] == ["surplus"]


def read_member_table(files, name):
    return pq.read_table(io.BytesIO(files[name]))


def make_parquet(table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


LABEL = {"rollout": 0, "label": "good", "note": "", "role": "operator", "version": 1, "changed_at": 5.0}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([LABEL | {"rollout": 99}], "names row 99 of rollouts.parquet"),
        ([LABEL, LABEL], "has a label twice"),
        ([LABEL | {"label": "x" * 41}], "is not a label (label"),
        ([LABEL | {"note": "\0"}], "is not a label"),
        ([LABEL | {"role": "<b>"}], "is not a label (role"),
        ([LABEL | {"version": 0}], "is not a label (version"),
        ([LABEL | {"more": 1}], "is not a label (more"),
        (["no object"], "is not a label"),
    ],
)
def test_invalid_labels_are_refused_and_nothing_is_stored(client, settings, labels, reason):
    files = read_archive_files(download_archive(client, make_full_run(client, settings)))
    lines = "".join(json.dumps(label) + "\n" for label in labels)
    response = send(client, sign_archive(files | {LABELS: lines.encode()}))
    assert response.status_code == 422
    assert reason in response.text
    with client.app.state.lab.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 1


def test_secrets_are_replaced_in_the_json_of_an_archive(client, settings):
    secret = "hf_" + "d" * 34
    escaped_secret = "".join(f"\\u{ord(letter):04x}" for letter in secret)
    rewards = f'{{"{escaped_secret}":1,"http://a:1":2,"b@c":3}}'
    turns = json.dumps([TURN | {"tool": "here"}]).replace("here", escaped_secret)
    change = cells(row=1, rewards=rewards, flags=f'["{escaped_secret}"]', turns=turns)
    files = read_archive_files(download_archive(client, make_full_run(client, settings)))
    content = sign_archive(files | {"rollouts.parquet": change(files["rollouts.parquet"])})
    rows = read_member_table(
        read_archive_files(download_archive(client, import_archive(client, content))), "rollouts.parquet"
    ).to_pylist()
    stored_cells = {name: json.loads(rows[1][name]) for name in ("rewards", "flags", "turns")}
    assert stored_cells == {
        "rewards": {"[secret]": 1.0, "http://a:1": 2.0, "b@c": 3.0},
        "flags": ["[secret]"],
        "turns": [TURN | {"tool": "[secret]"}],
    }


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "column", "value", "reason"),
    [
        (TALLIES, "marks", 1 << 16, "has marks that"),
        (TALLIES, "marks", 1 << 40, "marks"),
        (TALLIES, "completions", -1, "completions"),
        (TALLIES, "completions", 2**20, "a whole number up to 1,048,575 as completions"),
        (TALLIES, "attempt", 7, "has attempt 7"),
        (TALLIES, "kind", "evil", "unknown kind"),
        (TALLIES, "prompt_id", None, "without a text"),
        (PROMPTS, "prompt", None, "lacks a text"),
        ("rollouts.parquet", "left_out", "because", "unknown reason"),
    ],
)
def test_invalid_cells_are_refused_by_name(client, settings, name, column, value, reason):
    files = read_archive_files(download_archive(client, make_full_run(client, settings)))
    table = read_member_table(files, name)
    position = table.column_names.index(column)
    changed_table = table.set_column(
        position, table.schema.field(column), pa.array([value] * len(table), table.schema.field(column).type)
    )
    response = send(client, sign_archive(files | {name: make_parquet(changed_table)}))
    assert response.status_code == 422
    assert reason in response.text


def test_a_restored_checkpoint_is_where_a_fork_looks_for_it(client, settings):
    run = make_full_run(client, settings)
    copy = import_archive(client, download_archive(client, run))
    [item] = client.get(f"/api/v1/runs/{copy}/checkpoints").json()["items"]
    assert (item["step"], item["name"]) == (9, "s000009-a2")
    file = client.get(f"/api/v1/runs/{copy}/files/s000009-a2/model.safetensors")
    assert file.content == b"\0\1weights"
    assert not list(settings.artifact_dir(copy).glob(".*"))
    response = client.post(f"/api/v1/runs/{copy}/fork", json={"step": 9})
    assert response.status_code == 202, response.text
    resume_response = client.post(f"/api/v1/runs/{copy}/resume")
    assert resume_response.status_code == 409
    assert "it cannot be resumed, but it can be forked" in resume_response.json()["detail"]


@pytest.mark.nightly
def test_without_checkpoints_the_report_says_that_there_are_none(client, settings):
    run = make_full_run(client, settings)
    answer = send(client, download_archive(client, run, checkpoints="false"), dry_run="true").json()
    assert (
        answer["report"]["notes"][1]
        == "The archive has no checkpoints: the run cannot be forked or evaluated."
    )
    assert (answer["run"], answer["report"]["format"], answer["report"]["points"]) == (None, "grpolab", 7)


def test_the_same_key_imports_an_archive_once(client, settings):
    content = download_archive(client, make_full_run(client, settings))
    first, second = (send(client, content, headers={"Idempotency-Key": "k"}).json() for _ in range(2))
    assert (first["run"], first["name"]) == (second["run"], second["name"])
    with client.app.state.lab.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 2


@pytest.mark.nightly
def test_the_history_of_an_archive_triggers_no_webhook(client, settings):
    from backend.service.webhook.sender import _archived_runs

    copy = import_archive(client, download_archive(client, make_full_run(client, settings)))
    with client.app.state.lab.sessions() as session:
        events = list(session.scalars(select(Event)))
        assert _archived_runs(session, events) == {copy}


def test_an_archived_running_run_is_stopped_after_its_import(client, settings):
    run = make_full_run(client, settings, status="running")
    copy = import_archive(client, download_archive(client, run))
    run_json = client.get(f"/api/v1/runs/{copy}").json()
    assert (run_json["status"], run_json["reason"]) == ("stopped", "was running when it was archived")


def test_a_run_that_has_not_started_has_no_archive(client):
    with client.app.state.lab.sessions.begin() as session:
        run = make_run(session).id
    response = client.get(f"/api/v1/runs/{run}/archive")
    assert response.status_code == 409
    assert "has not begun" in response.json()["detail"]


def change_file(name, change):
    return lambda files: files | {name: change(files[name])}


def change_document(**fields):
    return lambda content: json.dumps(json.loads(content) | fields).encode()


def renamed(files):
    return {
        name.replace("checkpoints/s000009-a2/model", "checkpoints/../../model"): c
        for name, c in files.items()
    }


def change_checkpoint(content):
    return change_document(checkpoints=[json.loads(content)["checkpoints"][0] | {"name": "s000001-a1"}])(
        content
    )


def cells(*, row=0, **values):
    """Return a function that changes the values of a row in Parquet."""

    def change(content):
        table = pq.read_table(io.BytesIO(content))
        rows = table.to_pylist()
        rows[row] |= values
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), buffer)
        return buffer.getvalue()

    return change


def first_group_twice(content):
    """Return the Parquet with the first two rows, one group, repeated at the end with other texts."""
    table = pq.read_table(io.BytesIO(content))
    rows = table.to_pylist()
    repeated_rows = [row | {"text": "other", "tokens": 0} for row in rows[:2]]
    return make_parquet(pa.Table.from_pylist(rows + repeated_rows, schema=table.schema))


def add_pickle_to_checkpoint(files):
    """Return the archive with a pickle that the checkpoint's manifest lists."""
    directory, pickle = "checkpoints/s000009-a2", b"\x80\x04."
    manifest = json.loads(files[f"{directory}/manifest.json"])
    manifest["files"]["optimizer.pt"] = {"bytes": len(pickle), "sha256": sha256(pickle).hexdigest()}
    return with_manifest(files | {f"{directory}/optimizer.pt": pickle}, manifest)


def wrong_digest(files):
    """Return the archive with a wrong digest of the weights in the checkpoint's manifest."""
    manifest = json.loads(files["checkpoints/s000009-a2/manifest.json"])
    manifest["files"]["model.safetensors"]["bytes"] += 1
    return with_manifest(files, manifest)


def config_of_a_checkpoint(content):
    """Return a function that replaces config.json in the checkpoint and in all manifests."""

    def change(files):
        directory = "checkpoints/s000009-a2"
        manifest = json.loads(files[f"{directory}/manifest.json"])
        manifest["files"]["config.json"] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        return with_manifest(files | {f"{directory}/config.json": content}, manifest)

    return change


def with_manifest(files, manifest):
    content, run = json.dumps(manifest).encode(), json.loads(files["run.json"])
    run["checkpoints"][0]["sha256"] = sha256(content).hexdigest()
    added_files = {"checkpoints/s000009-a2/manifest.json": content, "run.json": json.dumps(run).encode()}
    return files | added_files


HOSTILE_ARCHIVES = {
    "a pickle in a checkpoint": (add_pickle_to_checkpoint, "names a file that no archive of a run has"),
    "a checkpoint's manifest that lies": (wrong_digest, "other files than its manifest names"),
    "a config of a checkpoint that brings code": (
        config_of_a_checkpoint(b'{"model_type": "llama", "auto_map": {"AutoModel": "evil.Model"}}'),
        "requires custom code",
    ),
    "a path that leads out": (renamed, "names a file that no archive of a run has"),
    "a row of megabytes": (change_file("rollouts.parquet", cells(text="x" * 700_001)), "at most 700,000"),
    "no Parquet": (change_file("metrics.parquet", lambda _: b"PAR1 and no more PAR1"), "is damaged"),
    "another config": (
        change_file("run.json", change_document(config={"evil": 1})),
        "has a config that this version",
    ),
    "deep JSON": (change_file("run.json", lambda _: b'{"a":' + b"[" * 100_000), "is damaged"),
    "a summary of other types": (
        change_file(
            "run.json", change_document(summary={"step": 9, "last": {}, "best": {"reward/mean": "x"}})
        ),
        "summary.best.reward/mean",
    ),
    "deep rewards": (change_file("rollouts.parquet", cells(rewards="[" * 100_000)), "nested too deeply"),
    "a reason with NUL": (change_file("rollouts.parquet", cells(finish_reason="\0")), "reason to finish"),
    "a group that comes twice": (
        change_file("rollouts.parquet", first_group_twice),
        "row 6 of rollouts.parquet repeats prompt 0 of step 2 (train)",
    ),
    "a token that is no text": (
        change_file("tokens.parquet", cells(token_exact=b"\xff")),
        "has a token that is not text",
    ),
    "a huge config of a checkpoint": (
        config_of_a_checkpoint(b'{"a": "' + b"x" * 4_000_000 + b'"}'),
        "its config.json is not a JSON object of at most 4,000,000 bytes",
    ),
    "a deep config of a checkpoint": (
        config_of_a_checkpoint(b'{"a":' * 60 + b"1" + b"}" * 60),
        "its config.json is not a JSON object of at most 4,000,000 bytes and 50 levels",
    ),
    "a bottomless config of a checkpoint": (
        config_of_a_checkpoint(b'{"a":' + b"[" * 1_000_000),
        "its config.json is not a JSON object",
    ),
    "another version": (change_file(MANIFEST, change_document(format=3)), "format 3, this version reads 2"),
    "a file too many": (lambda files: files | {"evil.py": b""}, "names a file that no archive of a run has"),
    "no metrics": (lambda files: {n: c for n, c in files.items() if n != "metrics.parquet"}, "is missing"),
    "another table": (lambda files: files | {"metrics.parquet": files["tokens.parquet"]}, "has no column"),
    "an unknown field": (change_file("run.json", change_document(evil=1)), "Extra inputs are not permitted"),
    "another trainer": (change_file("run.json", change_document(origin="evil")), "does not know"),
    "no attempts": (change_file("run.json", change_document(attempts=[])), "attempts"),
    "an event that is none": (
        change_file("events.jsonl", lambda _: b'{"at": 1}\n'),
        "line 1 of events.jsonl",
    ),
    "a checkpoint by another name": (change_file("run.json", change_checkpoint), "checkpoint"),
    "files of no checkpoint": (change_file("run.json", change_document(checkpoints=[])), "does not name"),
}


@pytest.mark.parametrize("name", first_in_gate(8, HOSTILE_ARCHIVES))
def test_a_hostile_archive_is_refused_and_nothing_is_stored(client, settings, name):
    change, reason = HOSTILE_ARCHIVES[name]
    run = make_full_run(client, settings)
    files = read_archive_files(download_archive(client, run))
    tampered_files = change(files)
    content = sign_archive(tampered_files) if name != "another version" else make_tar(tampered_files)
    response = send(client, content)
    assert response.status_code == 422, response.text
    assert reason in response.json()["errors"][0]["message"]
    with client.app.state.lab.sessions() as session:
        assert list(session.scalars(select(Run.id))) == [run]
        assert set(session.scalars(select(Metric.run_id))) == {run}
        assert list(session.scalars(select(MetricBlock.run_id))) == []
        assert set(session.scalars(select(Checkpoint.run_id))) == {run}
    assert [path.name for path in (settings.state / "runs").iterdir()] == [run]


@pytest.mark.parametrize("name", ["rollouts.parquet", "checkpoints/s000009-a2/model.safetensors"])
def test_a_wrong_digest_is_detected(client, settings, name):
    files = read_archive_files(download_archive(client, make_full_run(client, settings)))
    response = send(client, make_tar(files | {name: files[name][:-1] + b"x"}))
    assert "is not the file that was archived" in response.json()["errors"][0]["message"]


def test_a_few_bytes_of_parquet_cannot_fill_the_memory(client, settings, monkeypatch):
    files = read_archive_files(download_archive(client, make_full_run(client, settings)))
    long_archive = sign_archive(
        files | {"rollouts.parquet": cells(text="x" * 600_000)(files["rollouts.parquet"])}
    )
    for limit, reason in (
        ("MAX_TEXT_BYTES", "characters of text"),
        ("MAX_GROUP_BYTES", "belongs to a group"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(archived_rollouts, limit, 500_000)
            assert reason in send(client, long_archive).json()["errors"][0]["message"]
    with monkeypatch.context() as patch:
        patch.setattr(archived_rollouts, "MAX_GROUP_BYTES", 64)
        assert "has more than 1 tokens" in send(client, sign_archive(files)).json()["errors"][0]["message"]


@pytest.mark.nightly
def test_missing_tokens_take_no_memory(client, settings):
    files = read_archive_files(download_archive(client, make_full_run(client, settings)))
    tokens = pq.read_table(io.BytesIO(files["tokens.parquet"]))
    buffer = io.BytesIO()
    pq.write_table(tokens.filter(pc.not_equal(tokens["rollout"], 1)), buffer)
    false_counts = {"rollouts.parquet": cells(row=1, tokens=2**31 - 1)(files["rollouts.parquet"])}
    run = import_archive(client, sign_archive(files | false_counts | {"tokens.parquet": buffer.getvalue()}))
    [group] = client.get("/api/v1/rollouts", params={"run": run, "step": 2}).json()["items"]
    responses = [
        client.get(f"/api/v1/rollouts/{completion['id']}/tokens").json()
        for completion in group["completions"]
    ]
    assert [completion["tokens"] for completion in group["completions"]][1] == 2**31 - 1
    assert [len(completion["tokens"]) for completion in responses] == [group["completions"][0]["tokens"], 0]


@pytest.mark.nightly
def test_the_rollouts_of_a_suite_are_restored(client, settings):
    run = make_full_run(client, settings)
    with client.app.state.lab.sessions.begin() as session:
        make_group(session, session.get(Run, run), step=9, attempt=2, kind="eval/math500")
    copy = import_archive(client, download_archive(client, run))
    params = {"run": copy, "kind": "eval/math500"}
    assert [group["step"] for group in client.get("/api/v1/rollouts", params=params).json()["items"]] == [9]


@pytest.mark.nightly
def test_a_config_with_omitted_fields_is_stored_in_full(client, settings):
    files = read_archive_files(download_archive(client, make_full_run(client, settings)))
    short_config = {"evaluation": {"suites": [{}]}, "stop_rules": [], "steps": 10}
    copy = import_archive(
        client, sign_archive(files | {"run.json": change_document(config=short_config)(files["run.json"])})
    )
    config = client.get(f"/api/v1/runs/{copy}").json()["config"]
    assert config == RunConfig.model_validate(short_config).model_dump(mode="json")
    response = client.post(f"/api/v1/runs/{copy}/evaluations", json={"suites": ["none"]})
    assert response.status_code == 422, response.text


def test_links_and_double_names_are_refused(client, settings):
    content = download_archive(client, make_full_run(client, settings))
    for kind, reason in ((tarfile.SYMTYPE, "such as links"), (tarfile.REGTYPE, "twice")):
        archive_file = io.BytesIO(content)
        with tarfile.open(fileobj=archive_file, mode="a") as archive:
            info = tarfile.TarInfo("run.json")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        assert reason in send(client, archive_file.getvalue()).json()["errors"][0]["message"]


def test_a_truncated_archive_is_refused(client, settings):
    content = download_archive(client, make_full_run(client, settings))
    for size in (600, len(content) // 2, len(content) - 2000):
        assert send(client, content[:size]).status_code == 422


def test_requests_for_logs_are_refused_for_archives(client, settings):
    content = download_archive(client, make_full_run(client, settings))
    response = send(client, content, seed=3)
    assert response.json()["errors"][0]["path"] == "seed"


@pytest.mark.nightly
def test_a_fork_keeps_its_inherited_metrics(client, settings):
    parent = make_full_run(client, settings)
    with client.app.state.lab.sessions.begin() as session:
        fork = make_run(session, name="fork", parent_run=parent, fork_step=5, status="finished", last_step=7)
        make_attempt(session, fork, 1, from_step=5)
        write_metric(session, fork, "reward/mean", {6: 0.6, 7: 0.7})
        fork_id = fork.id
    copy = import_archive(client, download_archive(client, fork_id))
    csv = [client.get(f"/api/v1/runs/{run_id}/metrics.csv").text for run_id in (fork_id, copy)]
    assert csv[0] == csv[1]
    assert csv[0].splitlines()[2] == "1,NaN"
    assert client.get(f"/api/v1/runs/{copy}").json()["fork_step"] == 5


def test_damaged_or_missing_files_are_named_in_the_archive_and_after_the_import(client, settings):
    run = make_full_run(client, settings)
    assert json.loads(read_archive_files(download_archive(client, run))["grpolab.json"])["missing"] == []
    sessions = client.app.state.lab.sessions
    with open_read_session(sessions) as session:
        tasks = find_sealable(session)
    list(seal(sessions, tasks))
    with sessions.begin() as session:
        session.execute(update(MetricBlock).where(MetricBlock.attempt == 2).values(data=b"\x01no block"))
    shutil.rmtree(settings.artifact_dir(run))
    response = client.get(f"/api/v1/runs/{run}/archive", params={"checkpoints": "true"})
    assert response.headers["Archive-Missing"] == "2"
    points, checkpoint = json.loads(read_archive_files(response.content)["grpolab.json"])["missing"]
    assert points.startswith("reward/mean, steps ")
    assert "is damaged" in points
    assert "of step 9: its files are gone or damaged" in checkpoint
    report = send(client, response.content).json()
    notes = [note for note in report["report"]["notes"] if note.startswith("Missing in the archive")]
    assert notes == [f"Missing in the archive: {damaged_file}" for damaged_file in (points, checkpoint)]
    events = client.get(f"/api/v1/runs/{report['run']}/events").json()["items"]
    assert sum("missing in the archive" in event["message"] for event in events) == 2


def test_damaged_completions_texts_and_tokens_are_left_out_named_and_imported(client, settings):
    run = make_full_run(client, settings)
    sessions = client.app.state.lab.sessions
    with sessions.begin() as session:
        for prompt_index in range(1, 5):
            row = session.get_one(Run, run)
            make_group(
                session, row, step=7, attempt=2, prompt_index=prompt_index, prompt=f"{prompt_index}+1=?"
            )
        groups_by_index = {
            group.prompt_index: group
            for group in session.scalars(select(RolloutGroup).where(RolloutGroup.step == 7))
        }
        groups_by_index[1].completions = b"\1broken"
        groups_by_index[2].prompt, groups_by_index[3].answer = TRUNCATED_ZSTD, TRUNCATED_ZSTD
        of_group = RolloutTokens.group_id == groups_by_index[4].id
        session.execute(update(RolloutTokens).where(of_group).values(data=TRUNCATED_ZSTD))
        session.execute(update(RunPrompt).where(RunPrompt.id == "sums/4+1=?").values(prompt=TRUNCATED_ZSTD))
    response = client.get(f"/api/v1/runs/{run}/archive")
    assert response.headers["Archive-Missing"] == "5"
    missing = json.loads(read_archive_files(response.content)["grpolab.json"])["missing"]
    assert [note.split(": ")[0] for note in missing] == [
        "step 7, train, prompt 1, completions",
        "step 7, train, prompt 2, prompt",
        "step 7, train, prompt 3, answer",
        "step 7, train, prompt 4, tokens",
        "prompt sums/4+1=?, prompt",
    ]
    copy = import_archive(client, response.content)
    groups = client.get("/api/v1/rollouts", params={"run": copy, "step": 7}).json()["items"]
    group_by_prompt = {group["prompt_index"]: group for group in groups}
    assert sorted(group_by_prompt) == [2, 3, 4]
    assert [len(group["completions"]) for group in group_by_prompt.values()] == [2, 2, 2]
    assert [(group["prompt"], group["answer"]) for group in group_by_prompt.values()] == [
        ("", "2"),
        ("3+1=?", ""),
        ("4+1=?", "2"),
    ]
    codes = [
        client.get(
            f"/api/v1/rollouts/{group_by_prompt[prompt_index]['completions'][0]['id']}/tokens"
        ).status_code
        for prompt_index in (2, 3, 4)
    ]
    assert codes == [200, 200, 404]


@pytest.mark.nightly
def test_the_export_and_import_commands_match_the_routes(
    client, settings, sqlite_url, tmp_path, capsys, monkeypatch
):
    run = make_full_run(client, settings)
    monkeypatch.setenv("STATE_DIR", str(settings.state))
    monkeypatch.setenv("DATABASE_URL", sqlite_url)
    directory = tmp_path / "out"
    directory.mkdir()
    file = directory / "run.tar"
    assert main(["archive", "brave-otter", "--to", str(file)]) == 0
    assert (
        read_archive_files(file.read_bytes()).keys()
        == read_archive_files(download_archive(client, run)).keys()
    )
    assert main(["archive", run, "--to", str(file)]) == 1
    assert "already exists" in capsys.readouterr().err
    assert main(["import", str(file), "--name", "copy"]) == 0
    assert "Archive of GRPO Lab: 7 values of 1 metrics" in capsys.readouterr().out
    assert main(["archive", "nobody", "--to", str(directory / "x")]) == 1
    assert [path.name for path in directory.iterdir()] == ["run.tar"]
