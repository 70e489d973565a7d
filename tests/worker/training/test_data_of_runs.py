"""Tests of runs on a user's rows: messages by a chat template, additional columns, and excluded rows."""

import json
import threading

import pytest
from sqlalchemy import select

from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.rollouts.packing import unpack_text
from backend.runs import lifecycle
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Event, RolloutGroup, Run
from tests.factories import make_run
from worker.train import Assignment, train_run

SMALL_CONFIG = {
    "steps": 1,
    "sampling": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 24},
    "evaluation": {"every": 1, "prompts": 1},
    "checkpointing": {"every": 0},
    "problems": [{"name": "file", "path": "rows.jsonl", "instruction": "Go."}],
}


@pytest.fixture
def train_on_rows(state_dir, sqlite_url, monkeypatch):
    """A function that trains on rows and returns the run, its stored prompts and its data events."""
    monkeypatch.setenv("STATE_DIR", str(state_dir))
    monkeypatch.setenv("DATASETS_DIR", str(state_dir))
    Settings(state_dir=state_dir, datasets_dir=state_dir, database_url=sqlite_url)
    sessions = open_sessions(open_engine(sqlite_url))

    def train(rows, **changes):
        (state_dir / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        resolve(SMALL_CONFIG | changes)
        with sessions.begin() as session:
            run = make_run(session, config=SMALL_CONFIG | changes)
        with sessions.begin() as session:
            claim = lifecycle.claim_run(session, "worker", "host")
        train_run(Assignment(claim.run_id, claim.attempt, "cpu", 1, sqlite_url), threading.Event())
        with sessions() as session:
            groups = session.scalars(select(RolloutGroup).where(RolloutGroup.run_id == run.id)).all()
            events = session.scalars(select(Event).where(Event.run_id == run.id, Event.kind == "data")).all()
            messages = [event.message for event in events]
            return session.get_one(Run, run.id), {unpack_text(group.prompt) for group in groups}, messages

    return train


def conversation(question):
    return [{"role": "system", "content": "Add."}, {"role": "user", "content": question}]


def test_a_run_on_messages_stores_the_conversation(train_on_rows):
    rows = [{"prompt": conversation(f"{n}+1=?"), "answer": n + 1, "split": "train"} for n in range(3)]
    rows.append({"prompt": conversation("7+7=?"), "answer": 14, "split": "eval"})
    run, prompts, _ = train_on_rows(rows, policy={"chat_template": True})
    assert (run.status, run.reason) == ("finished", "")
    assert "system: Add.\n\nuser: 7+7=?\nGo." in prompts
    assert all(prompt.startswith("system: Add.\n\nuser: ") for prompt in prompts)


def test_messages_without_a_template_end_the_run_with_a_reason(train_on_rows):
    rows = [{"prompt": conversation(f"{n}+1=?"), "answer": n + 1} for n in range(12)]
    run, _, _ = train_on_rows(rows)
    assert run.status == "failed"
    assert "is a list of messages: expected true" in run.reason
