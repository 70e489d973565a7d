"""Tests of suites in runs: metrics, rollouts, checkpoints and later evaluations."""

import json
import shutil
import threading

import pytest
from sqlalchemy import delete, select

from backend.base.settings import Settings
from backend.config.evaluation import UNSCHEDULED_FIELDS
from backend.config.metrics import MACHINE_PREFIXES, find_metric
from backend.metrics.history import valid_steps
from backend.rollouts.packing import unpack_text
from backend.runs import lifecycle
from backend.storage.models import Checkpoint, RolloutGroup, Run
from tests.factories import make_run
from tests.gate import first_in_gate
from worker.train import Assignment, train_run
from worker.training.trainer import Trainer

PAIRS_SUITE = {
    "name": "pairs",
    "problem": {"name": "sums", "operands": 2},
    "prompts": 6,
    "n": 4,
    "temperature": 1.0,
    "max_new_tokens": 24,
}
SMALL_CONFIG = {
    "steps": 2,
    "sampling": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 24},
    "evaluation": {"every": 1, "prompts": 4},
    "checkpointing": {"every": 1},
}


@pytest.fixture
def train_suite_run(state_dir, sqlite_url, sessions, monkeypatch):
    """A function that trains or continues a run with a suite, and returns its id."""
    monkeypatch.setenv("STATE_DIR", str(state_dir))
    monkeypatch.setenv("DATASETS_DIR", str(state_dir))
    Settings(state_dir=state_dir, datasets_dir=state_dir, database_url=sqlite_url)

    class Trained:
        def __call__(self, evaluation, *, parent=None, step=None, stopping=None, **changes):
            config = SMALL_CONFIG | changes | {"evaluation": SMALL_CONFIG["evaluation"] | evaluation}
            with sessions.begin() as session:
                make_run(session, config=config, parent_run=parent, fork_step=step)
            return self.go_on(stopping)

        def go_on(self, stopping=None):
            with sessions.begin() as session:
                claim = lifecycle.claim_run(session, "worker", "host")
            assignment = Assignment(claim.run_id, claim.attempt, "cpu", 1, sqlite_url)
            train_run(assignment, stopping or threading.Event())
            with sessions() as session:
                run = session.get_one(Run, claim.run_id)
                assert run.status in {"finished", "queued"}, run.reason
            return claim.run_id

    return Trained()


def load_metrics(sessions, run):
    """Return the metrics by step, without those that depend on the machine."""
    with sessions() as session:
        return {
            step: {name: value for name, value in values.items() if not name.startswith(MACHINE_PREFIXES)}
            for step, values in valid_steps(session, run, up_to=10**6)
        }


def select_suite_metrics(values, name="pairs"):
    return {key: metric_value for key, metric_value in values.items() if key.startswith(f"eval/{name}/")}


def test_a_suite_is_measured_when_due_and_disturbs_nothing(train_suite_run, sessions):
    late_suite = PAIRS_SUITE | {"name": "late"}
    plain_metrics = load_metrics(sessions, train_suite_run({}))
    run = train_suite_run({"suites": [PAIRS_SUITE | {"every": 1}, late_suite]})
    metrics_by_step = load_metrics(sessions, run)
    assert all(select_suite_metrics(metrics_by_step[step]) for step in (0, 1, 2))
    assert [step for step in metrics_by_step if select_suite_metrics(metrics_by_step[step], "late")] == [2]
    training_metrics = {
        step: {
            name: metric_value
            for name, metric_value in values.items()
            if name.count("/") < 2 or "eval/" not in name
        }
        for step, values in metrics_by_step.items()
    }
    assert training_metrics == plain_metrics
    assert all(find_metric(name) for values in metrics_by_step.values() for name in values)
    assert {"eval/pairs/pass_at_2", "eval/pairs/maj_at_4_high"} < set(metrics_by_step[2])


def test_a_checkpoint_evaluated_later_scores_the_same(train_suite_run, sessions):
    run = train_suite_run({"suites": [PAIRS_SUITE | {"every": 1}]})
    child = train_suite_run(
        {"every": 0, "suites": [PAIRS_SUITE | UNSCHEDULED_FIELDS]},
        parent=run,
        step=1,
        steps=0,
        optimizer={"warmup_steps": 0},
    )
    assert select_suite_metrics(load_metrics(sessions, child)[0]) == select_suite_metrics(
        load_metrics(sessions, run)[1]
    )


def _delete_row(session, _directory, run):
    session.execute(delete(Checkpoint).where(Checkpoint.run_id == run, Checkpoint.step == 1))


