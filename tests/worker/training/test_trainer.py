"""Tests of the training loop on the tiny policy, with a real database and real checkpoints."""

import json
import math
import re
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sqlalchemy import select

from backend.config.merge import resolve
from backend.config.metrics import find_metric
from backend.config.presets.book import BOOK
from backend.runs import lifecycle
from backend.storage.models import Checkpoint, Event, Metric, MetricKey, RolloutGroup, Run
from tests.factories import stored_completions
from tests.gate import first_in_gate
from tests.presets import METHOD_PRESETS
from tests.trained_runs import SMALL_CONFIG, series
from worker.checkpoints.files import BadCheckpoint
from worker.objective.policy_loss import policy_loss
from worker.outcome import Outcome
from worker.policy.model import BUILT_IN
from worker.policy.routing import routed_logprobs
from worker.rollout import sampler
from worker.training import passes
from worker.training.learner import Learner
from worker.training.reference import ReferenceChanged
from worker.training.stop_rules import MAX_EMPTY_STEPS


def test_a_run_records_every_step_and_only_metrics_of_the_catalog(sessions, queued, train):
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    recorded_series = series(sessions, run_id)
    assert sorted(recorded_series["reward/mean"]) == [1, 2, 3, 4]
    assert sorted(recorded_series["eval/accuracy"]) == [0, 2, 4]
    with sessions() as session:
        names = list(session.scalars(select(MetricKey.name)))
        groups = list(session.scalars(select(RolloutGroup).where(RolloutGroup.kind == "train")))
        rollouts = stored_completions(session)
        run = session.get(Run, run_id)
    assert [name for name in names if find_metric(name) is None] == []
    assert len(groups) == 4 * 4
    assert len(rollouts) == 4 * 4 * 4 + 3 * 8
    assert run.status == "finished"
    assert run.summary["last"]["eval/accuracy"] == recorded_series["eval/accuracy"][4]


@pytest.mark.parametrize(
    "changes",
    first_in_gate(
        1,
        [
            {"preset": "ppo"},
            {"preset": "grpo"},
            {"preset": "grpo_book_clip"},
            {"preset": "gspo"},
            {
                "preset": "olmo3",
                "sampling": {**SMALL_CONFIG["sampling"], "precision": "int8", "staleness": 2},
            },
            {
                "preset": "grpo",
                "sampling": {**SMALL_CONFIG["sampling"], "top_p": 0.9, "keep_mask": True},
                "updates": {"epochs": 2, "minibatches": 2},
            },
            {
                "policy": {"name": "tiny_moe"},
                "sampling": {**SMALL_CONFIG["sampling"], "staleness": 1, "routing_replay": True},
                "objective": {
                    "ratio": {"type": "seq_geo"},
                    "surrogate": {"type": "geo_token"},
                    "router": {"type": "router_shift"},
                },
                "updates": {"minibatches": 2},
                "resources": {"microbatch_completions": 3},
            },
            {
                "preset": "grpo",
                "policy": {"adapter": {"type": "lora", "rank": 4}},
                "sampling": {**SMALL_CONFIG["sampling"], "staleness": 1},
                "objective": {"reference": {"type": "every_n", "n": 2}},
                "optimizer": {"moments": "int8"},
                "resources": {
                    "activation_checkpointing": True,
                    "microbatch_tokens": 200,
                    "offload_optimizer": True,
                },
            },
        ],
    ),
    ids=str,
)
def test_an_interrupted_run_continues_bit_by_bit(train_interrupted, changes):
    train_interrupted(resolve(SMALL_CONFIG | changes), stop_after=3)


@pytest.mark.nightly
def test_groups_pooled_for_the_next_step_survive_an_interruption(train_interrupted):
    points = train_interrupted(resolve(SMALL_CONFIG | {"preset": "olmo3"}), stop_after=3)
    # the leftover groups of step 3 were trained after the resume
    assert points["sampling/carried_frac"][4] > 0


