"""Tests of the push client against a real service: every record arrives once, despite any failure."""

import errno
import json
import os
import re
import subprocess
import sys
import time
import types
import urllib.error
from email.message import Message
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from backend.base.settings import Settings
from backend.exchange.push.api import CLIENT
from backend.http.auth.tokens import writer_token
from backend.storage.models import RolloutGroup
from tests.browser.service import VIEWER_TOKEN, running_service
from tests.stored_points import stored_points
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def push_service(state):
    with running_service(state, writes_per_second=0) as service:
        yield service


@pytest.fixture(scope="module")
def token(state):
    return writer_token(Settings(state_dir=state), "node")


@pytest.fixture
def run(grpolab, push_service, token, request):
    name = re.sub(r"\W+", "-", request.node.name)[:100]
    return grpolab.init(push_service.base, token, id=name, name=name)


def run_by_name(push_service, name):
    items = push_service.get("/runs", q=name)["items"]
    return next((run for run in items if run["name"] == name), None)


def fetch_values_by_step(push_service, run, metric="reward/mean"):
    document = push_service.get("/series", runs=run["id"], metrics=metric)
    return dict(zip(document["series"][0]["steps"], document["series"][0]["values"], strict=True))


def record_pauses(run, monkeypatch):
    """Return the list of pauses that the run's thread makes from now on, which are shortened."""
    pauses, wait = [], run._closing.wait

    def wait_briefly(seconds):
        pauses.append(seconds)
        return wait(0.02)

    monkeypatch.setattr(run._closing, "wait", wait_briefly)
    return pauses