def _delete_files(_session, directory, _run):
    shutil.rmtree(directory)


def _empty_weights(_session, directory, _run):
    for path in directory.glob("*.safetensors"):
        path.write_bytes(b"")


def _other_weights(_session, directory, _run):
    for path in directory.glob("*.safetensors"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)


def _delete_manifest(_session, directory, _run):
    (directory / "manifest.json").unlink()


def _link_elsewhere(_session, directory, _run):
    moved_directory = directory.rename(directory.parent.parent / "elsewhere")
    directory.symlink_to(moved_directory)
    shutil.rmtree(moved_directory)


@pytest.mark.parametrize(
    "harm",
    first_in_gate(
        2,
        [_other_weights, _link_elsewhere, _delete_row, _delete_files, _empty_weights, _delete_manifest],
    ),
)
def test_an_evaluation_of_a_missing_checkpoint_fails_with_an_explanation(
    train_suite_run, sessions, state_dir, harm
):
    run = train_suite_run({"suites": [PAIRS_SUITE | {"every": 1}]})
    with sessions.begin() as session:
        statement = select(Checkpoint).where(Checkpoint.run_id == run, Checkpoint.step == 1)
        directory = Settings().artifact_dir(run) / session.scalars(statement).one().path
        harm(session, directory, run)
    with pytest.raises(AssertionError) as error_info:
        train_suite_run(
            {"every": 0, "suites": [PAIRS_SUITE | UNSCHEDULED_FIELDS]},
            parent=run,
            step=1,
            steps=0,
            optimizer={"warmup_steps": 0},
        )
    reason = str(error_info.value).partition("\nassert")[0]
    assert "Traceback" not in reason
    assert len(reason.splitlines()) == 1, reason
    assert "checkpoint" in reason or "s000001" in reason
    with sessions() as session:
        child = session.scalars(select(Run).where(Run.parent_run == run)).one()
    assert child.status == "failed"
    assert load_metrics(sessions, child.id) == {}


@pytest.mark.nightly
def test_a_run_interrupted_between_evaluations_measures_the_same(train_suite_run, sessions, monkeypatch):
    suites = {"suites": [PAIRS_SUITE | {"every": 1}]}
    straight_metrics = load_metrics(sessions, train_suite_run(suites))
    step, stopping = Trainer._step, threading.Event()

    def interrupt(trainer):
        metrics = step(trainer)
        stopping.set()
        return metrics

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupt)
        run = train_suite_run(suites, stopping=stopping)
    assert max(load_metrics(sessions, run)) == 1
    assert train_suite_run.go_on() == run
    assert load_metrics(sessions, run) == straight_metrics


def test_the_best_checkpoint_is_chosen_by_the_suite(train_suite_run, sessions):
    run = train_suite_run(
        {"suites": [PAIRS_SUITE | {"every": 1}]}, checkpointing={"every": 1, "best_by": "pairs"}
    )
    metrics_by_step = load_metrics(sessions, run)
    with sessions() as session:
        rows = session.scalars(select(Checkpoint).where(Checkpoint.run_id == run)).all()
    assert {row.step: row.manifest["accuracy"] for row in rows} == {
        step: metrics_by_step[step]["eval/pairs/accuracy"] for step in (1, 2)
    }


def test_prompts_of_a_suite_are_never_trained_on(train_suite_run, sessions, state_dir):
    rows = [{"prompt": f"{n}+1=?", "answer": str(n + 1)} for n in range(40)]
    for name, rows_of_file in (("train.jsonl", rows), ("test.jsonl", rows[:20])):
        (state_dir / name).write_text("".join(json.dumps(row) + "\n" for row in rows_of_file))
    suite = PAIRS_SUITE | {
        "problem": {"name": "file", "path": "test.jsonl"},
        "rows": "all",
        "prompts": 100,
        "n": 1,
    }
    run = train_suite_run(
        {"suites": [suite]},
        problems=[{"name": "file", "path": "train.jsonl"}],
        sampling={"prompts_per_step": 8, "group_size": 2, "max_new_tokens": 24},
        data={"contamination": "drop"},
    )
    with sessions() as session:
        groups = session.scalars(select(RolloutGroup).where(RolloutGroup.run_id == run)).all()
    texts = {
        kind: {unpack_text(g.prompt) for g in groups if g.kind == kind} for kind in ("train", "eval/pairs")
    }
    assert len(texts["eval/pairs"]) == 20
    assert not texts["train"] & texts["eval/pairs"]
