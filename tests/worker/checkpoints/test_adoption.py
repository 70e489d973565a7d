"""Tests of checkpoints without a database row, after a database was restored to an older state."""

import json
import shutil

import pytest
from sqlalchemy import delete, select, update

from backend.config.merge import resolve
from backend.storage.models import Checkpoint, Event, Metric, Run
from tests.trained_runs import SMALL_CONFIG, series

CONFIG = resolve(SMALL_CONFIG | {"checkpointing": {"every": 1, "keep": 2, "spaced": 0}}, None, 0)
CHECKPOINT_NAMES = ["s000001-a1", "s000002-a1", "s000003-a1", "s000004-a1"]


@pytest.fixture
def stopped_run(queued, train, sessions, settings):
    """The id and the directory of a run that was stopped after three of its four steps."""
    run_id = queued(CONFIG)
    train(run_id, CONFIG, stop_after=3)
    return run_id, settings.artifact_dir(run_id)


def forget(sessions, run_id, *, steps):
    """Delete the rows of these steps, like a database that lost its newest transactions."""
    with sessions.begin() as session:
        session.execute(delete(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.step.in_(steps)))


def roll_back(sessions, run_id, *, step):
    """Set the database back to a step."""
    with sessions.begin() as session:
        session.execute(delete(Metric).where(Metric.run_id == run_id, Metric.step > step))
        session.execute(delete(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.step > step))
        session.execute(update(Run).where(Run.id == run_id).values(last_step=step))


def messages(sessions, run_id):
    query = select(Event.message).where(Event.run_id == run_id, Event.kind == "checkpoint")
    with sessions() as session:
        return list(session.scalars(query.order_by(Event.id)))


def rows(sessions, run_id):
    query = select(Checkpoint.path).where(Checkpoint.run_id == run_id).order_by(Checkpoint.path)
    with sessions() as session:
        return list(session.scalars(query))


def uninterrupted_steps(sessions, queued, train):
    run_id = queued(CONFIG)
    train(run_id, CONFIG)
    return series(sessions, run_id)


def test_a_checkpoint_without_a_row_continues_its_run(sessions, queued, train, stopped_run):
    run_id, root = stopped_run
    assert [path.name for path in sorted(root.iterdir())][-2:] == CHECKPOINT_NAMES[1:3]
    forget(sessions, run_id, steps=(1, 2, 3))
    assert train(run_id, CONFIG).status == "finished"
    adoption_message, last_message = messages(sessions, run_id)[-2:]
    assert (
        adoption_message
        == "adopted checkpoint s000003-a1: it is complete and belongs to this run, but had no row"
    )
    assert last_message == "continued from step 3"
    assert series(sessions, run_id) == uninterrupted_steps(sessions, queued, train)


@pytest.mark.nightly
def test_unrecorded_steps_are_trained_again_where_possible(sessions, queued, train, stopped_run):
    run_id, root = stopped_run
    roll_back(sessions, run_id, step=2)
    assert train(run_id, CONFIG).status == "finished"
    assert "continued from step 2" in messages(sessions, run_id)
    assert not any("adopted" in message for message in messages(sessions, run_id))
    assert series(sessions, run_id) == uninterrupted_steps(sessions, queued, train)
    assert sorted(path.name for path in root.iterdir()) == rows(sessions, run_id)


@pytest.mark.nightly
def test_checkpoints_ahead_of_the_rows_are_kept_until_training_reaches_them(sessions, train, stopped_run):
    run_id, root = stopped_run
    directory_ahead = root / CHECKPOINT_NAMES[3]
    roll_back(sessions, run_id, step=2)
    shutil.copytree(root / CHECKPOINT_NAMES[2], directory_ahead)
    state = json.loads((directory_ahead / "trainer/state.json").read_text())
    (directory_ahead / "trainer/state.json").write_text(json.dumps(state | {"step": 4}))
    train(run_id, CONFIG, stop_after=3)
    assert directory_ahead.exists()
    assert not (root / CHECKPOINT_NAMES[2]).exists()
    train(run_id, CONFIG)
    assert not directory_ahead.exists()


@pytest.mark.parametrize(
    "change",
    ["run", *(pytest.param(change, marks=pytest.mark.nightly) for change in ("config", "origin", "none"))],
)
def test_a_checkpoint_of_another_lineage_is_not_adopted(sessions, train, stopped_run, change):
    run_id, root = stopped_run
    for name in CHECKPOINT_NAMES[:3]:
        if (root / name).exists():
            _forge(root / name / "trainer/state.json", change)
    roll_back(sessions, run_id, step=0)
    train(run_id, CONFIG)
    assert not any("adopted" in message for message in messages(sessions, run_id))


def _forge(path, change):
    state = json.loads(path.read_text())
    forged_fields = {
        "config": {
            "config": resolve(SMALL_CONFIG | {"optimizer": {"lr": 0.5}}, None, 0).model_dump(mode="json")
        },
        "run": {"run": "another"},
        "origin": {"origin": "0" * 64},
    }
    state["about"] |= forged_fields.get(change, {})
    if change == "none":
        del state["about"]  # written by an earlier version
    path.write_text(json.dumps(state))


def test_a_damaged_checkpoint_without_a_row_is_refused(sessions, train, stopped_run):
    run_id, root = stopped_run
    forget(sessions, run_id, steps=(3,))
    with (root / CHECKPOINT_NAMES[2] / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    assert train(run_id, CONFIG).status == "finished"
    history = messages(sessions, run_id)
    assert any(message.startswith("refused: ") for message in history)
    assert "continued from step 2" in history
    assert not any("adopted" in message for message in history)


@pytest.mark.nightly
def test_checkpoints_of_attempts_that_the_database_lost_are_adopted_and_pruned(sessions, train, stopped_run):
    run_id, root = stopped_run
    forget(sessions, run_id, steps=(1, 2, 3))
    for name in CHECKPOINT_NAMES[1:3]:
        (root / name).rename(root / name.replace("-a1", "-a7"))
    assert train(run_id, CONFIG).status == "finished"
    assert any("adopted checkpoint s000003-a7" in message for message in messages(sessions, run_id))
    with sessions.begin() as session:  # another attempt, whose checkpoint is the one that is pruned
        session.execute(update(Run).where(Run.id == run_id).values(status="queued"))
        session.execute(delete(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.step == 3))
    train(run_id, CONFIG)
    assert sorted(path.name for path in root.iterdir()) == rows(sessions, run_id)