def files(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


def test_logged_records_arrive_and_no_files_remain(run, push_service, tmp_path, capsys):
    for step in range(1, 30):
        run.log({"reward": step, "kl": float("inf"), "word": "x", "flag": True}, step=step)
    run.log_completions([{"prompt": "p", "completion": [{"role": "assistant", "content": "hi"}]}] * 4)
    assert run.finish()
    stored_run = run_by_name(push_service, run.id)
    assert (stored_run["status"], stored_run["last_step"]) == ("finished", 30)
    assert fetch_values_by_step(push_service, stored_run) == {step: float(step) for step in range(1, 30)}
    assert stored_run["summary"]["last"]["kl/k3"] == "Infinity"
    (group,) = push_service.get("/rollouts", run=stored_run["id"])["items"]
    assert [completion["text"] for completion in group["completions"]] == ["hi"] * 4
    assert files(tmp_path) == []
    assert capsys.readouterr().err == f"grpolab: the run is at {push_service.base}/run/{stored_run['id']}\n"
    with pytest.raises(ValueError, match="the run is finished"):
        run.log({"reward": 1})


def test_a_response_can_only_print_an_id_to_the_terminal(grpolab, capsys):
    for run in ("\x1b[2J", "a b", 7, None, ["x"]):
        grpolab._Service("http://h", "t")._show(run)
    assert capsys.readouterr().err == ""


def test_a_script_reports_at_its_end_that_it_waits_for_the_service(grpolab, token, capsys):
    run = grpolab.init("http://127.0.0.1:9", token)
    run.log({"reward": 1})
    assert not run.finish(seconds=2.5)
    output = capsys.readouterr().err
    assert "waiting up to 2.5 s until http://127.0.0.1:9 has stored everything" in output
    assert "has not confirmed everything" in output


def test_lost_responses_duplicate_nothing(grpolab, run, push_service, monkeypatch):
    post, responses = grpolab._Service._post, []

    def losing(self, spool, lines):
        responses.append(post(self, spool, lines))
        if len(responses) % 3:
            raise OSError(errno.ECONNRESET, "reset")
        return responses[-1]

    monkeypatch.setattr(grpolab._Service, "_post", losing)
    for step in range(1, 20):
        run.log({"reward": step}, step=step)
        run.log_completions([{"prompt": f"p{step}", "completion": "c"}] * 2, step=step)
        time.sleep(0.01)
    assert run.finish()
    assert len(responses) >= 3  # two responses were lost
    stored_run = run_by_name(push_service, run.id)
    assert fetch_values_by_step(push_service, stored_run) == {step: float(step) for step in range(1, 20)}
    with push_service.sessions() as session:
        assert len(stored_points(session, stored_run["id"])) == 19 * 8  # the reward and seven text metrics
        groups = select(func.count()).select_from(RolloutGroup).where(RolloutGroup.run_id == stored_run["id"])
        assert session.scalar(groups) == 19


def test_only_the_refused_record_is_dropped(run, push_service, capsys):
    run.log({"reward": 1}, step=1)
    run._spools[-1].append({"kind": "metrics", "step": -5, "values": {"reward": 5}})
    run.log({"reward": 2}, step=2)
    assert run.finish()
    assert fetch_values_by_step(push_service, run_by_name(push_service, run.id)) == {1: 1.0, 2: 2.0}
    assert capsys.readouterr().err.count("a record is refused and left out") == 1


def test_long_names_are_cut_and_an_invalid_seed_is_dropped(grpolab, push_service, token, capsys):
    long_names = {"name": "too-long-" + "x" * 250, "experiment": "e" * 201, "variant": "v" * 201}
    run = grpolab.init(push_service.base, token, **long_names, seed=2**31, steps=10)
    run.log({"reward": 1}, step=1)
    assert run.finish()
    stored_run = run_by_name(push_service, long_names["name"][:200])
    assert (stored_run["experiment_name"], stored_run["variant"]) == ("e" * 200, "v" * 200)
    assert (stored_run["seed"], stored_run["steps"], fetch_values_by_step(push_service, stored_run)) == (
        0,
        10,
        {1: 1.0},
    )
    output = capsys.readouterr().err
    assert output.count("name: expected at most 200 characters, got 259: it is cut") == 1
    assert (
        output.count("seed: expected a whole number from 0 to 2147483647, got 2147483648: it is left out")
        == 1
    )


def test_a_config_with_too_many_values_is_dropped_and_the_run_arrives(grpolab, push_service, token, capsys):
    config = {"table": [0] * 250_001}
    run = grpolab.init(push_service.base, token, id="long-config", config=config)
    run.log({"reward": 1}, step=1)
    assert run.finish(seconds=5)
    assert fetch_values_by_step(push_service, run_by_name(push_service, "long-config")) == {1: 1.0}
    output = capsys.readouterr().err
    assert output.count("config: expected at most 400,000 bytes of JSON, got 500,013: it is left out") == 1
    assert "refuse" not in output


@pytest.mark.parametrize("records", [1, 3])
def test_a_refused_run_is_sent_again_after_a_pause_with_all_records(
    grpolab, push_service, token, monkeypatch, capsys, records
):
    post, posts = grpolab._Service._post, []

    def count_and_post(self, spool, lines):
        posts.append(len(lines))
        return post(self, spool, lines)

    monkeypatch.setattr(grpolab._Service, "_post", count_and_post)
    monkeypatch.setattr(grpolab, "MAX_PAUSE_SECONDS", 0.5)
    name = f"refused-{records}"
    run = grpolab.init(push_service.base, token, id=name, name=name, origin="nobody")
    pauses = record_pauses(run, monkeypatch)
    for step in range(1, records + 1):
        run.log({"reward": step}, step=step)
    wait_for(lambda: len(pauses) >= 3)
    assert set(pauses) == {0.5}
    assert len(posts) <= len(pauses) + 2  # it may have been in the first pause, and be in the next request
    output = capsys.readouterr().err
    assert output.count("refuses the run (422): run.origin: ") == 1
    assert "left out" not in output
    run._spools[0].head["run"]["origin"] = "script"
    assert run.finish()
    assert fetch_values_by_step(push_service, run_by_name(push_service, name)) == {
        step: float(step) for step in range(1, records + 1)
    }


def test_a_refusal_that_persists_without_the_record_does_not_blame_it(grpolab, run, monkeypatch):
    posts = []

    def refuse(_service, spool, lines):
        posts.append(list(lines))
        raise urllib.error.HTTPError("http://h", 422, "Unprocessable", Message(), None)

    monkeypatch.setattr(grpolab._Service, "_post", refuse)
    monkeypatch.setattr(grpolab, "MAX_PAUSE_SECONDS", 0.5)
    pauses = record_pauses(run, monkeypatch)
    run.log({"reward": 1}, step=1)
    wait_for(lambda: pauses.count(0.5) >= 3)
    assert posts[-1] == [b"null"]
    assert posts.count([b"null"]) <= len(pauses) + 2
    run.finish(seconds=0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("no-such-token", "refuses the run (401): the token is not valid"),
        (VIEWER_TOKEN, "(403): viewers cannot push runs"),
    ],
)
def test_a_wrong_token_prints_a_sentence_and_loses_no_data(
    grpolab, push_service, token, tmp_path, wrong, sentence
):
    name = f"token-{len(sentence)}"
    body = """
for step in range(1, 6):
    run.log({'reward': step}, step=step)
while not run._service._told:
    time.sleep(.02)
assert not run.finish(seconds=2)
"""
    process = start_script(push_service.base, wrong, tmp_path, name, body, stderr=subprocess.PIPE)
    output = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert output.count(sentence) == 1
    assert wrong not in output
    assert run_by_name(push_service, name) is None
    assert [reason for _, reason in grpolab.send_left(tmp_path / "grpolab", token, push_service.base)] == [""]
    assert fetch_values_by_step(push_service, run_by_name(push_service, name)) == {
        step: float(step) for step in range(1, 6)
    }
    assert run_by_name(push_service, name)["status"] == "finished"
    assert files(tmp_path) == []


