"""Tests of steps with tools: observations have no gradient, no loss, and consistent sums."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from backend.config.environments import ToolUse
from backend.config.merge import resolve
from worker.objective.policy_loss import denominators, policy_loss
from worker.policy.logprobs import token_logprobs
from worker.policy.microbatches import Microbatches
from worker.prompt import Prompt
from worker.rollout.episodes import Episodes
from worker.rollout.sampler import Decoding, Sampler
from worker.training.batch_builder import BatchBuilder
from worker.training.tool_metrics import tool_metrics
from worker.training.update_stats import UpdateStats
from worker.types import Completion, Group, Turn

TOOL_ENVIRONMENT = {"type": "tool_use", "tools": ["lookup"], "form": "equation", "max_observation_tokens": 4}


@pytest.fixture(scope="module")
def groups(tiny):
    """Two groups of four completions, of which some contain observations."""
    prompts = [
        Prompt(f"p{n}", f"{key}=?", "862", "sums", "math", columns={"table": {key: "862"}})
        for n, key in enumerate(("59+63", "21+34"))
    ]
    episodes = Episodes(ToolUse.model_validate(TOOL_ENVIRONMENT), tiny)
    sampled = episodes.sample(Sampler(tiny), prompts, 4, Decoding(40), torch.Generator().manual_seed(0))
    assert any(completion.generated is not None for group in sampled for completion in group)
    return [
        Group(prompt, tuple(completions), rewards=(1.0, 0.0, 0.5, 0.0))
        for prompt, completions in zip(prompts, sampled, strict=True)
    ]


def observed(groups):
    """(B, T) bool: the tokens of observations."""
    rows = [completion for group in groups for completion in group.completions]
    mask = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.bool)
    for row, completion in enumerate(rows):
        if completion.generated is not None:
            mask[row, : len(completion)] = ~torch.from_numpy(completion.generated)
    return mask


OBJECTIVES = {
    "plain": {},
    "everything": {
        "kl": {"type": "k3", "coef": 0.1},
        "entropy": {"type": "bonus", "coef": 0.01},
        "correction": {"type": "token_tis"},
    },
    "sequence": {"ratio": {"type": "seq_geo"}, "surrogate": {"type": "ppo_clip"}},
}


def build_batch(tiny, groups, objective):
    config = resolve({"objective": objective, "environment": TOOL_ENVIRONMENT})
    builder = BatchBuilder(config, tiny, tiny, 1.0, Microbatches(config.resources))
    tokens = builder.tokens(groups)
    batch = builder.batch(tokens, groups, UpdateStats(), old_policy=None)
    advantages = torch.linspace(-1, 1, len(batch.mask))
    return config.objective, tokens, replace(batch, advantages=advantages)


def compute_loss(objective, batch, logprobs, entropy):
    weights = denominators(batch.mask, batch.group_index, objective, max_new_tokens=40)
    return policy_loss(logprobs, batch, objective, weights, entropy=entropy)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_the_gradient_of_an_observation_is_exactly_zero(tiny, groups, name):
    objective, tokens, batch = build_batch(tiny, groups, OBJECTIVES[name])
    scored_tokens = token_logprobs(tiny.model, tokens, temperature=1.0)
    logprobs = scored_tokens.logprobs.detach().requires_grad_()
    loss = compute_loss(objective, batch, logprobs, scored_tokens.entropy.detach()).loss
    loss.backward()
    is_observed = observed(groups)
    altered_logprobs = torch.where(is_observed, 9.0, logprobs.detach())
    assert torch.equal(
        compute_loss(objective, batch, altered_logprobs, scored_tokens.entropy.detach()).loss, loss.detach()
    )
    assert is_observed.any()
    assert torch.equal(batch.mask & is_observed, torch.zeros_like(is_observed))
    gradient = logprobs.grad
    assert gradient is not None
    assert (gradient[is_observed] == 0).all()
    assert (gradient[batch.mask] != 0).any()


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_the_samplers_numbers_for_an_observation_change_nothing(tiny, groups, name):
    """Loss and metrics are unchanged, since lengths, entropy, KL and corrections skip observations."""

    def numbers(value):
        changed_completions = [
            replace(
                group,
                completions=tuple(
                    with_observation_numbers(completion, value) for completion in group.completions
                ),
            )
            for group in groups
        ]
        objective, tokens, batch = build_batch(tiny, changed_completions, OBJECTIVES[name])
        scored_tokens = token_logprobs(tiny.model, tokens, temperature=1.0)
        update = compute_loss(objective, batch, scored_tokens.logprobs, scored_tokens.entropy)
        return {"total": float(update.loss.detach())} | update.metrics.values()

    assert numbers(0.0) == numbers(-7.0) == numbers(math.nan)


def with_observation_numbers(completion: Completion, value: float) -> Completion:
    """Return the completion with this value in the sampler's numbers of its observations."""
    if completion.generated is None or completion.entropies is None:
        return completion
    logprobs, entropies = (
        np.where(completion.generated, values, np.float32(value)).astype(np.float32)
        for values in (completion.sampler_logprobs, completion.entropies)
    )
    return replace(completion, sampler_logprobs=logprobs, entropies=entropies)


