"""Tests of the server engine, against a local server with vLLM's API that can misbehave."""

import logging
import subprocess
import sys
from dataclasses import replace
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from backend.base.errors import EngineFailed
from backend.config.adapters import LoraAdapter
from backend.config.engines import ServerEngine as ServerConfig
from backend.config.sections import PolicyConfig
from worker.policy.model import load_policy
from worker.prompt import Prompt
from worker.rewards import endpoint
from worker.rollout.engine import Interrupted
from worker.rollout.sampler import Decoding
from worker.rollout.server_engine import server_engine
from worker.rollout.spot_check import mismatch

API_KEY = "the-operators-own-key"
PROMPTS = [Prompt(str(n), f"{n}+{n}=", str(2 * n), "sums") for n in range(3)]
DECODING = Decoding(8)


@pytest.fixture(scope="module")
def address():
    """The address of a server that runs during these tests."""
    argv = [sys.executable, "-m", "tests.worker.rollout.engine_server", API_KEY]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


@pytest.fixture
def tell_server(address, monkeypatch):
    """A function that tells the server how to misbehave; the server is reset before and after."""
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)

    def set_behaviour(fault, times=10**9):
        httpx2.post(f"{address}/misbehave", json={"how": fault, "times": times}).raise_for_status()

    set_behaviour("")
    yield set_behaviour
    set_behaviour("")


@pytest.fixture
def fetch_seen(address):
    return lambda: httpx2.get(f"{address}/seen").json()


@pytest.fixture
def make_engine(address, tell_server, settings):
    """A function that makes a run's engine, by default with the policy's weights at version 0."""
    engines = []

    def engine(policy=None, *, version=0, url=address, key=API_KEY, **changes):
        with_server = settings.model_copy(update={"engine_url": url, "engine_api_key": key})
        policy = policy or load_policy(PolicyConfig(), with_server)
        config = ServerConfig(**({"retries": 2, "timeout_seconds": 60} | changes))
        engines.append(server_engine(config, policy, with_server, run_id="run", attempt=1, max_tokens=64))
        if version is not None:
            engines[-1].check()
            engines[-1].sync(version, policy)
        return engines[-1]

    yield engine
    for open_engine in engines:
        open_engine.close()


def sample_groups(engine, *, seed=0, sampling=DECODING) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return engine.sample(PROMPTS, 2, sampling, generator)


def changed_policy(policy, *, scale):
    """Return the policy with changed trainable weights."""
    weights = [weight for weight in policy.model.parameters() if weight.requires_grad]
    with torch.no_grad():
        for number, weight in enumerate(weights):
            noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
            weight.add_(scale * (noise * weight.std() if weight.any() else noise))


def test_completions_carry_the_version_of_the_weights_that_sampled_them(make_engine):
    sampling = make_engine(version=3)
    groups = sample_groups(sampling)
    assert [len(group) for group in groups] == [2, 2, 2]
    encoded = [sampling.policy.encode(prompt, room=8) for prompt in PROMPTS]
    assert mismatch(sampling.policy, encoded, groups, DECODING) < 1e-9
    for group, ids in zip(groups, encoded, strict=True):
        for completion in group:
            assert (completion.version, completion.prompt_tokens) == (3, len(ids))
            assert completion.is_truncated == (
                len(completion) == 8 and completion.ids[-1] not in sampling.policy.stop_ids
            )
            assert completion.text == sampling.policy.tokenizer.decode(
                completion.ids, skip_special_tokens=True
            )
            assert completion.entropies is None
    repeated_groups = sample_groups(sampling)
    assert all(
        np.array_equal(completion.ids, repeated_completion.ids)
        for group, group_again in zip(groups, repeated_groups, strict=True)
        for completion, repeated_completion in zip(group, group_again, strict=True)
    )


def test_new_weights_sample_from_their_version_on_and_old_ones_are_removed(make_engine):
    sampling = make_engine()
    sample_groups(sampling)
    changed_policy(sampling.policy, scale=1.0)
    sampling.sync(1, sampling.policy)
    groups = sample_groups(sampling)  # the spot check compares with the changed weights
    assert {completion.version for group in groups for completion in group} == {1}
    assert [path.name for path in sampling.directory.iterdir()] == ["v1"]
    assert sampling.take_metrics()["time/sync_seconds"] > 0
    sampling.close()
    assert not sampling.directory.exists()