def test_a_script_with_the_same_id_first_sends_leftover_records(grpolab, push_service, token, tmp_path):
    body = "for step in range(1, 8): run.log({'reward': step}, step=step)\nos._exit(0)"
    start_script("http://127.0.0.1:9", token, tmp_path, "same-id", body, stderr=subprocess.DEVNULL).wait(60)
    second_run = grpolab.init(push_service.base, token, id="same-id", name="same-id")
    for step in range(5, 10):
        second_run.log({"reward": -step}, step=step)
    assert second_run.finish()
    expected = {
        **{step: float(step) for step in range(1, 5)},
        **{step: -float(step) for step in range(5, 10)},
    }
    assert fetch_values_by_step(push_service, run_by_name(push_service, "same-id")) == expected


def test_the_script_learns_of_the_stop_button(run, push_service):
    run.log({"reward": 1}, step=1)
    stored_run = wait_for(lambda: run_by_name(push_service, run.id))
    push_service.client.post(f"/runs/{stored_run['id']}/stop")
    run.log({"reward": 1}, step=2)
    wait_for(run.should_stop)
    assert run.finish("stopped")
    assert run_by_name(push_service, run.id)["status"] == "stopped"


def test_a_long_file_is_replaced_once_it_is_stored(grpolab, run, push_service, tmp_path, monkeypatch):
    monkeypatch.setattr(grpolab, "FILE_BYTES", 2_000)
    generations = set()
    for step in range(1, 60):
        run.log({"reward": step}, step=step)
        generations.add(run._spools[-1].path)
        time.sleep(0.02)
    assert run.finish()
    assert len(generations) > 1
    assert fetch_values_by_step(push_service, run_by_name(push_service, run.id)) == {
        step: float(step) for step in range(1, 60)
    }
    assert files(tmp_path) == []


def test_a_full_disk_keeps_records_in_memory_until_there_is_room(
    grpolab, run, push_service, monkeypatch, capsys
):
    real_write, is_full = os.write, [True]

    def write(descriptor, data):
        if is_full[0] and descriptor == run._spools[-1]._writing:
            if len(data) > 40:
                real_write(descriptor, data[:10])  # truncated in the middle
                return 10
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    for step in range(1, 6):
        run.log({"reward": step}, step=step)
    is_full[0] = False
    run.log({"reward": 6}, step=6)
    assert run.finish()
    assert fetch_values_by_step(push_service, run_by_name(push_service, run.id)) == {
        step: float(step) for step in range(1, 7)
    }
    assert capsys.readouterr().err.count("records wait in memory") == 1


