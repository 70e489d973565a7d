"""Tests of the import of exports from tracking services and of completion dumps from other trainers."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import pytest

from backend.exchange.imports.command import _open_input
from backend.exchange.imports.formats import read_logs
from backend.exchange.imports.plan import plan_import
from backend.exchange.imports.table import BadLog


def logs(text, name="log"):
    return read_logs(io.BytesIO(text if isinstance(text, bytes) else text.encode()), name)[1]


def curves(log):
    return {
        name: dict(zip(*map(list, series), strict=True)) for name, series in plan_import(log).series.items()
    }


def make_zip(files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()


def test_an_mlflow_export_holds_one_value_per_row():
    rows = ["reward,0.5,1,17,a", "kl,0.25,1,17,a", "reward,0.75,2,17,a", "reward,1,1,17,b"]
    first, second = logs("\n".join(["key,value,step,timestamp,run_id", *rows]))
    assert curves(first) == {"reward/mean": {1: 0.5, 2: 0.75}, "kl/k3": {1: 0.25}}
    assert (second.metadata.name, curves(second)) == ("b", {"reward/mean": {1: 1.0}})
    metrics = [{"key": "reward", "value": step / 4, "step": step, "timestamp": 17} for step in (1, 2)]
    assert curves(logs(json.dumps({"metrics": metrics}))[0]) == {"reward/mean": {1: 0.25, 2: 0.5}}


def test_the_metric_files_of_an_mlflow_run_are_one_run():
    values = {"reward": (0.5, 0.75), "train/kl": (0.25, 0.5)}
    files = {
        f"mlruns/1/calm-crab/metrics/{name}": "".join(
            f"{1700000000000 + step} {value} {step}\n" for step, value in enumerate(pair, 1)
        )
        for name, pair in values.items()
    }
    [log] = logs(make_zip({**files, "mlruns/1/calm-crab/params/lr": "1e-6"}))
    assert log.metadata.name == "calm-crab"
    assert curves(log) == {"reward/mean": {1: 0.5, 2: 0.75}, "kl/k3": {1: 0.25, 2: 0.5}}
    [single_log] = logs(files["mlruns/1/calm-crab/metrics/reward"], "reward")
    assert curves(single_log) == {"reward/mean": {1: 0.5, 2: 0.75}}


def test_tensorboard_curve_exports_are_named_by_their_files_and_make_one_run():
    table = "Wall time,Step,Value\n1700000000.5,1,0.5\n"
    names = {
        f"run-a-tag-{tag}.csv": table for tag in ("train_reward", "train_completions_mean_length", "mine")
    }
    names["run-a-tag-train_kl.json"] = "[[1700000000.5, 1, 0.5], [1700000009.5, 2, 0.75]]"
    [log] = logs(make_zip(names))
    assert log.metadata.name == "a"
    assert curves(log) == {name: {1: 0.5} for name in ("length/mean", "mine", "reward/mean")} | {
        "kl/k3": {1: 0.5, 2: 0.75}
    }


def test_the_printed_output_of_a_wandb_run_is_not_a_second_run():
    printed = "step=1 reward=0.5\nstep=2 reward=0.75\n"
    history = (Path(__file__).parent / "logs" / "run.wandb").read_bytes()
    files = {"run-1/run.wandb": history, "run-1/files/output.log": printed}
    assert [log.origin for log in logs(make_zip(files))] == ["wandb"]
    assert [log.origin for log in logs(make_zip({"run-1/files/output.log": printed}))] == ["text"]


def test_several_files_are_read_like_an_archive_of_them(tmp_path):
    for number in (1, 2):
        (tmp_path / f"{number}.log").write_text(f"step=1 reward={number}\nstep=2 reward=1\n")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with _open_input([tmp_path]) as file:
        assert [log.metadata.name for log in read_logs(file)[1]] == ["1", "2"]


def test_a_wandb_chart_is_read_over_any_counter_and_refused_over_time():
    table = ",a - b - reward,a - b - reward__MIN,a - b - reward__MAX\n1,0.5,0.5,0.5\n2,1,1,1\n"
    [log] = logs(f"train/global_step{table}")
    assert (log.metadata.name, curves(log)) == ("a - b", {"reward/mean": {1: 0.5, 2: 1.0}})
    [first, second] = logs("step,a - reward,b - reward,b - reward_timestamp\n1,0.5,0.25,17\n2,1,0.75,18\n")
    assert (first.metadata.name, curves(first)) == ("a", {"reward/mean": {1: 0.5, 2: 1.0}})
    assert (second.metadata.name, curves(second)) == ("b", {"reward/mean": {1: 0.25, 2: 0.75}})
    with pytest.raises(BadLog, match="set the chart's x axis to Step"):
        logs(f"Relative Time (Process){table}")


QUESTION = {"role": "user", "content": "1+1="}
DUMPS = {
    "completions.jsonl": {
        "step": ["3", "3"],
        "prompt": [[QUESTION], [QUESTION]],
        "completion": ["2", "3"],
        "Accuracy": [1.0, 0.0],
        "advantages": [1.0, -1.0],
    },
    "train_data_step3.jsonl": {"content": ["1+1=", "2"], "rewards": 1.0, "input_lengths": 9},
    "3/task.jsonl": {"prompt": "1+1=", "completion": "2", "reward": 1.0, "tail_version": 3},
    "dumped_evals/global_step_3_evals/gsm8k.jsonl": {
        "input_prompt": "1+1=",
        "output_response": "2",
        "score": [0.0, 1.0],
        "data_source": "gsm8k",
    },
    "rollouts/step_3/train/effective/traces.jsonl": {
        "nodes": [{"message": QUESTION}, {"message": {"role": "assistant", "content": "2"}}],
        "rewards": {"correct": 1.0},
    },
}


def test_completions_of_every_dump_have_their_texts_reward_and_step():
    for name, row in DUMPS.items():
        [log] = logs(json.dumps(row) + "\n", name)
        first = log.completions.samples[0]
        assert (first.step, first.prompt, first.completion, first.reward) == (3, "1+1=", "2", 1.0), name
        assert first.split == ("eval" if "eval" in name else "train"), name


def torch_file(document, name="rollout_3"):
    return make_zip({f"{name}/data.pkl": pickle.dumps(document, protocol=2), f"{name}/version": "3"})


def test_slime_rollouts_are_read_from_torch_files_without_torch():
    samples = [
        {"prompt": [QUESTION], "response": "2", "label": "2", "reward": 1.0, "tokens": [1], "status": "ok"}
    ]
    [log] = logs(torch_file({"rollout_id": 3, "samples": [*samples, "no sample"]}), "rollout_eval_3.pt")
    [sample] = log.completions.samples
    assert (sample.step, sample.prompt, sample.completion, sample.answer) == (3, "1+1=", "2", "2")
    assert (sample.reward, sample.split, log.origin, log.table.bad.count) == (1.0, "eval", "slime", 1)


class Hostile:
    def __reduce__(self):
        return (print, ("called",))


def test_a_torch_file_with_anything_but_plain_values_is_refused_and_calls_nothing(capfd):
    hostile_dump = {"rollout_id": 3, "samples": [{"response": "2", "metadata": Hostile()}]}
    with pytest.raises(BadLog, match=r"^holds objects of __builtin__\.print, which are not read$"):
        logs(torch_file(hostile_dump))
    with pytest.raises(BadLog, match=r"^is a file of torch without samples"):
        logs(torch_file({"weight": [1.0]}))
    assert "called" not in capfd.readouterr().out


def test_completions_of_each_step_belong_to_the_run_above_them():
    traces = json.dumps(DUMPS["rollouts/step_3/train/effective/traces.jsonl"])
    files = {f"run/rollouts/step_{step}/train/all/traces.jsonl": traces for step in (3, 4)}
    [log] = logs(
        make_zip(files | {"run/metrics.jsonl": '{"step": 3, "reward": 0.5}\n{"step": 4, "reward": 1}\n'})
    )
    assert [sample.step for sample in log.completions.samples] == [3, 4]
    assert curves(log)["reward/mean"] == {3: 0.5, 4: 1.0}


TOKEN_EXPORT = {
    "export_step": 3,
    "token_ids": [5, 6, 7],
    "loss_mask": [False, True, True],
    "trainer_logprobs": [0.0, -1.0, -2.0],
    "rewards": [1.0, 1.0, 1.0],
    "entropy": [9.0, 0.25, 0.75],
    "mismatch_kl": None,
}
EXPECTED_MEANS = {"length/mean": {3: 2.0}, "reward/mean": {3: 0.5}, "policy/entropy": {3: 0.5}}


def test_a_token_export_gives_the_means_over_the_trained_tokens():
    rows = [TOKEN_EXPORT, TOKEN_EXPORT | {"rewards": [0.0, 0.0, 0.0]}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    [log] = logs(text, "token_exports/step_3/rank_0.jsonl")
    assert curves(log) == EXPECTED_MEANS
    ranks = {f"out/token_exports/step_3/rank_{rank}.jsonl": text for rank in (0, 1)}
    [log] = logs(make_zip(ranks | {"out/metrics.jsonl": '{"step": 3, "reward/all/mean": 0.75}\n'}))
    assert curves(log) == EXPECTED_MEANS | {"reward/mean": {3: 0.75}}
