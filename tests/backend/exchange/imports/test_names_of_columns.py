"""Tests of the mapping from column names to metrics, by name, values and neighbouring columns."""

import pytest

from tests.backend.exchange.imports.test_text_logs import curve_table, decisions, plan_content, points

METRIC_BY_COLUMN = {
    "Training Loss": "loss/total",
    "completions / mean_length": "length/mean",
    "rewards / match_format": "reward/match_format/mean",
    "completion_length": "length/mean",
    "actor/entropy_loss": "policy/entropy",
    "entropy/mean": "policy/entropy",
    "rollout/raw_reward": "reward/mean",
    "rollout/truncated_ratio": "length/truncated_frac",
    "train/kl_loss": "kl/k3",
    "ppo_actor/task_reward/avg": "reward/mean",
    "mean_reward": "reward/mean",
    "critic/score/mean": "reward/mean",
    "lr": "optim/lr",
    "Avg Response Len": "length/mean",
    "rewards/accuracy_reward/mean": "reward/accuracy",
    "rewards/MathAccuracy/mean": "reward/accuracy",
    "rewards/format_reward": "reward/format_reward/mean",
    "format_reward_avg": "reward/format_reward/mean",
    "accuracy_reward_mean": "reward/accuracy",
    "val-core/openai/gsm8k/reward/mean@1": "eval/accuracy",
    "val-core/math/acc/mean@8": "eval/accuracy",
    "val/test_score/openai/gsm8k": "eval/accuracy",
    "eval_rewards/accuracy_reward/mean": "eval/accuracy",
    "eval/gsm8k/avg_score": "eval/accuracy",
    "train/rewards/accuracy_reward": "reward/accuracy",
    "train accuracy (%)": "reward/accuracy",
    "Grad. Norm": "optim/grad_norm",
    "critic/entropy/mean": "policy/entropy",
    "rollout_answer_accuracy": "reward/accuracy",
    "heldout_answer_acc": "eval/accuracy",
    "dev/pass_rate": "eval/accuracy",
    "rollout_avg_response_token_length": "length/mean",
    "train/reward_mean_all": "reward/mean",
    "avgTokenEntropy": "policy/entropy",
    "train/policy_loss_mean": "loss/policy",
    "actor/pg_clipfrac": "clip/frac",
    "approx_kl": "kl/old",
    "train-rollout KL": "mismatch/k3",
    "train/rollout/kl": "kl/k3",
}


@pytest.mark.parametrize(("column", "metric"), METRIC_BY_COLUMN.items())
def test_a_column_name_of_another_trainer_is_known(column, metric):
    assert list(plan_content(curve_table(**{column: [0.25, 0.5]})).series) == [metric]


@pytest.mark.parametrize(
    "column",
    ["reward_max", "rollout_format_accuracy", "eval_reward", "prompt_length", "num_correct", "kl_coef"],
)
def test_a_name_with_a_word_of_another_quantity_is_kept(column):
    assert list(plan_content(curve_table(**{column: [0.25, 0.5]})).series) == [column]


def test_an_exact_name_comes_before_one_by_its_words():
    plan = plan_content(curve_table(reward_mean_all=[1, 2], reward=[3, 4]))
    assert points(plan, "reward/mean") == {1: 3, 2: 4}
    assert points(plan, "reward_mean_all") == {1: 1, 2: 2}


def test_each_evaluation_set_has_its_accuracy():
    plan = plan_content(
        curve_table(**{f"val-core/{dataset}/acc/mean@1": [0.25, 0.5] for dataset in ("a/b", "c")})
    )
    assert list(plan.series) == ["eval/accuracy/a_b", "eval/accuracy/c"]


def test_a_reward_on_another_scale_is_not_an_accuracy():
    columns = {"rewards/correctness_reward_func": [0, 2.0], "val/test_score/judge": [3.5, 4.0]}
    assert list(plan_content(curve_table(**columns)).series) == [
        "reward/correctness_reward_func/mean",
        "val/test_score/judge",
    ]


def test_accuracies_in_percent_become_fractions_and_the_report_mentions_it():
    plan = plan_content(curve_table(eval_acc=[12.5, 62.5], reward=[1, 2]))
    assert points(plan, "eval/accuracy") == {1: 0.125, 2: 0.625}
    assert plan.log.metadata.notes == [
        "'eval_acc' is in percent, up to 62.5: eval/accuracy holds it as fractions."
    ]
    assert points(plan_content(curve_table(eval_acc=[0.125, 1.0])), "eval/accuracy") == {1: 0.125, 2: 1.0}


def test_normalised_rewards_are_never_used_as_the_reward():
    plan = plan_content(curve_table(**{"rollout/rewards": [0, 0], "rewards": [0, 1e-9], "kl": [0, 1]}))
    assert "reward/mean" not in plan.series


def test_a_metric_under_two_names_is_reported():
    plan = plan_content(curve_table(reward=[1, 2], mean_reward=[1, 2]))
    assert decisions(plan)["mean_reward"] == ("taken", "mean_reward")
    assert plan.log.metadata.notes == ["'mean_reward': reward/mean is already the column 'reward'."]


@pytest.mark.parametrize("column", ["epoch", "progress", "percentage", "time_share", "format_ok", "elapsed"])
def test_a_counter_is_never_suggested_as_accuracy(column):
    plan = plan_content(curve_table(**{column: [step / 40 for step in range(20)]}))
    assert plan.decisions[0].suggestion == ""


def test_rows_without_a_step_are_numbered_and_the_report_mentions_it():
    plan = plan_content("loss,kl\n1,3\n2,1\n3,2\n")
    assert plan.log.metadata.notes == [
        "No column counts the steps: the rows are counted in their order, from 1."
    ]


def test_the_counters_of_rollouts_and_updates_are_combined():
    plan = plan_content(
        "_step,rollout/step,rollout/raw_reward,train/step,train/grad_norm\n0,0,0.5,,\n1,,,0,1\n2,1,0.75,,\n3,,,1,2\n"
    )
    assert (points(plan, "reward/mean"), points(plan, "optim/grad_norm")) == ({0: 0.5, 1: 0.75}, {0: 1, 1: 2})