def test_memory_is_bounded_while_nothing_can_be_written(grpolab, run, monkeypatch, capsys):
    def raise_disk_full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(grpolab, "MAX_HELD_BYTES", 10_000)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", raise_disk_full)
        for step in range(1, 1_000):
            run.log({"reward": step}, step=step)
    assert sum(map(len, run._spools[-1].held)) <= 10_000
    assert "from here on some are lost" in capsys.readouterr().err
    assert run.finish()


def test_secrets_stay_out_of_the_file(grpolab, tmp_path):
    config = {"hub_token": "sesame-open", "nested": [{"API_KEY": "sesame-open"}], "lr": 1, "tokens": 3}
    run = grpolab.init("http://127.0.0.1:9", "the-secret-token", id="r", config=config)
    (path,) = files(tmp_path)
    text = path.read_text()
    assert "sesame-open" not in text
    assert "the-secret-token" not in text
    assert json.loads(text.splitlines()[0])["run"]["config"]["tokens"] == 3
    assert path.stat().st_mode & 0o777 == 0o600
    run.finish(seconds=0)


@pytest.mark.parametrize(
    "url", ["ftp://x", "127.0.0.1:8400", "http://user:pw@host", "http://h/?q=1", "http://"]
)
def test_an_invalid_address_is_refused_at_once(grpolab, url):
    with pytest.raises(ValueError, match=r"^url: "):
        grpolab.init(url, "t")


def test_files_of_other_users_are_ignored(grpolab, tmp_path):
    for name, text in {
        "a": "",
        "b": "[]\n",
        "c": '{"id": "../../x", "run": {}, "url": "http://h"}\n',
        "d": "{",
    }.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    reasons = [reason for _, reason in grpolab.send_left(tmp_path, "t", "http://h")]
    assert len(reasons) == 4
    assert all("not a file of this client" in reason for reason in reasons)
    assert len(files(tmp_path)) == 4


def test_the_token_is_never_sent_to_an_address_from_a_file(
    grpolab, push_service, token, tmp_path, monkeypatch, capsys
):
    start_script("http://127.0.0.1:9", token, tmp_path, "left", "run.log({'kl': 1}); os._exit(0)").wait(60)
    monkeypatch.setenv("GRPOLAB_URL", push_service.base)
    monkeypatch.setenv("GRPOLAB_TOKEN", token)
    monkeypatch.setattr(sys, "argv", ["grpolab.py", "send", "grpolab"])
    assert grpolab.main() == 1
    assert "is for http://127.0.0.1:9: send it there, or elsewhere, with --url" in capsys.readouterr().out
    assert run_by_name(push_service, "left") is None
    monkeypatch.setattr(sys, "argv", ["grpolab.py", "send", "--url", push_service.base, "grpolab"])
    assert grpolab.main() == 0
    assert run_by_name(push_service, "left")["last_step"] == 1


def test_a_run_in_the_trash_stops_its_script_and_accepts_nothing(run, push_service, tmp_path, capsys):
    run.log({"reward": 1}, step=1)
    stored_run = wait_for(
        lambda: (stored := run_by_name(push_service, run.id)) and stored["last_step"] and stored
    )
    push_service.client.delete(f"/runs/{stored_run['id']}").raise_for_status()
    run.log({"reward": 2}, step=2)
    wait_for(run.should_stop)
    run.log({"reward": 3}, step=3)
    assert not run.finish("stopped", seconds=5)
    assert capsys.readouterr().err.count("this run is in the trash") == 1
    assert push_service.get(f"/runs/{stored_run['id']}")["last_step"] == 1
    assert len(files(tmp_path)) == 1  # in case the run is restored


def test_an_endless_config_is_dropped(grpolab, tmp_path, capsys):
    deep_config = {}
    for _ in range(5_000):
        deep_config = {"a": deep_config}
    run = grpolab.init("http://127.0.0.1:9", "t", id="r", config=deep_config)
    (path,) = files(tmp_path)
    assert "config" not in json.loads(path.read_text().splitlines()[0])["run"]
    assert "it is left out" in capsys.readouterr().err
    run.finish(seconds=0)


