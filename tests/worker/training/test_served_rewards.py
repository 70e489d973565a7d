"""Tests of runs on the tiny policy that a judge or tests of programs grade."""

import json

import pytest
from sqlalchemy import select

from backend.base.errors import RewardServerFailed
from backend.config.merge import resolve
from backend.config.metrics import find_metric
from backend.runs import lifecycle
from backend.storage.models import Attempt, Event, MetricKey
from tests.trained_runs import series
from tests.worker.rewards.test_judge import grade, server  # noqa: F401 - fixture
from worker.outcome import Outcome

RUN_CONFIG = {
    "steps": 2,
    "sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 16},
    "evaluation": {"every": 0},
}


@pytest.fixture
def judge(server, monkeypatch):  # noqa: F811 - the fixture above
    monkeypatch.setenv("JUDGE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("JUDGE_MODEL", "judge-7b")
    return server


def test_a_run_is_rewarded_by_its_judge_and_records_the_cost(sessions, queued, train, judge):
    judge.respond = lambda body: grade(len(json.dumps(body)) % 11)(body)
    config = resolve(
        {**RUN_CONFIG, "rewards": [{"name": "correctness"}, {"name": "judge", "criterion": "style"}]}
    )
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    points = series(sessions, run_id)
    assert sorted(points["reward/style/mean"]) == sorted(points["judge/requests"]) == [1, 2]
    assert set(points["judge/requests"].values()) == {8}
    judged_count = sum(round(8 * (1 - share)) for share in points["judge/cached_frac"].values())
    assert len(judge.requests) == judged_count
    assert sum(points["judge/prompt_tokens"].values()) == 10 * judged_count
    with sessions() as session:
        names = session.scalars(select(MetricKey.name))
        assert [name for name in names if find_metric(name) is None] == []


def test_each_attempt_pays_its_judge_once_including_repeated_steps(
    sessions, queued, train, judge, monkeypatch
):
    """Every answer costs 10 x 0.1 + 3 x 0.2. The second step fails after it was judged, and is repeated."""
    monkeypatch.setenv("JUDGE_INPUT_PRICE", "100000")
    monkeypatch.setenv("JUDGE_OUTPUT_PRICE", "200000")
    judge.respond = grade(5)
    changes = {"steps": 2, "checkpointing": {"every": 1}, "evaluation": {"every": 1, "prompts": 4}}
    config = resolve({**RUN_CONFIG, **changes, "rewards": [{"name": "judge"}]})
    run_id = queued(config)
    judged_steps = []

    def fail_at_the_second(trainer):
        learn = trainer._learn

        def learn_once(collected):
            if trainer.counters.step == 2:
                judged_steps.append(len(judge.requests))
                raise RuntimeError("the machine is gone")
            return learn(collected)

        trainer._learn = learn_once

    with pytest.raises(RuntimeError, match="gone"):
        train(run_id, config, prepare=fail_at_the_second)
    with sessions.begin() as session:
        lifecycle.release_run(session, run_id, 1, "lost")
    assert train(run_id, config) == Outcome("finished")
    with sessions() as session:
        query = select(Attempt.judge_cost).where(Attempt.run_id == run_id).order_by(Attempt.number)
        first, second = session.scalars(query)
    assert first == pytest.approx(1.6 * judged_steps[0])
    assert second == pytest.approx(1.6 * (len(judge.requests) - judged_steps[0]))
    cost_by_step = series(sessions, run_id)["judge/cost"]
    assert sorted(cost_by_step) == [0, 1, 2]
    assert cost_by_step[2] == pytest.approx(second)


def test_completions_that_the_judge_omits_are_unscored_and_counted_in_an_event(
    sessions, queued, train, judge
):
    judge.respond = lambda body: grade(5)(body) if len(judge.requests) % 2 else (400, {}, {})
    config = resolve({**RUN_CONFIG, "steps": 1, "rewards": [{"name": "judge"}]})
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    with sessions() as session:
        [message] = [event.message for event in session.scalars(select(Event)) if "unscored" in event.message]
    assert "reward 'judge': it answered with status 400" in message
    assert 0 < series(sessions, run_id)["judge/failed_frac"][1] < 1


def test_an_unreachable_judge_fails_the_run_with_the_setting_to_check(queued, train, judge):
    judge.respond = lambda _: (500, {}, {})
    config = resolve({**RUN_CONFIG, "rewards": [{"name": "judge", "retries": 0}]})
    with pytest.raises(
        RewardServerFailed, match=r"status 500; none of 8 completions was scored, see JUDGE_URL"
    ):
        train(queued(config), config)