def test_adapters_are_sent_under_a_different_name_for_each_version(make_engine, settings, fetch_seen):
    policy = load_policy(PolicyConfig(adapter=LoraAdapter(rank=2)), settings)
    sampling = make_engine(policy)
    sample_groups(sampling)
    changed_policy(policy, scale=0.3)
    sampling.sync(1, policy)
    sample_groups(sampling)
    assert sorted(set(fetch_seen()["models"])) == ["grpolab-run-1-v0", "grpolab-run-1-v1"]
    assert fetch_seen()["adapters"] == ["grpolab-run-1-v1"]
    sampling.close()
    assert fetch_seen()["adapters"] == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("how", "config", "phrase"),
    [
        ("slow", {"timeout_seconds": 2}, "gave no answer within 2 seconds"),
        ("500", {}, "answered with status 500 (CUDA error)"),
        ("cut", {}, "cannot be reached (RemoteProtocolError)"),
        ("nonsense", {}, "has token ids that the policy's vocabulary of"),
    ],
)
def test_temporary_failures_are_retried_and_permanent_ones_fail_with_a_reason(
    make_engine, tell_server, how, config, phrase
):
    sampling = make_engine(**config)
    tell_server(how, times=1)
    sampling._send(0)  # a told server starts from a clean state
    assert len(sample_groups(sampling)) == 3
    assert sampling.take_metrics()["sampling/engine_retries"] == 1
    assert sampling.take_metrics()["sampling/engine_retries"] == 0
    tell_server(how)
    sampling._send(0)
    with pytest.raises(EngineFailed) as failure:
        sample_groups(sampling)
    assert phrase in failure.value.detail
    assert failure.value.detail.endswith("asked for /v1/completions in 3 tries")


def test_cached_keys_and_values_of_old_weights_are_dropped_before_sampling(make_engine, tell_server):
    sampling = make_engine()
    tell_server("holds", times=1)
    sampling.sync(1, sampling.policy)
    assert sampling.take_metrics()["sampling/engine_retries"] == 1
    tell_server("holds")
    with pytest.raises(EngineFailed, match="still holds keys and values of old weights"):
        sampling.sync(2, sampling.policy)


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 2])
def test_a_server_that_lost_its_weights_gets_them_again_once(make_engine, settings, tell_server, rank):
    adapter = {"adapter": LoraAdapter(rank=rank)} if rank else {}
    sampling = make_engine(load_policy(PolicyConfig(**adapter), settings))
    changed_policy(sampling.policy, scale=0.5)
    sampling.sync(1, sampling.policy)
    tell_server("lost")
    assert {completion.version for group in sample_groups(sampling) for completion in group} == {1}


@pytest.mark.parametrize(
    ("how", "phrase"),
    [
        ("stale", "answers with other weights than it was given"),
        ("wrong_logprobs", "are not those of the policy: k3 is"),
        ("other_model", "are not those of the policy: k3 is"),
    ],
)
def test_other_weights_or_wrong_log_probabilities_fail_before_learning(make_engine, tell_server, how, phrase):
    sampling = make_engine()
    tell_server(how)
    sampling.sync(1, sampling.policy)
    with pytest.raises(EngineFailed, match=phrase):
        sample_groups(sampling)


def test_another_tokenizer_is_detected_before_the_first_step(make_engine, tell_server):
    sampling = make_engine(version=None)
    tell_server("other_tokenizer")
    with pytest.raises(EngineFailed, match="has another tokenizer: it serves another model than the policy"):
        sampling.check()


def test_a_missing_server_is_named_with_its_setting(make_engine):
    sampling = make_engine(version=None, url="http://127.0.0.1:9")
    with pytest.raises(EngineFailed) as failure:
        sampling.check()
    assert failure.value.detail == (
        "the engine at ENGINE_URL cannot be reached (ConnectError), asked for /v1/models in 3 tries"
    )


def test_a_wrong_key_is_not_printed(make_engine, caplog):
    sampling = make_engine(version=None, key="wrong-key-of-the-operator")
    with caplog.at_level(logging.DEBUG), pytest.raises(EngineFailed) as failure:
        sampling.check()
    assert "answered with status 401 (no such key: Bearer [secret])" in failure.value.detail
    assert "wrong-key" not in f"{failure.value.detail}{caplog.text}"


def test_waiting_ends_if_the_completions_are_no_longer_needed(make_engine, tell_server, fetch_seen):
    sampling = make_engine()
    tell_server("slow")
    sampling._send(0)
    sampling.is_unwanted = lambda: "/v1/completions" in fetch_seen()["paths"]
    with pytest.raises(Interrupted):
        sample_groups(sampling)
    sampling.client = replace(sampling.client, is_unwanted=lambda: False)