def test_a_batch_holds_at_most_as_many_values_as_the_service_accepts(grpolab, run, push_service, monkeypatch):
    monkeypatch.setattr(grpolab, "MAX_BATCH_VALUES", 10)
    for step in range(1, 20):
        run.log({"reward": 1, "kl": 2, "loss": 3}, step=step)
    lines = run._spools[-1].next_lines()
    assert 1 <= len(lines) <= 3
    assert run.finish()
    assert sorted(fetch_values_by_step(push_service, run_by_name(push_service, run.id))) == list(range(1, 20))


SCRIPT = """
import multiprocessing, os, sys, time
sys.path.insert(0, {client!r})
import grpolab
run = grpolab.init({url!r}, {token!r}, id={id!r}, name={id!r})
{body}
"""


def start_script(url, token, directory, id, body, **kwargs):
    """Start a process that pushes a run."""
    code = SCRIPT.format(client=str(CLIENT.parent), url=url, token=token, id=id, body=body)
    return subprocess.Popen([sys.executable, "-c", code], cwd=directory, text=True, **kwargs)


def test_a_killed_client_loses_nothing_and_its_run_continues(push_service, token, tmp_path):
    endless = """
for step in range(1, 10**9):
    run.log({'reward': step}, step=step)
    print(step, flush=True)
    time.sleep(.005)
"""
    logged_count = 0
    with start_script(
        push_service.base, token, tmp_path, "killed", endless, stdout=subprocess.PIPE
    ) as process:
        while logged_count < 300:
            logged_count = int(process.stdout.readline())
        process.kill()
        logged_count = int((process.stdout.read().split() or [logged_count])[-1])
    assert len(files(tmp_path)) == 1
    # The second script resumes from a slightly older checkpoint.
    body = f"""
for step in range({logged_count - 20}, {logged_count + 20}):
    run.log({{'reward': -step}}, step=step)
run.finish()
"""
    assert start_script(push_service.base, token, tmp_path, "killed", body).wait(60) == 0
    stored_run = run_by_name(push_service, "killed")
    values = fetch_values_by_step(push_service, stored_run)
    assert {step: metric_value for step, metric_value in values.items() if step < logged_count - 20} == {
        step: float(step) for step in values if step < logged_count - 20
    }
    with push_service.sessions() as session:
        assert len(stored_points(session, stored_run["id"])) == logged_count + 19
    assert (stored_run["status"], stored_run["last_step"]) == ("finished", logged_count + 19)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("run.log({'reward': 1}, step=1)", "finished", ""),
        ("raise RuntimeError('out of luck')", "failed", "RuntimeError: out of luck"),
        ("raise KeyboardInterrupt", "stopped", "interrupted"),
        ("with run: raise ValueError('inside')", "failed", "ValueError: inside"),
    ],
)
def test_a_script_that_ends_without_finish_ends_its_run(push_service, token, tmp_path, body, status, reason):
    name = f"end-{status}-{len(body)}"
    start_script(push_service.base, token, tmp_path, name, body, stderr=subprocess.DEVNULL).wait(60)
    stored_run = run_by_name(push_service, name)
    assert (stored_run["status"], stored_run["reason"]) == (status, reason)


def test_a_forked_process_can_log(push_service, token, tmp_path):
    body = """
run.log({'reward': 1}, step=1)
def child():
    run.log({'kl': 2}, step=2)
    while not run._spools[-1].sent:
        time.sleep(.02)
multiprocessing.set_start_method('fork')
other = multiprocessing.Process(target=child)
other.start()
other.join()
run.log({'reward': 3}, step=3)
run.finish()
"""
    assert start_script(push_service.base, token, tmp_path, "forked", body).wait(60) == 0
    stored_run = run_by_name(push_service, "forked")
    assert (stored_run["status"], fetch_values_by_step(push_service, stored_run)) == (
        "finished",
        {1: 1.0, 3: 3.0},
    )
    assert fetch_values_by_step(push_service, stored_run, "kl/k3") == {2: 2.0}


