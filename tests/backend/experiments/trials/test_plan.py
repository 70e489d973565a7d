"""Tests of the parts of a trial plan that need no database."""

import numpy as np

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.log import Log
from backend.config.merge import nest_paths
from backend.experiments.trials.plan import default_arms, first_alarm, last_healthy
from tests.backend.analysis.diagnosis.logs import change_series, healthy

CONFIG = {"optimizer": {"lr": 3e-4}}


def collapsed_diagnosis():
    log = change_series(healthy(), 70, policy__entropy=lambda values: values * 4)
    log = change_series(log, 75, reward__accuracy=lambda values: values * 0.05)
    return Log(log.series, CONFIG)


def test_the_alarm_is_the_first_step_at_which_the_log_so_far_has_a_bad_verdict():
    log = collapsed_diagnosis()
    diagnosis = diagnose(log)
    alarm = first_alarm(log, diagnosis)

    def verdict(step):
        log_so_far = Log({name: series.between(0, step) for name, series in log.series.items()}, CONFIG)
        return diagnose(log_so_far).outcome.verdict

    assert verdict(alarm) in {"declining", "collapsed"}
    assert verdict(alarm - 1) not in {"declining", "collapsed"}
    assert 75 < alarm < 90


def test_a_run_that_never_learned_has_its_alarm_at_its_end():
    flat_series = healthy().series | {
        "reward/accuracy": change_series(healthy(), 0, reward__accuracy=lambda v: v * 0 + 0.2).series[
            "reward/accuracy"
        ]
    }
    log = Log(flat_series, CONFIG)
    diagnosis = diagnose(log)
    assert diagnosis.outcome.verdict == "never_learned"
    assert first_alarm(log, diagnosis) == 120
    assert last_healthy(diagnosis) <= 1


def test_a_fork_starts_before_the_first_signal_and_before_the_fall():
    diagnosis = diagnose(collapsed_diagnosis())
    assert last_healthy(diagnosis) <= min(diagnosis.onset.healthy, diagnosis.outcome.onset.healthy) <= 71


def test_the_arms_are_the_remedy_and_the_first_rival_with_a_config_change():
    log = collapsed_diagnosis()
    (arm,) = default_arms(diagnosis := diagnose(log), diagnosis.causes[0])
    assert (arm.name, arm.changes) == ("remedy", {"optimizer.lr": 1e-4})
    mismatch = np.full(120, 1e-4)
    mismatch[70:] = 0.5
    series = log.series | {"mismatch/k3": type(log.series["optim/lr"])(np.arange(1, 121), mismatch)}
    diagnosis = diagnose(Log(series, CONFIG))
    unexplained = [cause for cause in diagnosis.causes if not cause.explained_by]
    arms = default_arms(diagnosis, unexplained[0])
    assert [arm.changes for arm in arms] == [
        cause.remedy.changes for cause in unexplained if cause.remedy.changes
    ][:2]


def test_fields_by_dotted_path_become_a_config():
    changes = {
        "objective.kl": {"type": "k3", "coef": 1.0},
        "optimizer.lr": 1e-4,
        "optimizer.eps": 1,
        "steps": 3,
    }
    assert nest_paths(changes) == {
        "objective": {"kl": {"type": "k3", "coef": 1.0}},
        "optimizer": {"lr": 1e-4, "eps": 1},
        "steps": 3,
    }
    assert nest_paths({"a..b": 1, "": 2}) == {"a": {"": {"b": 1}}, "": 2}
