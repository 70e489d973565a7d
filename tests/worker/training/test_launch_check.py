"""Tests of checks before launch through the trainer, on the tiny policy and a real database."""

import json
import threading

import pytest

from backend.base.settings import Settings
from backend.config.merge import grading_hash, resolve
from backend.runs import lifecycle
from backend.runs.check_report import CheckReport
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Run
from tests.factories import make_run
from worker.train import Assignment, train_run

SMALL_CONFIG = {
    "steps": 0,
    "sampling": {"group_size": 4, "max_new_tokens": 40},
    "evaluation": {"every": 1, "prompts": 4, "k": 8},
    "rewards": [{"name": "correctness"}, {"name": "think_format", "weight": 0.2}],
}


@pytest.fixture
def settings(state_dir, sqlite_url, monkeypatch):
    monkeypatch.setenv("STATE_DIR", str(state_dir))
    monkeypatch.setenv("DATASETS_DIR", str(state_dir))
    return Settings(state_dir=state_dir, datasets_dir=state_dir, database_url=sqlite_url)


@pytest.fixture
def run_check(settings, sqlite_url):
    """A function that queues and runs a check of the small config with changes, and returns the run."""
    sessions = open_sessions(open_engine(sqlite_url))

    def check(*, stopping=None, **changes):
        config = resolve(SMALL_CONFIG | changes)
        with sessions.begin() as session:
            run = make_run(session, config=SMALL_CONFIG | changes, check_hash=grading_hash(config))
        with sessions.begin() as session:
            claim = lifecycle.claim_run(session, "worker", "host")
        assigned = Assignment(claim.run_id, claim.attempt, "cpu", 1, sqlite_url)
        train_run(assigned, stopping or threading.Event())
        with sessions() as session:
            return session.get_one(Run, run.id)

    return check


def store_dataset(settings, *answers):
    path = settings.datasets_dir / "questions.jsonl"
    rows = [{"prompt": f"{n}+1=?", "answer": answer, "split": "train"} for n, answer in enumerate(answers)]
    rows.append({"prompt": "7+7=?", "answer": "14", "split": "eval"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "file", "path": path.name}


def test_a_check_measures_the_policy_and_accepts_the_reference_answers(run_check):
    run = run_check()
    assert (run.status, run.reason) == ("finished", "")
    report = CheckReport.model_validate(run.check_report)
    assert (report.prompts, report.completions, report.group_size) == (4, 8, 4)
    assert [signal.group_size for signal in report.signal] == [4, 8]
    assert (report.references.checked, report.references.wrong) == (256, 0)
    assert report.references.reward == pytest.approx(1.2)
    earned = {probe.name: probe.reward for probe in report.probes}
    assert earned == pytest.approx({"empty": 0, "echo": 0, "format": 0.2, "ten_answers": 0.2})
    assert report.probes[2].example == "<think>\n</think>\n\n\\boxed{?}"
    assert run.summary["last"]["reward/accuracy"] == pytest.approx(report.pass_rate)
    assert "eval/accuracy" not in run.summary["last"]


def test_reference_answers_that_are_graded_wrong_are_named(run_check, settings):
    run = run_check(problems=[store_dataset(settings, "1", "}", "3", "4 \\x00\x00")])
    report = CheckReport.model_validate(run.check_report)
    assert (report.references.checked, report.references.wrong) == (4, 1)
    [wrong_example] = report.references.examples
    assert (wrong_example.prompt, wrong_example.answer) == ("1+1=?", "}")
    assert report.findings[0].level == "bad"
    assert report.findings[0].text.startswith("The grader calls 1 of 4 reference answers wrong")


def test_a_missing_policy_is_one_clear_sentence(run_check):
    run = run_check(policy={"name": "gone"})
    assert run.status == "failed"
    assert run.reason.startswith("policy.name: 'gone' is neither built in nor a directory")


def test_a_stopping_worker_releases_the_check(run_check):
    stopping = threading.Event()
    stopping.set()
    run = run_check(stopping=stopping)
    assert (run.status, run.check_report) == ("queued", None)
