"""Tests of the learner with hand-made groups, by the gradient of the loss for each log-probability."""

import copy
import threading
from dataclasses import replace
from typing import Literal
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from backend.base.settings import Settings
from backend.config.merge import resolve
from worker.policy.logprobs import token_logprobs
from worker.policy.model import load_policy
from worker.policy.optimizer import PolicyOptimizer, Update
from worker.policy.routing import routed_logprobs
from worker.prompt import Prompt
from worker.rollout.collector import CollectedGroups
from worker.training.learner import LIFT_EVERY_STEPS, Learner
from worker.training.trainer import Trainer
from worker.training.update_stats import UpdateStats
from worker.types import Completion, Group

LENGTHS = [[2, 3], [1, 4], [3, 2]]
REWARDS_BY_PROMPT = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
CENTRED_REWARDS = [[0.5, -0.5], [-0.5, 0.5], [0.0, 0.0]]
B = 6

PLAIN_OBJECTIVE = {
    "advantage": {"type": "group_mean", "scale": {"type": "none"}},
    "surrogate": {"type": "none"},
    "kl": {"type": "none"},
}
TOKEN_CRITIC_OBJECTIVE = {
    "advantage": {
        "type": "critic",
        "scale": {"type": "none"},
        "gamma": 1.0,
        "lambda_policy": 1.0,
        "lambda_critic": 1.0,
    },
    "aggregation": {"type": "token_mean"},
}


@pytest.fixture(scope="module")
def shared_policy(tmp_path_factory):
    return load_policy(resolve({}).policy, Settings(state_dir=tmp_path_factory.mktemp("state")))


@pytest.fixture
def policy(shared_policy):
    return noisy(shared_policy, 0)


def noisy(policy, noise=0.05):
    """Return a copy with noise added to its weights."""
    model = copy.deepcopy(policy.model).float().requires_grad_(True)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(noise * weight.std() * torch.randn(weight.shape, generator=generator))
    return replace(policy, model=model)


class GradientTape(PolicyOptimizer):
    """Records, for each optimizer step, d loss / d log p of completion k's tokens as {k: values}."""

    def __init__(self, policy, config, *, moves):
        super().__init__(policy.model, config.optimizer, steps=config.steps)
        self.moves, self.passes, self.updates = moves, [], []
        self.heard = []  # all passes of the last update

    def listen(self, tokens, token_scores):
        if token_scores.logprobs.requires_grad:
            token_scores.logprobs.retain_grad()
        self.passes.append((tokens, token_scores.logprobs))

    def step(self, step):
        update = {}
        for tokens, logprobs in self.passes:
            for row, length in enumerate(tokens.lengths.tolist()):
                number = int(tokens.ids[row, tokens.prompt_lengths[row]]) - 10
                gradient = torch.zeros_like(logprobs) if logprobs.grad is None else logprobs.grad
                update[number] = gradient[row, :length].tolist()
        self.heard, self.passes = self.passes, []
        self.updates.append(update)
        if self.moves:
            return super().step(step)
        for weight in self.weights.values():
            weight.grad = None
        return Update(1.0, 1e-3, applied=True)


@pytest.fixture
def make_learner(policy, monkeypatch):
    """A function that makes a learner whose gradients are recorded on its tape."""

    def build(objective=None, *, reference=None, moves=False, **changes):
        changes = {"sampling": {"group_size": 2}, "evaluation": {"every": 0}} | changes
        config = resolve({**changes, "objective": PLAIN_OBJECTIVE | (objective or {})})
        tape = GradientTape(policy, config, moves=moves)

        def record_and_route(model, tokens, **options):
            routed_tokens = routed_logprobs(model, tokens, **options)
            tape.listen(tokens, routed_tokens.scored)
            return routed_tokens

        monkeypatch.setattr("worker.training.rank_passes.routed_logprobs", record_and_route)
        return Learner(config, policy, tape, reference)

    return build