def test_the_client_is_downloaded_with_one_command_and_without_a_token(push_service, tmp_path):
    response = httpx.get(f"{push_service.base}/grpolab.py")
    assert (response.status_code, response.content) == (200, CLIENT.read_bytes())
    assert response.headers["content-type"].startswith("text/x-python")


def fake_verl():
    """Return the two verl classes that `add_to_verl` extends, with the interface that verl documents.

    verl is not installed for the tests. docs/push.md names the version that was tried."""
    tracking: Any = types.ModuleType("verl.utils.tracking")

    class Tracking:
        def __init__(self, project_name, experiment_name, default_backend="console", config=None):  # noqa: ARG002
            self.logger, self.own = {"console": self}, []

        def log(self, data, step, backend=None):
            for name, backend_logger in self.logger.items():
                if backend is None or name in backend:
                    backend_logger.own.append((step, data)) if backend_logger is self else backend_logger.log(
                        data=data, step=step
                    )

    class ValidationGenerationsLogger:
        def log(self, loggers, samples, step):
            self.seen = (loggers, samples, step)

    tracking.Tracking, tracking.ValidationGenerationsLogger = Tracking, ValidationGenerationsLogger
    utils: Any = types.ModuleType("verl.utils")
    utils.tracking = tracking
    return {"verl": types.ModuleType("verl"), "verl.utils": utils, "verl.utils.tracking": tracking}


def test_every_verl_tracking_also_pushes_and_its_loggers_still_run(grpolab, push_service, token, monkeypatch):
    modules = fake_verl()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    tracking: Any = modules["verl.utils.tracking"]
    grpolab.add_to_verl(url=push_service.base, token=token, id="from-verl")
    pushed_tracking = tracking.Tracking(
        "project", "from-verl", default_backend=["console"], config={"lr": 1e-6}
    )
    for step in (1, 2):
        pushed_tracking.log({"critic/rewards/mean": step / 4, "actor/entropy": 0.5}, step=step)
    validation = tracking.ValidationGenerationsLogger()
    validation.log(["console"], [["1+1=", "2", 1.0], ["1+2=", "4", 0.0]], 2)
    assert (len(pushed_tracking.own), validation.seen[2]) == (2, 2)
    pushed_tracking.logger["grpolab"].finish()
    stored_run = run_by_name(push_service, "from-verl")
    assert (stored_run["status"], stored_run["origin"], stored_run["experiment_name"]) == (
        "finished",
        "verl",
        "project",
    )
    assert push_service.get(f"/runs/{stored_run['id']}")["config"] == {"lr": 1e-6}
    assert fetch_values_by_step(push_service, stored_run) == {1: 0.25, 2: 0.5}
    groups = push_service.get("/rollouts", run=stored_run["id"], kind="eval")["items"]
    assert [(group["prompt"], group["completions"][0]["text"], group["reward_mean"]) for group in groups] == [
        ("1+1=", "2", 1.0),
        ("1+2=", "4", 0.0),
    ]


def test_the_callback_continues_in_a_second_training_and_an_evaluation(grpolab, push_service, token):
    callback = grpolab.GRPOLabCallback(push_service.base, token, id="twice", name="twice", completions=0)
    args = types.SimpleNamespace(
        run_name="", to_dict=dict, seed=0, world_size=1, device="cpu", logging_dir="", output_dir=""
    )
    state = types.SimpleNamespace(is_world_process_zero=True, max_steps=4, global_step=0)

    def train(last_step):
        callback.on_train_begin(args, state, None)
        while state.global_step < last_step:
            state.global_step += 1
            callback.on_step_end(args, state, types.SimpleNamespace(should_training_stop=False))
            callback.on_log(args, state, None, {"reward": float(state.global_step)})
        callback.on_train_end(args, state, None)

    train(2)
    train(4)
    callback.on_log(args, state, None, {"eval_accuracy": 0.5})
    callback.on_evaluate(args, state, None)
    stored_run = run_by_name(push_service, "twice")
    assert stored_run["status"] == "finished"
    assert fetch_values_by_step(push_service, stored_run) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
    assert fetch_values_by_step(push_service, stored_run, "eval/accuracy") == {4: 0.5}
