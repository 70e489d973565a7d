"""Tests of the engine alongside the trainer: start, sleep and death of its server, with a fake vLLM."""

import json
import os
import signal
from pathlib import Path

import pytest

from backend.base.errors import EngineFailed
from backend.config.adapters import LoraAdapter
from backend.config.engines import ColocatedEngine as ColocatedConfig
from backend.config.sections import PolicyConfig
from tests.waiting import wait_for
from tests.worker.rollout import fake_vllm
from tests.worker.rollout.test_server_engine import changed_policy, sample_groups
from worker.policy.model import BUILT_IN, load_policy
from worker.rewards import endpoint
from worker.rollout.colocated_engine import ColocatedEngine


@pytest.fixture
def make_engine(settings, state_dir, monkeypatch):
    """A function that makes an engine whose server can sleep, as on a GPU."""
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)
    with_engine = settings.model_copy(update={"engine_python": fake_vllm.install(state_dir)})
    engines = []

    def engine(adapter=None, **changes):
        policy = load_policy(PolicyConfig(**({"adapter": adapter} if adapter else {})), with_engine)
        # the fake's log-probabilities are random
        config = ColocatedConfig(**{"largest_mismatch": 1e6, **changes})
        engines.append(
            ColocatedEngine(
                config, policy, with_engine, model=BUILT_IN["tiny"], run_id="run", attempt=1, max_tokens=64
            )
        )
        engines[-1].can_sleep = True
        return engines[-1]

    yield engine
    for open_engine in engines:
        open_engine.close()


def calls(engine):
    """Return the server's arguments, and the requests since."""
    lines = (engine._command.directory / "calls").read_text().splitlines()
    return [json.loads(line) for line in lines]


def paths(engine):
    """Return the requests that change state since the latest start."""
    paths_called = calls(engine)
    newest_index = max(index for index, call in enumerate(paths_called) if isinstance(call, dict))
    return [call for call in paths_called[newest_index + 1 :] if call != "/tokenize"]


def test_the_server_sleeps_except_to_sample_and_survives_one_death(make_engine):
    sampling = make_engine()
    sentence = sampling.check()
    assert sentence.startswith("vLLM beside the trainer started in ")
    assert "it sleeps while the policy learns" in sentence
    assert paths(sampling) == ["/sleep?level=2"]
    sampling.sync(0, sampling.policy)
    assert paths(sampling)[1:] == [
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/update_weight_version",
        "/wake_up?tags=kv_cache",
    ]
    first = sample_groups(sampling)
    assert {completion.version for group in first for completion in group} == {0}
    sampling.release_memory()
    assert paths(sampling)[-1] == "/sleep?level=2"
    assert sampling.take_metrics()["time/engine_sleep_seconds"] > 0

    changed_policy(sampling.policy, scale=1.0)
    sampling.sync(1, sampling.policy)
    second = sample_groups(sampling)
    assert {completion.version for group in second for completion in group} == {1}
    os.kill(sampling.process.pid, signal.SIGKILL)
    repeated_groups = sample_groups(
        sampling
    )  # in the middle of a batch: restarted with weights and random numbers
    assert [completion.ids.tolist() for group in repeated_groups for completion in group] == [
        completion.ids.tolist() for group in second for completion in group
    ]
    assert sampling.take_metrics()["sampling/engine_restarts"] == 1
    assert "/sleep?level=2" not in paths(sampling)

    os.kill(sampling.process.pid, signal.SIGKILL)
    with pytest.raises(EngineFailed, match="vLLM beside the trainer has died twice in one batch: "):
        sample_groups(sampling)
    directories = [sampling._command.directory, sampling.server.directory]
    assert all(directory.exists() for directory in directories)
    sampling.close()
    assert not any(directory.exists() for directory in directories)


def test_an_adapter_is_loaded_onto_a_base_that_survives_sleep(make_engine):
    sampling = make_engine(LoraAdapter(rank=2))
    sampling.check()
    for version in (0, 1):
        changed_policy(sampling.policy, scale=0.3)
        sampling.sync(version, sampling.policy)
        assert {completion.version for group in sample_groups(sampling) for completion in group} == {version}
        sampling.release_memory()
    requested = paths(sampling)
    assert requested.count("/sleep?level=1") == 3
    assert "/collective_rpc" not in requested
    assert requested[1:4] == ["/wake_up?tags=weights", "/v1/load_lora_adapter", "/wake_up?tags=kv_cache"]
    os.kill(sampling.process.pid, signal.SIGKILL)  # while the policy learns
    wait_for(lambda: not sampling.process.is_running(), "it is gone")
    sampling.release_memory()
    sampling.sync(2, sampling.policy)
    assert {completion.version for group in sample_groups(sampling) for completion in group} == {2}


def test_the_server_starts_with_the_policy_and_without_the_trainers_secrets(make_engine, monkeypatch):
    for name in ("ENGINE_API_KEY", "JUDGE_API_KEY", "HF_TOKEN", "DATABASE_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "canary")
    sampling = make_engine(LoraAdapter(rank=9), memory_share=0.3)
    arguments = {"engine_arguments": "--block-size 16 --name 'a b'"}
    sampling.settings = sampling.settings.model_copy(update=arguments)
    sampling.check()
    argv, variables = sampling._command.argv, calls(sampling)[0]["variables"]
    command_line = " ".join(argv[3:])
    assert "canary" not in str(variables)
    assert variables["VLLM_API_KEY"] == sampling.client.api_key
    assert variables["VLLM_API_KEY"] not in command_line
    assert command_line.startswith(f"--model {BUILT_IN['tiny']} --served-model-name policy --uds ")
    for expected in ("--dtype float32", "--gpu-memory-utilization 0.3", "--enable-lora --max-lora-rank 16"):
        assert expected in command_line
    assert argv[-4:] == ["--block-size", "16", "--name", "a b"]  # the operator's arguments take precedence
    assert "--enable-sleep-mode" not in command_line  # on a CPU
    assert "--port" not in command_line


def test_directories_of_killed_attempts_are_removed_and_socket_paths_are_short(
    make_engine, monkeypatch, state_dir
):
    monkeypatch.setattr("tempfile.tempdir", str(state_dir))
    leftover_directory = state_dir / "grpolab-run-left"
    leftover_directory.mkdir()
    monkeypatch.setenv(fake_vllm.FAULT_VARIABLE, "dies")
    with pytest.raises(EngineFailed, match="vLLM did not start"):
        make_engine().check()
    assert not leftover_directory.exists()
    deep_directory = state_dir / ("d" * 90)
    deep_directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep_directory))
    with pytest.raises(EngineFailed, match="TMPDIR is too long a path for the sockets of vLLM"):
        make_engine().check()
    assert list(Path(deep_directory).iterdir()) == []
