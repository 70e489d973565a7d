"""Tests that recorded floats and texts are returned unchanged by the HTTP API."""

import csv
import io
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from backend.base.text import clean_text
from backend.config.run import RunConfig
from backend.metrics.store import key_ids
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.runs import lifecycle
from backend.storage.models import Run
from tests.factories import make_run
from worker.recording.recorder import Recorder
from worker.recording.records import StepRecord

hypothesis_settings = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
STRANGE_FLOATS = (0.0, -0.0, 5e-324, -2.2e-308, 1e308, -1.7976931348623157e308, math.nan, math.inf, -math.inf)
STRANGE_TEXTS = (
    "",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "".join(map(chr, range(0x20))) + "".join(map(chr, range(0x7F, 0xA0))),
    "\u202egnp.exe\u2066\u200b\u200d\ufeff\u00ad",
    "\U000e0041\U0001f468\u200d\U0001f469",
    "=cmd|' /C calc'!A1",
    "</script><img src=x onerror=alert(1)>\u2028\u2029\"'\\",
    "[" * 5000,
    "e\u0301\u1e9b\u0323 not normalised",
    '{"__proto__": {"polluted": true}}',
)
floats = st.floats() | st.sampled_from(STRANGE_FLOATS)
texts = st.text(st.characters(), max_size=40) | st.sampled_from(STRANGE_TEXTS)


def bits(value):
    """Return a number of a response, or its name, as 64 bits, with a single NaN."""
    number = float(value)
    return "NaN" if math.isnan(number) else struct.pack("<d", number)


class Trained:
    """A run in training, and the client that reads it."""

    def __init__(self, client, recorder, run_id):
        self.client, self.recorder, self.run_id = client, recorder, run_id
        self.step = 0

    def record(self, metrics, groups=()):
        """Record and commit one more step."""
        self.step += 1
        self.recorder.record_step(StepRecord(self.step, metrics, groups))
        self.recorder.flush()

    def get(self, path, **params):
        response = self.client.get(f"/api/v1{path}", params=params)
        assert response.status_code == 200, response.text
        return response

    def series(self, name):
        """Return every value of a metric by step, as `/series` returns it."""
        response = self.get("/series", runs=self.run_id, metrics=name, max_points=1000, after=self.step - 1)
        [curve] = json.loads(response.text)["series"]
        finite_values = dict(zip(curve["steps"], curve["values"], strict=True))
        return finite_values | {point["step"]: point["value"] for point in curve["non_finite"]}

    def groups(self):
        """Return the groups of the latest step."""
        return json.loads(self.get("/rollouts", run=self.run_id, step=self.step).text)["items"]


@pytest.fixture
def run_id(database):
    """The id of a run that attempt 1 owns."""
    with database.sessions.begin() as session:
        run_id = make_run(session).id
        lifecycle.claim_run(session, "worker", "host", lease_seconds=600)
    return run_id


@pytest.fixture
def trained(database, client, run_id):
    config = RunConfig.model_validate({"recording": {"rollouts": "all"}})
    with Recorder(database.sessions, run_id, 1, config=config) as recorder:
        yield Trained(client, recorder, run_id)


def completion(text, reward=1.0, advantage=0.5, terms=None, logprobs=()):
    token_strings = [text[:1], text[1:]]
    values = np.array(logprobs or [0.0, 0.0], np.float32)
    return CompletionRecord(
        text=text, token_strings=token_strings, token_ids=[1, 2], reward=reward,
        rewards=terms or {"correctness": reward}, advantage=advantage,
        finish_reason="stop", correct=None, arrays={"logprob": values},
    )  # fmt: skip


def group(prompt, answer, *completions, label="sums"):
    return GroupRecord("train", 0, f"{label}/1", label, "math", prompt, answer, completions)


def test_every_float_is_equal_in_sql_curves_summary_and_csv(trained):
    @hypothesis_settings
    @given(floats, floats)
    def check(loss, reward):
        trained.record({"loss/total": loss, "reward/mean": reward})
        assert bits(trained.series("loss/total")[trained.step]) == bits(loss)
        assert bits(trained.series("reward/mean")[trained.step]) == bits(reward)
        summary = json.loads(trained.get(f"/runs/{trained.run_id}").text)["summary"]["last"]
        assert [bits(summary[name]) for name in ("loss/total", "reward/mean")] == [bits(loss), bits(reward)]
        rows = list(csv.DictReader(io.StringIO(trained.get(f"/runs/{trained.run_id}/metrics.csv").text)))
        assert [bits(rows[-1][name]) for name in ("loss/total", "reward/mean")] == [bits(loss), bits(reward)]

    for number in STRANGE_FLOATS:
        check = example(number, -number)(check)
    check()