def make_groups(
    rewards=REWARDS_BY_PROMPT, *, correct=None, truncated=(), domains=("math",) * 3, ids=None, entropy=1.0
):
    groups = []
    for prompt_number, row in enumerate(rewards):
        completions = []
        for completion_number, length in enumerate(LENGTHS[prompt_number]):
            number = len(row) * prompt_number + completion_number
            tokens = np.arange(length) + 20
            tokens[0] = 10 + number  # identifies the completion on the tape
            finish: Literal["length", "stop"] = "length" if number in truncated else "stop"
            values = np.full(length, -1.0, dtype=np.float32)
            completions.append(
                Completion(
                    tokens, "", ("x",) * length, finish, values, np.full(length, entropy, dtype=np.float32)
                )
            )
        prompt = Prompt(
            ids[prompt_number] if ids else f"p{prompt_number}",
            f"{prompt_number}+1=?",
            "1",
            "sums",
            domains[prompt_number],
            index=prompt_number,
        )
        correct_flags = tuple(row if correct is None else correct[prompt_number])
        groups.append(
            Group(
                prompt,
                tuple(completions),
                tuple(row),
                terms={"correctness": correct_flags},
                correctness=correct_flags,
                counted={"correctness": tuple(row)},
                weights={"correctness": 1.0},
            )
        )
    return groups


def make_collected_groups(groups, trained=None):
    return CollectedGroups(groups=groups, trained=list(range(len(groups))) if trained is None else trained)


def learn(learner, groups, *, trained=None, step=1, **options):
    """Return the statistics, and the updates of that call."""
    gradient_tape, update_stats = learner.optimizer, UpdateStats(step)
    gradient_tape.updates.clear()
    learner.learn(
        make_collected_groups(groups, trained), torch.Generator().manual_seed(0), update_stats, **options
    )
    return update_stats, [dict(update) for update in gradient_tape.updates]


def logprobs(policy, groups, learner):
    """Return {k: log p of each token} under a policy."""
    tokens = learner.old_policy.tokens(groups)
    with torch.no_grad():
        token_scores = token_logprobs(policy.model, tokens, temperature=learner.temperature).logprobs
    return {k: token_scores[k, :length].double().numpy() for k, length in enumerate(tokens.lengths.tolist())}


def assert_matches(update, expected):
    """Compare the update with d loss / d log p, given as a number or one per token for each completion."""
    assert update.keys() == expected.keys()
    for number, values in update.items():
        expected_values = np.broadcast_to(expected[number], len(values)).tolist()
        assert values == pytest.approx(expected_values, abs=2e-6, rel=2e-5), number


def slopes(advantages=CENTRED_REWARDS, divisor=B):
    """Return -A / (B L) of each completion."""
    indexed_advantages = [
        (a, n)
        for row, length in zip(advantages, LENGTHS, strict=False)
        for a, n in zip(row, length, strict=True)
    ]
    return {k: -a / (divisor * n) for k, (a, n) in enumerate(indexed_advantages)}


