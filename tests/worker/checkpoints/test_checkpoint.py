import json
import os
import random
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

from backend.base.settings import Settings
from backend.config.sections import OptimizerConfig, PolicyConfig
from worker.checkpoints.files import (
    BadCheckpoint,
    list_checkpoints,
    load_checkpoint,
    load_weights,
    remove_drafts,
    save_checkpoint,
    verify_checkpoint,
)
from worker.policy.logprobs import token_logprobs
from worker.policy.model import as_policy, load_policy
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.token_batch import token_batch
from worker.problems.sums import Sums
from worker.rollout.sampler import Decoding, Sampler
from worker.state import Stateful
from worker.training.learner import Baseline
from worker.training.randomness import Randomness


class Run:
    """A short training run in which every source of randomness affects the result."""

    def __init__(self, dtype="float32"):
        self.policy = load_policy(PolicyConfig(dtype=dtype), Settings())
        self.optimizer = PolicyOptimizer(
            self.policy.model, OptimizerConfig(lr=1e-3, schedule="linear"), steps=8
        )
        self.generator = torch.Generator().manual_seed(5)
        self.baseline = Baseline(0.5)
        self.parts: dict[str, Stateful] = {
            "optimizer": self.optimizer,
            "random": Randomness({"sampler": self.generator}),
            "baseline": self.baseline,
        }
        self.step = 0

    def train(self, steps):
        for _ in range(steps):
            self.step += 1
            prompts = [Sums(seed=1).sample(2 * self.step + i, "train") for i in range(2)]
            groups = Sampler(self.policy).sample(prompts, 3, Decoding(12), self.generator)
            batch = token_batch(
                [self.policy.encode(prompt.text, room=12) for prompt in prompts for _ in range(3)],
                [completion.ids.tolist() for group in groups for completion in group],
                pad_id=self.policy.pad_id,
            )
            noise = torch.randn(6) + random.random() + float(np.random.rand())  # noqa: NPY002 - libraries use it
            logprobs = token_logprobs(self.policy.model, batch, temperature=1.0).logprobs
            (logprobs.sum(dim=1) * noise).mean().backward()
            self.optimizer.step(self.step)

    def save(self, directory):
        return save_checkpoint(directory, self.policy, self.parts, step=self.step)

    def load(self, directory):
        self.step = load_checkpoint(directory, self.policy, self.parts).step
        return self

    def fingerprint(self):
        weights = [parameter.detach().double().sum().item() for parameter in self.policy.model.parameters()]
        moments = [float(moment.double().sum()) for _, moment in sorted(self.optimizer.tensors().items())]
        return [*weights, *moments, torch.rand(1, generator=self.generator).item(), torch.rand(1).item()]


CONTINUE_SCRIPT = """
import json, sys
from pathlib import Path
from tests.worker.checkpoints.test_checkpoint import Run
for dtype in ("float32", "bfloat16"):
    run = Run(dtype)
    run.load(Path(sys.argv[1]) / dtype)
    run.train(2)
    print(json.dumps(run.fingerprint()))
"""


def test_a_run_continued_in_a_fresh_process_is_bit_equal_to_an_uninterrupted_one(tmp_path):
    fingerprints = []
    for dtype in ("float32", "bfloat16"):
        run = Run(dtype)
        run.train(3)
        run.save(tmp_path / dtype)
        run.train(2)
        fingerprints.append(run.fingerprint())
    command = [sys.executable, "-c", CONTINUE_SCRIPT, str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout
    assert [json.loads(line) for line in output.splitlines()[-2:]] == fingerprints


def test_a_checkpoint_is_a_directory_that_from_pretrained_opens(tmp_path):
    run = Run()
    run.train(1)
    directory = run.save(tmp_path / "checkpoint-000001")
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert torch.equal(model.lm_head.weight, run.policy.model.lm_head.weight)
    assert AutoTokenizer.from_pretrained(directory).encode("1+1") == run.policy.tokenizer.encode("1+1")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"step": "3"}, "not the state of a trainer"),
        ({"parts": []}, "not the state of a trainer"),
        ({"parts": {"optimizer": {}, "random": 5, "baseline": {}}}, "its baseline cannot be restored"),
    ],
)
def test_a_forged_state_is_refused(tmp_path, change, reason):
    directory = Run().save(tmp_path / "one")
    path = directory / "trainer/state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    content = path.read_bytes()
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["files"]["trainer/state.json"] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadCheckpoint, match=reason):
        Run().load(directory)


def test_a_damaged_or_missing_file_is_detected(tmp_path):
    directory = Run().save(tmp_path / "a")
    verify_checkpoint(directory)
    weights = directory / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(BadCheckpoint, match=r"model\.safetensors is damaged"):
        Run().load(directory)
    weights.unlink()
    with pytest.raises(BadCheckpoint, match=r"model\.safetensors is missing"):
        verify_checkpoint(directory)


def test_an_incomplete_checkpoint_never_counts(tmp_path):
    complete = Run().save(tmp_path / "checkpoint-000002")
    (tmp_path / ".checkpoint-000003.17.draft").mkdir()
    (tmp_path / "checkpoint-000001").mkdir()
    assert list_checkpoints(tmp_path) == [complete]
    with pytest.raises(BadCheckpoint, match=r"manifest\.json is missing"):
        verify_checkpoint(tmp_path / "checkpoint-000001")
    remove_drafts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-000001", "checkpoint-000002"]


def test_a_mixture_of_experts_loads_its_checkpoint(tmp_path):
    """Its files name each expert separately, while the model holds them joined."""
    tiny_policy = load_policy(PolicyConfig(), Settings())
    config = Qwen3MoeConfig(
        vocab_size=len(tiny_policy.tokenizer),
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
    )
    first, second = (
        as_policy(Qwen3MoeForCausalLM(config), tiny_policy.tokenizer, name="moe", chat_template=False)
        for _ in range(2)
    )
    first.model.save_pretrained(tmp_path)
    load_weights(tmp_path, second)
    state, loaded_state = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(state[name], loaded_state[name]) for name in state)


def test_all_random_number_generators_are_restored():
    generator = torch.Generator().manual_seed(1)
    random.gauss(0, 1)  # keeps a second value for the next call
    randomness = Randomness({"own": generator})
    states = {name: state.clone() for name, state in randomness.tensors().items()}

    def draw():
        return (
            random.gauss(0, 1),
            random.random(),
            np.random.randn(),  # noqa: NPY002 - libraries use it
            torch.rand(1),
            torch.rand(1, generator=generator),
        )

    first = draw()
    randomness.restore({}, states)
    assert draw() == first


def test_nothing_in_a_checkpoint_is_pickled(tmp_path):
    run = Run()
    run.train(1)
    directory = run.save(tmp_path / "a")
    suffixes = {path.suffix for path in directory.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors", ".jinja"}