@pytest.fixture
def settings(settings, tmp_path):
    """The settings of an installation with a dataset whose answers only a tool knows."""
    rows = [
        {"prompt": f"{a}+{b}=?", "answer": str(3 * a + b), "table": {f"{a}+{b}": str(3 * a + b)}}
        for a in range(10, 40)
        for b in range(50, 70)
    ]
    (tmp_path / "planted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return settings.model_copy(update={"datasets_dir": tmp_path})


def test_stored_steps_add_up_and_mark_observations(train_steps):
    [record, _] = train_steps(
        {
            "problems": [{"name": "file", "path": "planted.jsonl"}],
            "environment": TOOL_ENVIRONMENT,
            "filters": {"groups": {"type": "none"}},
            "length": {"penalty": {"type": "soft_overlong", "cache_fraction": 0.95}},
        }
    )
    completions = [completion for group in record.groups for completion in group.completions]
    with_turns = [completion for completion in completions if completion.turns]
    assert with_turns
    for completion in with_turns:
        for turn in completion.turns:
            first, end = turn["tokens"]
            assert (completion.arrays["loss"][first:end] == 0).all()
            assert (completion.arrays["gradient"][first:end] == 0).all()
            assert (completion.arrays["mask"][first:end] == 0).all()
            assert completion.text[slice(*turn["call"])].endswith("=")
            text = completion.text[slice(*turn["observation"])]
            assert text == "".join(completion.token_strings[first:end])
    total = sum(completion.arrays["loss"].sum(dtype=np.float64) for completion in completions)
    assert math.isclose(total, record.metrics["loss/total"], abs_tol=1e-6)
    generated = sum(
        len(c.token_ids) - sum(t["tokens"][1] - t["tokens"][0] for t in c.turns) for c in completions
    )
    assert record.metrics["tokens/generated"] == generated
    assert record.metrics["length/mean"] == generated / len(completions)
    assert 0 < record.metrics["tools/used_frac"] <= 1


def test_metrics_of_calls_match_a_calculation_by_hand():
    def completion(turns, generated):
        ids = np.zeros(len(generated), np.int64)
        logprobs = np.zeros(len(ids), np.float32)
        mask = np.array(generated, bool)
        return Completion(ids, "", ("",) * len(ids), "stop", logprobs, generated=mask, turns=tuple(turns))

    def turn(outcome, seconds):
        return Turn("calculator", outcome, seconds, (0, 1), (1, 2))

    completions = (
        completion([turn("ok", 1.0), turn("failed", 3.0)], [1, 0, 1, 0]),
        completion([turn("unanswered", 0.0)], [1, 1]),
        completion([], [1, 1]),
    )
    group = Group(Prompt("p", "?", "", "sums"), completions, rewards=())
    assert tool_metrics([group]) == {
        "tools/calls": 1.0,
        "tools/used_frac": pytest.approx(2 / 3),
        "tools/turns": pytest.approx(1 + 2 / 3),
        "tools/unanswered_frac": pytest.approx(1 / 3),
        "tools/observation_frac": pytest.approx(2 / 8),
        "tools/failed_frac": 0.5,
        "time/tool_seconds": 2.0,
    }