def test_the_gradient_of_each_token_follows_its_advantage(make_learner):
    update_stats, (update,) = learn(make_learner(), make_groups())
    assert_matches(update, slopes())
    assert update_stats.advantages == CENTRED_REWARDS


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("minibatches", [1, 3])
def test_microbatches_divide_by_the_whole_optimizer_batch(make_learner, rows, minibatches):
    learner = make_learner(resources={"microbatch_completions": rows}, updates={"minibatches": minibatches})
    _, updates = learn(learner, make_groups())
    assert len(updates) == minibatches
    values_by_number = {number: values for update in updates for number, values in update.items()}
    assert_matches(values_by_number, slopes(divisor=B // minibatches))


def test_groups_with_equal_rewards_skip_the_backward_pass_and_leave_the_same_figures(
    make_learner, monkeypatch
):
    learner = make_learner()
    update_stats, updates = learn(learner, make_groups())
    assert [
        (tokens.ids.shape[0], logprobs.requires_grad) for tokens, logprobs in learner.optimizer.heard
    ] == [
        (4, True),
        (2, False),
    ]
    monkeypatch.setattr(
        "worker.training.passes.has_gradient", lambda batch, _: torch.ones(len(batch.mask), dtype=torch.bool)
    )
    learner = make_learner()
    expected, whole_updates = learn(learner, make_groups())
    assert len(learner.optimizer.heard) == 1
    for number, gradient in whole_updates[0].items():
        assert updates[0][number] == pytest.approx(gradient, abs=1e-7)
    assert update_stats.sums.values() == pytest.approx(expected.sums.values(), rel=1e-5, abs=1e-6)
    for group, expected_group in zip(update_stats.arrays, expected.arrays, strict=True):
        for completion, expected_arrays in zip(group, expected_group, strict=True):
            assert completion.keys() == expected_arrays.keys()
            for name, values in expected_arrays.items():
                np.testing.assert_allclose(completion[name], values, rtol=1e-6, atol=1e-6)


ZERO_VARIANCE = {"groups": {"type": "zero_variance"}}
MEANS = {
    "seq_mean_token_mean": [1 / (B * n) for row in LENGTHS for n in row],
    "prompt_mean": [1 / (3 * sum(row)) for row in LENGTHS for _ in row],
    "seq_mean_token_sum": [1 / B] * B,
    "seq_mean_token_sum_norm": [1 / (B * 64)] * B,
}


@pytest.mark.parametrize("aggregation", MEANS)
@pytest.mark.parametrize("upweight", [False, True])
def test_an_excluded_group_counts_in_means_unless_the_others_are_upweighted(
    make_learner, aggregation, upweight
):
    changes = {"filters": {**ZERO_VARIANCE, "upweight": upweight}}
    sampling = {"sampling": {"group_size": 2, "max_new_tokens": 64}}
    objective = {"aggregation": {"type": aggregation}}
    _, (unfiltered,) = learn(make_learner(objective, **sampling), make_groups())
    _, (filtered,) = learn(make_learner(objective, **sampling, **changes), make_groups(), trained=[0, 1])
    factor = 1.5 if upweight else 1.0
    all_advantages = [a for row in CENTRED_REWARDS for a in row]
    expected = {k: -all_advantages[k] * MEANS[aggregation][k] for k in range(B)}
    assert_matches(unfiltered, expected)
    assert_matches(filtered, {k: factor * expected[k] for k in range(4)})


def test_gpg_divides_by_all_tokens_and_compensates_for_excluded_groups(make_learner):
    """As in the paper, B / (B - M) = 3 / 2 multiplies the sum over 4 trained rows, per token of all 6."""
    gpg = resolve({"preset": "gpg"})
    objective = gpg.objective.model_dump(include={"advantage", "ratio", "surrogate", "aggregation"})
    tokens = sum(length for lengths in LENGTHS for length in lengths)
    expected = {k: -a / tokens for k, a in enumerate(a for row in CENTRED_REWARDS for a in row)}
    _, (update,) = learn(make_learner(objective), make_groups())
    assert_matches(update, expected)
    _, (informative,) = learn(
        make_learner(objective, filters=gpg.filters.model_dump()), make_groups(), trained=[0, 1]
    )
    assert_matches(informative, {k: 1.5 * expected[k] for k in range(4)})


def test_the_ratio_divides_by_the_policy_at_the_start_of_the_step(make_learner, policy):
    learner, old_policy, groups = make_learner(), noisy(policy), make_groups()
    _, (update,) = learn(learner, groups, old_policy=old_policy)
    new_logprobs, old_logprobs = (logprobs(network, groups, learner) for network in (policy, old_policy))
    assert max(np.abs(new_logprobs[k] - old_logprobs[k]).max() for k in range(B)) > 0.01
    assert_matches(
        update, {k: slope * np.exp(new_logprobs[k] - old_logprobs[k]) for k, slope in slopes().items()}
    )


def test_the_mismatch_compares_sampler_and_starting_policy_for_any_ratio(make_learner, policy):
    objective = {
        "ratio": {"type": "token", "old": "current"},
        "correction": {"type": "token_tis", "cap": 1e6},
        "token_weight": {"type": "ar", "alpha": 0.5},
    }
    learner = make_learner(objective, moves=True, updates={"epochs": 2}, optimizer={"lr": 1e-3})
    groups = make_groups()
    starting_logprobs = logprobs(policy, groups, learner)
    update_stats, (first, second) = learn(learner, groups)
    for update in (first, second):  # rho = exp(old + 1), AR's factor 0.5 exp(old) + 0.5
        assert_matches(
            update,
            {
                k: slope * np.exp(starting_logprobs[k] + 1) * (0.5 * np.exp(starting_logprobs[k]) + 0.5)
                for k, slope in slopes().items()
            },
        )
    rho = np.concatenate([np.exp(values + 1) for values in starting_logprobs.values()])
    assert update_stats.sums.values()["mismatch/rho_mean"] == pytest.approx(rho.mean(), rel=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("rule", ["sampling", "one"])
def test_log_probs_are_taken_at_the_sampling_temperature(make_learner, policy, temperature, rule):
    learner = make_learner(
        {"ratio": {"type": "token", "logprob_temperature": rule}},
        sampling={"group_size": 2, "temperature": temperature},
    )
    groups = make_groups()
    update_stats, _ = learn(learner, groups)
    tokens = learner.old_policy.tokens(groups)
    with torch.no_grad():
        logits = policy.model(tokens.ids[:1]).logits[0]
    used_temperature = temperature if rule == "sampling" else 1.0
    all_logprobs = (logits / used_temperature).log_softmax(dim=-1)
    start = int(tokens.prompt_lengths[0])
    logprobs_by_hand = [all_logprobs[start + t - 1, tokens.ids[0, start + t]].item() for t in range(2)]
    assert update_stats.arrays[0][0]["policy_logprob"].tolist() == pytest.approx(logprobs_by_hand, abs=1e-4)


def test_each_domain_has_its_own_kl_coefficient(make_learner, policy):
    coef = {"math": 1.0, "easy": 0.25, "hard": 0.0}
    problems = [{"name": "sums", "domain": name} for name in coef]
    learner = make_learner({"kl": {"type": "k1", "coef": coef}}, reference=noisy(policy), problems=problems)
    groups = make_groups([[1.0, 1.0]] * 3, domains=("easy", "hard", "math"))
    _, (update,) = learn(learner, groups)
    lengths = [n for row in LENGTHS for n in row]
    expected = {k: (0.25, 0.0, 1.0)[k // 2] / (B * lengths[k]) for k in range(B)}
    assert_matches(update, expected)


KL_IN_REWARD = {"kl": {"type": "k1", "place": "reward", "coef": 0.5}}


def test_kl_in_the_reward_is_subtracted_per_completion(make_learner, policy):
    reference, groups = noisy(policy), make_groups()
    learner = make_learner(KL_IN_REWARD, reference=reference)
    update_stats, _ = learn(learner, groups)
    new_logprobs, pull = logprobs(policy, groups, learner), logprobs(reference, groups, learner)
    remaining_rewards = np.array(REWARDS_BY_PROMPT) - np.array(
        [0.5 * (new_logprobs[k] - pull[k]).sum() for k in range(B)]
    ).reshape(3, 2)
    assert np.array(update_stats.advantages) == pytest.approx(
        remaining_rewards - remaining_rewards.mean(axis=1, keepdims=True), abs=1e-4
    )


def test_kl_in_the_reward_is_subtracted_per_token_with_a_critic(make_learner, policy):
    reference, groups = noisy(policy), make_groups()
    learner = make_learner(TOKEN_CRITIC_OBJECTIVE | KL_IN_REWARD, reference=reference)
    update_stats, _ = learn(learner, groups)
    new_logprobs, pull = logprobs(policy, groups, learner), logprobs(reference, groups, learner)
    for k in range(B):
        kl_penalty = 0.5 * (new_logprobs[k] - pull[k])
        expected = (
            REWARDS_BY_PROMPT[k // 2][k % 2] - kl_penalty[::-1].cumsum()[::-1]
        )  # a new critic predicts 0
        advantages = update_stats.arrays[k // 2][k % 2]["advantage"]
        assert advantages.tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_moving_baseline_follows_the_rewards_once_per_step(make_learner):
    learner = make_learner({"advantage": {"type": "ema", "decay": 0.5, "scale": {"type": "none"}}})
    low = make_groups([[0.0, 0.0]] * 3)
    epochs = [learn(learner, groups)[0].advantages for groups in (make_groups(), low)]
    assert epochs == [REWARDS_BY_PROMPT, [[0.0, 0.0]] * 3]
    learner.end_step()
    mean = (4 / 6) / 2  # over both epochs
    assert learner.baseline.average == pytest.approx(0.5 * mean)
    update_stats, _ = learn(learner, low)
    assert update_stats.advantages[0] == pytest.approx([-0.5 * mean] * 2)
    learner.end_step()
    learner.end_step()  # no new rewards were seen
    assert learner.baseline.average == pytest.approx(0.25 * mean)


def test_every_epoch_with_fresh_samples_begins_with_the_policy_of_the_steps_start(tmp_path, monkeypatch):
    changes = {"updates": {"resample_each_epoch": True, "epochs": 3}, "evaluation": {"every": 0}}
    trainer = Trainer(
        resolve(changes),
        Mock(),
        settings=Settings(state_dir=tmp_path),
        checkpoints=Mock(),
        device="cpu",
        stopping=threading.Event(),
    )
    first = next(trainer.policy.model.parameters())
    sampled_weights = []

    def weight(policy):
        return next(policy.model.parameters())[0, 0].item()

    def collect(engine, *_, **__):
        sampled_weights.append(("sampled by", weight(engine.sampler.policy)))
        return CollectedGroups()

    def move_weights(*_, old_policy=None):
        sampled_weights.append(("compared with", None if old_policy is None else weight(old_policy)))
        with torch.no_grad():
            first.add_(1)

    monkeypatch.setattr(trainer.collector, "collect", collect)
    monkeypatch.setattr(trainer.learner, "learn", move_weights)
    monkeypatch.setattr(trainer.learner, "end_step", lambda: sampled_weights.append(("ended", None)))
    start = weight(trainer.policy)
    trainer._learn(CollectedGroups())
    trainer.scorer.close()
    epoch_start = [("sampled by", start), ("compared with", start)]
    assert sampled_weights == [("compared with", None), *epoch_start, *epoch_start, ("ended", None)]


def lift(logprobs_before, logprobs_after, policy):
    """Return the mean change of log p, as exactly as float32 allows.

    A log p of -30 is a small difference of large sums over the policy's width, whose order depends on the
    processor and the batch. Rounding errors of n terms grow as sqrt(n)."""
    largest = max(abs(logprobs_before).max(), abs(logprobs_after).max())
    rounding = policy.model.config.hidden_size**0.5 * np.finfo(np.float32).eps * largest
    return pytest.approx((logprobs_after - logprobs_before).mean(), rel=0, abs=2 * rounding)


def test_the_lift_is_the_change_of_the_log_probability_per_token(make_learner, policy):
    """policy/lift_* is the change of log p per token of one completion of either kind."""
    learner, groups = make_learner(moves=True, optimizer={"lr": 1e-4}), make_groups()
    logprobs_before = logprobs(policy, groups, learner)
    update_stats, _ = learn(learner, groups, step=LIFT_EVERY_STEPS)
    logprobs_after = logprobs(policy, groups, learner)
    sums = update_stats.sums.values()
    assert sums["policy/lift_right"] == lift(logprobs_before[0], logprobs_after[0], policy)
    assert sums["policy/lift_wrong"] == lift(logprobs_before[1], logprobs_after[1], policy)
    assert sums["policy/lift_right"] > 0