def test_every_text_is_equal_in_prompt_answer_completion_and_tokens(trained):
    @hypothesis_settings
    @given(texts, texts, texts)
    def check(prompt, answer, text):
        trained.record({"loss/total": 0.0}, [group(prompt, answer, completion(text))])
        [stored_group] = trained.groups()
        [completion_json] = stored_group["completions"]
        assert (stored_group["prompt"], stored_group["answer"], completion_json["text"]) == (
            prompt,
            answer,
            text,
        )
        tokens = json.loads(trained.get(f"/rollouts/{completion_json['id']}/tokens").text)
        assert tokens["tokens"] == [text[:1], text[1:]]

    for text in STRANGE_TEXTS:
        check = example(text, text, text)(check)
    check()


def test_every_number_of_a_completion_is_returned_unchanged(trained):
    @hypothesis_settings
    @given(floats, floats, floats, st.floats(width=32))
    def check(reward, advantage, term, logprob):
        first = completion("ab", reward, advantage, {"correctness": term}, (logprob, -0.0))
        trained.record({"loss/total": 0.0}, [group("p", "a", first, completion("cd", -reward))])
        completion_json = trained.groups()[0]["completions"][0]
        numbers = (
            completion_json["reward"],
            completion_json["advantage"],
            completion_json["rewards"]["correctness"],
        )
        assert list(map(bits, numbers)) == list(map(bits, (reward, advantage, term)))
        arrays = json.loads(trained.get(f"/rollouts/{completion_json['id']}/tokens").text)["arrays"]
        assert list(map(bits, arrays["logprob"])) == [bits(logprob), bits(-0.0)]

    for number in STRANGE_FLOATS:
        check = example(number, -number, number, float(np.float32(1e-45)))(check)
    check()


def test_a_text_of_ten_megabytes_on_one_line_is_returned(trained):
    text = "0123456789" * 1_000_000
    trained.record({"loss/total": 0.0}, [group(text, "", completion(text))])
    [stored_group] = trained.groups()
    assert stored_group["prompt"] == stored_group["completions"][0]["text"] == text


def test_any_reason_can_end_a_run_and_is_shown(client, database, run_id):
    reason = "ValueError: a\0b\ud800 <b>\u202e" + "x" * 10_000
    with database.sessions.begin() as session:
        lifecycle.finish_run(session, run_id, 1, "failed", reason)
    run = client.get(f"/api/v1/runs/{run_id}").json()
    assert run["reason"] == run["attempts"][0]["outcome"] == clean_text(reason)
    assert run["reason"].startswith("ValueError: a\\x00b\\ud800 <b>\u202exx")


def test_names_notes_and_tags_are_kept_or_refused_but_never_changed(trained):
    @hypothesis_settings
    @given(st.text(st.characters(), min_size=1, max_size=200), texts, st.text(min_size=1, max_size=64))
    @example("\u202e", "a\0", "=1+1")
    @example("\ud800", "", "\u200b")
    def check(name, notes, tag):
        changes = {"name": name, "notes": notes, "tags": [tag]}
        response = trained.client.patch(
            f"/api/v1/runs/{trained.run_id}", content=json.dumps(changes), headers=JSON_HEADERS
        )
        if all(text == clean_text(text) for text in (name, notes, tag)):
            assert response.status_code == 200, response.text
            run = trained.get(f"/runs/{trained.run_id}").json()
            assert {field: run[field] for field in changes} == changes
        else:
            assert response.status_code == 422
            assert "contains NUL or an unpaired surrogate" in response.json()["detail"]

    check()


JSON_HEADERS = {"Content-Type": "application/json"}


def test_an_invalid_metric_name_is_refused(session):
    for name in ("", "a b", "<b>", "a\0", "x" * 129, "\u202e", "a\n"):
        with pytest.raises(ValueError, match="a metric's name is"):
            key_ids(session, [name])
    assert set(key_ids(session, ["__proto__", "reward/é/mean@k"])) == {"__proto__", "reward/é/mean@k"}


def test_a_download_is_a_file_and_never_a_page(client, session):
    run = make_run(session, name='x"; filename=evil.html\r\n')
    session.commit()
    response = client.get(f"/api/v1/runs/{run.id}/metrics.csv")
    assert response.headers["content-disposition"] == f"attachment; filename=metrics-{run.id}.csv"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-type"] == "text/csv; charset=utf-8"


def test_runs_are_sorted_by_a_metric_with_any_values(session, client):
    for accuracy in ("NaN", -0.0, "Infinity", 1e308, 5e-324):
        summary = {"step": 1, "last": {"loss/total": accuracy}, "best": {}}
        make_run(session, name=str(accuracy), summary=summary)
    session.commit()
    response = client.get("/api/v1/runs", params={"sort": "summary.loss/total"})
    assert [run["name"] for run in response.json()["items"][:3]] == ["-0.0", "5e-324", "1e+308"]
    assert session.query(Run).count() == 5
