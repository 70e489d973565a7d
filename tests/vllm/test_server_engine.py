"""Tests of the server engine against a real vLLM, on a GPU or a CPU: `make test-vllm`."""

import threading

import pytest
import torch

from backend.base.errors import EngineFailed
from backend.config.adapters import LoraAdapter, NoAdapter
from backend.config.engines import ServerEngine as ServerConfig
from backend.config.sections import PolicyConfig
from backend.storage.engine import new_id, open_read_session
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.verdict import read_record
from tests.vllm.vllm_server import API_KEY, VllmServer, interpreter
from worker.policy.model import load_policy
from worker.prompt import Prompt
from worker.rewards import endpoint
from worker.rollout.engine import encoded_prompts
from worker.rollout.sampler import Decoding
from worker.rollout.server_engine import server_engine
from worker.rollout.spot_check import mismatch

pytestmark = [
    pytest.mark.gpu,  # `make test-gpu` also runs it
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(interpreter() is None, reason="vLLM is not installed: `make test-vllm` does it"),
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MAX_K3 = 0.01 if DEVICE == "cuda" else 1e-6
"""Maximum K3 in nats per token. On a CPU, both compute in float32."""

PROMPTS = [Prompt(str(n), f"{n}+{n}=", str(2 * n), "sums") for n in range(8)]
ADAPTERS = pytest.mark.parametrize(
    "adapter", [NoAdapter(), LoraAdapter(rank=32)], ids=["all weights", "adapter"]
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The server for all tests, since its start takes 20 seconds."""
    new_server = VllmServer(tmp_path_factory.mktemp("vllm"))
    new_server.start()
    yield new_server
    new_server.kill()


@pytest.fixture
def server(shared):
    """A vLLM server with its initial weights."""
    shared.begin_again()
    return shared


@pytest.fixture
def make_engine(server, settings, monkeypatch):
    """A function that makes a run's engine and its policy."""
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)
    engines = []

    def build_engine(adapter, *, key=API_KEY, model="", retries=2):
        engine_settings = {"engine_url": server.url, "engine_api_key": key, "engine_logprobs": "processed"}
        with_server = settings.model_copy(
            update=engine_settings | {"engine_model": model or "small", "models_dir": server.models}
        )
        policy = load_policy(PolicyConfig(name="small", adapter=adapter), with_server, device=DEVICE)
        config = ServerConfig(largest_mismatch=MAX_K3, retries=retries, timeout_seconds=60)
        engines.append(
            server_engine(config, policy, with_server, run_id=new_id(), attempt=1, max_tokens=1024)
        )
        return engines[-1], policy

    yield build_engine
    for engine in engines:
        engine.close()


def learn(policy, seed):
    """Change every trainable weight."""
    noise = torch.Generator(DEVICE).manual_seed(seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.requires_grad:
                weight.add_(0.05 * torch.randn(weight.shape, generator=noise, device=DEVICE))


@ADAPTERS
def test_vllm_samples_with_the_weights_that_it_receives(make_engine, adapter):
    engine, policy = make_engine(adapter)
    engine.check()
    completions = set()
    for version in range(3):
        learn(policy, version)
        engine.sync(version, policy)
        for decoding in (
            Decoding(32),
            Decoding(32, temperature=0.7, top_p=0.9),
            Decoding(32, temperature=1.3, top_k=5),
        ):
            encoded = encoded_prompts(policy, PROMPTS, decoding, ())
            groups = engine.generate(encoded, 4, decoding, torch.Generator().manual_seed(version))
            assert [len(group) for group in groups] == [4] * len(PROMPTS)
            assert {completion.version for group in groups for completion in group} == {version}
            assert mismatch(policy, encoded, groups, decoding) < MAX_K3
            completions |= {tuple(completion.ids.tolist()) for group in groups for completion in group}
    assert len(completions) > 100  # completions of one prompt differ, as do those of several versions
    assert engine.take_metrics()["sampling/engine_retries"] == 0


@ADAPTERS
def test_the_same_seed_samples_the_same_tokens(make_engine, adapter):
    engine, policy = make_engine(adapter)
    engine.check()
    engine.sync(0, policy)
    sampled_twice = [
        engine.sample(PROMPTS, 2, Decoding(24), torch.Generator().manual_seed(3)) for _ in range(2)
    ]
    first, second = (
        [completion.ids.tolist() for group in groups for completion in group] for groups in sampled_twice
    )
    assert first == second


@ADAPTERS
def test_weights_lost_in_a_restart_are_sent_again(server, make_engine, adapter):
    engine, policy = make_engine(adapter)
    engine.check()
    learn(policy, 0)
    engine.sync(0, policy)
    server.kill()
    server.start()
    groups = engine.sample(PROMPTS, 4, Decoding(24), torch.Generator().manual_seed(0))
    assert {completion.version for group in groups for completion in group} == {0}


def test_a_server_killed_while_it_samples_fails_the_run_with_a_reason(server, make_engine):
    engine, policy = make_engine(NoAdapter(), retries=1)
    engine.check()
    engine.sync(0, policy)
    killer = threading.Timer(0.2, server.kill)
    killer.start()
    with pytest.raises(EngineFailed, match="in 2 tries"):
        engine.sample(PROMPTS * 100, 8, Decoding(64), torch.Generator())
    killer.join()
    server.start()


def test_a_wrong_key_or_name_is_refused_before_the_first_step(make_engine):
    engine, _ = make_engine(NoAdapter(), key="another-key")
    with pytest.raises(EngineFailed, match="answered with status 401") as error_info:
        engine.check()
    assert "another-key" not in str(error_info.value)
    engine, _ = make_engine(NoAdapter(), model="other")
    with pytest.raises(EngineFailed, match="does not serve the model 'other'"):
        engine.check()


@ADAPTERS
def test_a_run_trains_on_samples_of_vllm(server, capsys, adapter):
    config = {
        "preset": "grpo",
        "steps": 20,
        "policy": {"name": "small", "dtype": "float32", "adapter": adapter.model_dump()},
        "problems": [{"name": "sums", "operands": 2, "low": 1, "high": 60}],
        "rewards": [{"name": "correctness"}, {"name": "length", "weight": 0.1}],
        "sampling": {
            "prompts_per_step": 4,
            "group_size": 4,
            "max_new_tokens": 32,
            "engine": {"type": "server", "largest_mismatch": MAX_K3},
        },
        "optimizer": {"lr": 1e-3},
        "evaluation": {"every": 10, "prompts": 4},
    }
    engine = {"ENGINE_URL": server.url, "ENGINE_API_KEY": API_KEY, "ENGINE_LOGPROBS": "processed"}
    with FaultyInstallation(Kind("sqlite", "filesystem"), workers=0, slots=1) as installation:
        installation.start_worker(MODELS_DIR=str(server.models), **engine)
        (run,) = installation.queue([config])
        installation.wait_until_ended([run])
        assert installation.read(run).reason == ""
        assert installation.read(run).status == "finished"
        with open_read_session(installation.sessions) as session:
            record = read_record(session, run)
    k3 = [record["mismatch/k3", step].value for step in range(1, 21)]
    with capsys.disabled():
        print(f"mismatch/k3 of 20 steps: {min(k3):.1e} to {max(k3):.1e}")
    assert max(map(abs, k3)) < MAX_K3
    assert {record["sampling/engine_retries", step].value for step in range(1, 21)} == {0.0}