@pytest.fixture
def few_sums(settings):
    """Eight training sums, so that every step repeats prompts of the previous step."""
    rows = [
        {"prompt": f"{a}+{b}=?", "answer": str(a + b), "split": split}
        for split, numbers in (("train", range(11, 19)), ("eval", range(21, 29)))
        for a, b in ((number, 7) for number in numbers)
    ]
    settings.datasets_dir.mkdir(parents=True, exist_ok=True)
    (settings.datasets_dir / "few.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"problems": [{"name": "file", "path": "few.jsonl"}]}


@pytest.mark.nightly
def test_the_prompt_history_of_a_run_survives_an_interruption(train_interrupted, few_sums):
    remembered = []

    def remember(trainer):
        remembered.append(trainer.learner.history)

    config = resolve(SMALL_CONFIG | few_sums | {"preset": "dcpo"})
    train_interrupted(config, stop_after=3, prepare=remember)
    visits = remembered[1].visits(remembered[1].values()["prompts"]).visit_count.flatten().tolist()
    assert len(visits) == 8
    assert sum(visits) == 4 * 4


@pytest.mark.nightly
def test_rows_that_attack_the_trainer_are_graded_wrong_and_do_not_end_the_run(
    sessions, queued, train, settings
):
    """Each row passes the upload: 5,000 digits as text, NUL, foreign digits, endless LaTeX, and numbers."""
    answers = [
        "9" * 5000,
        "-" + "9" * 5000,
        "0." + "3" * 5000,
        "1/" + "7" * 5000,
        "٣" * 5000,
        "٣",
        "²",
        "\0",
        "5\0",
    ]
    answers += [
        "{" * 9000,
        "\\frac" * 9000,
        " " * 9000 + "x",
        "1e999999999",
        "9^{9^{9}}",
        "{}",
        "$",
        ".",
        "\\text{}",
    ]
    rows: list[dict[str, Any]] = [
        {"prompt": f"{number}?", "answer": answer, "id": "\0" * 9} for number, answer in enumerate(answers)
    ]
    rows += [
        {"prompt": "n?", "answer": int("9" * 4300), "more": [int("8" * 4300)]},
        {"prompt": "\0", "answer": 1e-320},
    ]
    rows += [{"prompt": "deep", "answer": "x", "deep": json.loads("[" * 62 + "]" * 62)}]
    settings.datasets_dir.mkdir(parents=True, exist_ok=True)
    (settings.datasets_dir / "hostile.jsonl").write_text("\n".join(map(json.dumps, rows)))
    problems = [{"name": "file", "path": "hostile.jsonl", "eval_fraction": 0.1}]
    rewards = [{"name": "correctness", "extraction": "lenient", "timeout_seconds": 1}]
    config = resolve(SMALL_CONFIG, {"problems": problems, "rewards": rewards})
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    assert max(series(sessions, run_id)["reward/accuracy"].values()) < 1


def test_a_run_stopped_while_it_samples_loses_nothing(sessions, queued, train, straight, monkeypatch):
    """The abandoned step is sampled again, with the same random numbers."""
    monkeypatch.setattr(sampler, "POLL_EVERY_TOKENS", 1)
    config = resolve(SMALL_CONFIG)
    stopped_run = queued(config)
    calls = []

    def in_the_third_step(trainer):
        def is_unwanted():
            if trainer.counters.step == 2 and not calls:
                calls.append(True)
                trainer.stopping.set()
            return trainer.stopping.is_set()

        trainer._is_asked_to_end = is_unwanted

    assert train(stopped_run, config, prepare=in_the_third_step).status == "queued"
    assert sorted(series(sessions, stopped_run)["reward/mean"]) == [1, 2]
    train(stopped_run, config)
    assert series(sessions, stopped_run) == straight


def test_the_same_seed_gives_the_same_run_and_another_seed_a_different_one(sessions, queued, train, straight):
    runs = []
    for seed in (0, 1):
        config = resolve(SMALL_CONFIG, {}, seed)
        runs.append(queued(config))
        train(runs[-1], config)
    repeated_series, of_other_seed = (series(sessions, run_id) for run_id in runs)
    assert straight == repeated_series
    assert straight["loss/policy"] != of_other_seed["loss/policy"]


def test_a_damaged_checkpoint_is_refused_and_the_previous_one_is_used(
    sessions, settings, queued, train, straight
):
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    train(run_id, config, stop_after=3)
    weights = settings.artifact_dir(run_id) / "s000003-a1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    with sessions() as session:
        messages = list(session.scalars(select(Event.message).where(Event.run_id == run_id)))
    assert any("refused" in message and "model.safetensors" in message for message in messages)
    assert any("continued from step 2" in message for message in messages)


def test_leftovers_of_a_killed_attempt_are_removed_even_if_training_is_complete(settings, queued, train):
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    train(run_id, config, stop_after=4)  # its last checkpoint exists, its end was not recorded
    root = settings.artifact_dir(run_id)
    shutil.copytree(root / "s000004-a1", root / "s000003-a1")
    (root / ".s000004-a1.77.draft").mkdir()
    assert train(run_id, config) == Outcome("finished")
    assert sorted(path.name for path in root.iterdir()) == ["s000002-a1", "s000004-a1"]


def test_a_run_whose_checkpoints_are_all_damaged_never_starts_over_silently(settings, queued, train):
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    train(run_id, config, stop_after=1)
    for manifest in settings.artifact_dir(run_id).glob("*/manifest.json"):
        manifest.write_text("{}")
    with pytest.raises(BadCheckpoint, match="none of the run's 1 checkpoints is complete"):
        train(run_id, config)


def test_out_of_memory_halves_the_passes_and_repeats_the_step(sessions, settings, queued, train, monkeypatch):
    """The step is the same apart from rounding: its rollouts, its metrics and its checkpoint."""
    config = resolve(SMALL_CONFIG | {"preset": "grpo"})
    straight_run = queued(config)
    train(straight_run, config)
    failures = []

    def scarce(model, tokens, **options):
        routed_tokens = routed_logprobs(model, tokens, **options)
        if routed_tokens.scored.logprobs.requires_grad and len(tokens) > 5:
            failures.append(len(tokens))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return routed_tokens

    monkeypatch.setattr("worker.training.rank_passes.routed_logprobs", scarce)
    run_id = queued(config)
    assert train(run_id, config, stop_after=2).status == "queued"
    assert failures[:2] == [16, 8]
    count = len(failures)
    assert train(run_id, config).status == "finished"
    assert len(failures) == count, "a resumed run knows the size that fitted"
    with sessions() as session:
        messages = list(session.scalars(select(Event.message).where(Event.kind == "memory")))
    assert len(messages) == 1
    assert re.match(r"memory ran out; the step was repeated with at most \d+ tokens per pass", messages[0])
    expected, points = series(sessions, straight_run), series(sessions, run_id)
    for name in ("reward/mean", "loss/policy", "optim/grad_norm"):
        assert points[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name


def test_a_run_does_not_continue_with_another_reference(settings, queued, train):
    local = settings.models_dir / "mine"
    shutil.copytree(BUILT_IN["tiny"], local)
    config = resolve(
        SMALL_CONFIG
        | {"policy": {"name": "mine", "dtype": "float32", "chat_template": False}, "preset": "grpo"}
    )
    run_id = queued(config)
    train(run_id, config, stop_after=1)
    weights = load_file(local / "model.safetensors")
    first = next(iter(weights))
    save_file(weights | {first: weights[first] + 0.01}, local / "model.safetensors", {"format": "pt"})
    with pytest.raises(ReferenceChanged, match=r"not the one this run began with.*policy\.revision"):
        train(run_id, config)


def test_the_newest_checkpoints_the_best_and_an_old_one_are_kept(sessions, settings, queued, train):
    config = resolve(
        SMALL_CONFIG
        | {
            "steps": 6,
            "checkpointing": {"every": 1, "keep": 2, "spaced": 1},
            "evaluation": {"every": 1, "prompts": 8},
        }
    )
    run_id = queued(config)
    train(run_id, config)
    accuracy = series(sessions, run_id)["eval/accuracy"]
    with sessions() as session:
        steps = list(session.scalars(select(Checkpoint.step).order_by(Checkpoint.step)))
        paths = set(session.scalars(select(Checkpoint.path)))
    best = max(steps, key=accuracy.__getitem__)
    assert set(steps) - {best} in ({1, 5, 6} - {best}, {2, 5, 6})  # the best is next to the older one
    assert accuracy[best] == max(accuracy[step] for step in range(1, 7))
    assert {path.name for path in settings.artifact_dir(run_id).iterdir()} == paths


HOPELESS_CONFIG: dict[str, Any] = {
    "steps": 100,
    "preset": "dapo",
    "sampling": {"prompts_per_step": 1, "group_size": 2, "max_new_tokens": 2},
    "filters": {"refill": {"type": "dynamic", "max_batches": 1}},
    "evaluation": {"every": 0},
    "checkpointing": {"every": 5},
}
"""A policy that never succeeds, so that the run stops for lack of signal at a step with a checkpoint."""


def last_step(sessions, run_id):
    with sessions() as session:
        return session.get_one(Run, run_id).last_step


@pytest.mark.parametrize("end", ["killed", "asked to stop"])
def test_the_decision_of_a_stop_rule_holds_if_the_trainer_ends_in_that_step(sessions, queued, train, end):
    config = resolve(HOPELESS_CONFIG)
    run_id = queued(config)

    def end_after_the_checkpoint(trainer):
        save = trainer.checkpoints.save

        def save_and_end(*args, **kwargs):
            save(*args, **kwargs)
            if kwargs["step"] == MAX_EMPTY_STEPS:
                trainer.stopping.set()
                if end == "killed":
                    raise ProcessLookupError

        trainer.checkpoints.save = save_and_end

    if end == "killed":
        with pytest.raises(ProcessLookupError):
            train(run_id, config, prepare=end_after_the_checkpoint)
        with sessions.begin() as session:
            lifecycle.release_run(session, run_id, 1, "lost")
        outcome = train(run_id, config)
    else:
        outcome = train(run_id, config, prepare=end_after_the_checkpoint)
    assert (outcome, last_step(sessions, run_id)) == (Outcome("stopped", "no_signal"), MAX_EMPTY_STEPS)

    with sessions.begin() as session:
        lifecycle.resume_run(session, run_id)
    train(run_id, config)
    assert last_step(sessions, run_id) == MAX_EMPTY_STEPS + 1  # the user resumes it

    fork = queued(config, parent=run_id, step=MAX_EMPTY_STEPS)
    train(fork, config)
    assert last_step(sessions, fork) == MAX_EMPTY_STEPS + 1


def scale_loss(monkeypatch, *, step, value):
    """Multiply the loss of that step by `value`, or of every step if it is None, and thus its gradient."""
    learn, learned_steps = Learner.learn, []

    def learning(self, collected, generator, update_stats, **kwargs):
        learned_steps.append(update_stats.step)
        return learn(self, collected, generator, update_stats, **kwargs)

    def compute_scaled_loss(*args, **kwargs):
        update = policy_loss(*args, **kwargs)
        return update._replace(loss=update.loss * value) if step in (None, learned_steps[-1]) else update

    monkeypatch.setattr(Learner, "learn", learning)
    monkeypatch.setattr(passes, "policy_loss", compute_scaled_loss)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_nonfinite_update_is_skipped_reported_and_stored_unchanged(
    sessions, queued, train, monkeypatch, value
):
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    scale_loss(monkeypatch, step=3, value=value)
    assert train(run_id, config) == Outcome("finished")
    recorded_series = series(sessions, run_id)
    assert recorded_series["optim/skipped"] == {1: 0, 2: 0, 3: 1, 4: 0}
    assert recorded_series["optim/grad_norm"][3] is None
    assert math.isfinite(recorded_series["optim/grad_norm"][4])
    with sessions() as session:
        alerts = session.scalars(select(Event).where(Event.kind == "alert")).all()
        kinds = session.scalars(select(Metric.kind).where(Metric.value.is_(None), Metric.step == 3))
        assert set(kinds) <= {1, 2, 3}
    assert [(alert.step, alert.message) for alert in alerts] == [
        (3, "1 updates skipped: loss or gradient is not finite")
    ]


def test_repeated_nonfinite_updates_fail_the_run(queued, train, monkeypatch):
    config = resolve(SMALL_CONFIG | {"stop_rules": [{"type": "non_finite", "patience": 2}]})
    scale_loss(monkeypatch, step=None, value=math.nan)
    outcome = train(queued(config), config)
    assert outcome == Outcome("failed", "2 steps in a row had no finite loss or gradient")


def test_a_run_without_steps_evaluates_its_initial_weights(sessions, queued, train):
    config = resolve(SMALL_CONFIG)
    trained_run = queued(config)
    train(trained_run, config)
    question = resolve(SMALL_CONFIG | {"steps": 0})
    evaluation = queued(question, parent=trained_run, step=4)
    assert train(evaluation, question) == Outcome("finished")
    answer = series(sessions, evaluation)
    assert answer["eval/accuracy"] == {0: series(sessions, trained_run)["eval/accuracy"][4]}
    assert "reward/mean" not in answer


@pytest.mark.parametrize("preset", first_in_gate(8, METHOD_PRESETS))
def test_every_preset_trains_on_the_tiny_policy(sessions, queued, train, preset):
    sampling = {"max_new_tokens": 40} | ({} if preset in BOOK else {"prompts_per_step": 8, "group_size": 2})
    evaluation = {"every": 2, "prompts": 2}
    config = resolve({"preset": preset, "steps": 2, "sampling": sampling, "evaluation": evaluation})
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    recorded_series = series(sessions, run_id)
    pretrains = config.objective.value.pretrain_steps > 0
    assert np.isfinite(list(recorded_series["critic/loss" if pretrains else "loss/total"].values())).all()
