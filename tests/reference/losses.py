"""A second implementation of every preset's loss, with loops over prompts, completions and tokens.

It follows the papers and does not use worker/objective. Log-probabilities are scalars, and autograd
follows the loops."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-4
"""Constant that is added to standard deviations."""


@dataclass
class Completion:
    reward: float
    new_logprobs: list[Tensor]
    old_logprobs: list[float]
    sampler: list[float]
    reference: list[float]
    entropy: list[float]
    values: list[float]
    terms: tuple[float, ...] = ()
    """Two reward terms, for methods that keep them separate."""
    gamma: tuple[float, ...] = ()
    """The share of each token's experts that the router kept."""


Group = list[Completion]


def mean(values):
    return sum(values) / len(values)


def sample_std(values):
    centre = mean(values)
    return math.sqrt(sum((number - centre) ** 2 for number in values) / (len(values) - 1))


def group_normalised(groups):
    for group in groups:
        rewards = [c.reward for c in group]
        equal = max(rewards) == min(rewards)
        yield [0.0 if equal else (r - mean(rewards)) / (sample_std(rewards) + EPSILON) for r in rewards]


def group_centred(groups):
    for group in groups:
        rewards = [c.reward for c in group]
        yield [r - mean(rewards) for r in rewards]


def group_decoupled(groups, weights):
    sums = []
    for group in groups:
        advantages = [0.0] * len(group)
        for k, weight in enumerate(weights):
            rewards = [c.terms[k] for c in group]
            if max(rewards) > min(rewards):
                for i, r in enumerate(rewards):
                    advantages[i] += weight * (r - mean(rewards)) / (sample_std(rewards) + EPSILON)
        sums.append(advantages)
    all_sums = [s for advantages in sums for s in advantages]
    if max(all_sums) == min(all_sums):
        return [[0.0] * len(advantages) for advantages in sums]
    return [
        [(s - mean(all_sums)) / (sample_std(all_sums) + EPSILON) for s in advantages] for advantages in sums
    ]


def smoothed(groups):
    """Return the standardisation of first visits, which is that of the group without an epsilon."""
    for group in groups:
        rewards = [c.reward for c in group]
        equal = max(rewards) == min(rewards)
        yield [0.0 if equal else (r - mean(rewards)) / sample_std(rewards) for r in rewards]


def leave_one_out(groups, rewards):
    for group_rewards in rewards:
        yield [r - mean(group_rewards[:i] + group_rewards[i + 1 :]) for i, r in enumerate(group_rewards)]


def centred_by_tokens(groups):
    for group in groups:
        rewards = [c.reward for c in group]
        baseline = sum(len(c.new_logprobs) * c.reward for c in group) / tokens([group])
        yield [0.0 if max(rewards) == min(rewards) else r - baseline for r in rewards]


def over_their_mean(groups):
    for group in groups:
        rewards = [c.reward for c in group]
        m = mean(rewards)
        yield [(r - m) / (m + 1e-6) if m > 0 else 0.0 for r in rewards]


def leads(groups):
    for group in groups:
        rewards = [c.reward for c in group]
        yield [max(0.0, r - max(rewards[:i] + rewards[i + 1 :])) for i, r in enumerate(rewards)]


def batch_centred(groups):
    centre = mean([c.reward for group in groups for c in group])
    for group in groups:
        yield [c.reward - centre for c in group]


def centred_by_group_scaled_by_batch(groups):
    deviation = sample_std([c.reward for group in groups for c in group])
    for centred in group_centred(groups):
        yield [a / (deviation + EPSILON) for a in centred]


def centred_in_units_of_their_deviation(groups):
    centred = list(group_centred(groups))
    deviation = sample_std([a for advantages in centred for a in advantages])
    for advantages in centred:
        yield [a / (deviation + EPSILON) for a in advantages]


def gae(c: Completion, rewards, gamma, lam):
    advantages = []
    for t in range(len(rewards)):
        total = 0.0
        for k in range(t, len(rewards)):
            next_value = c.values[k + 1] if k + 1 < len(rewards) else 0.0
            total += (gamma * lam) ** (k - t) * (rewards[k] + gamma * next_value - c.values[k])
        advantages.append(total)
    return advantages


def whitened_over_tokens(rows):
    all_advantages = [a for row in rows for a in row]
    centre, deviation = mean(all_advantages), sample_std(all_advantages)
    return [[(a - centre) / (deviation + 1e-8) for a in row] for row in rows]


def ratios(c: Completion) -> list[Tensor]:
    return [
        torch.exp(new_logprob - old_logprob)
        for new_logprob, old_logprob in zip(c.new_logprobs, c.old_logprobs, strict=True)
    ]


def clip(ratio: Tensor, low: float, high: float) -> Tensor:
    if ratio.item() < low:
        return torch.full_like(ratio, low, requires_grad=False)
    if ratio.item() > high:
        return torch.full_like(ratio, high, requires_grad=False)
    return ratio


def ppo(ratio, a, low, high):
    unclipped_objective, clipped_objective = ratio * a, clip(ratio, low, high) * a
    return (
        unclipped_objective if unclipped_objective.item() <= clipped_objective.item() else clipped_objective
    )


def k3(new_logprob, reference):
    return torch.exp(reference - new_logprob) - (reference - new_logprob) - 1


def completions(groups, advantages):
    for group, values in zip(groups, advantages, strict=True):
        yield from zip(group, values, strict=True)


def count(groups):
    return sum(len(group) for group in groups)


def tokens(groups):
    return sum(len(c.new_logprobs) for group in groups for c in group)


def reinforce(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, batch_centred(groups)):
        loss -= a * sum(c.new_logprobs)
    return loss / count(groups)


def rloo(groups, max_new_tokens):
    rewards = [
        [
            c.reward - 0.03 * sum(o - r for o, r in zip(c.old_logprobs, c.reference, strict=True))
            for c in group
        ]
        for group in groups
    ]
    loss = 0.0
    for c, a in completions(groups, leave_one_out(groups, rewards)):
        loss -= a * sum(c.new_logprobs)
    return loss / count(groups)


def judged_by_a_critic(groups, lam, kl_coef=0.0):
    """Yield completions with an advantage for each token, where `lam` maps the length to lambda."""
    rows = [c for group in groups for c in group]
    estimates = []
    for c in rows:
        rewards = [-kl_coef * (o - r) for o, r in zip(c.old_logprobs, c.reference, strict=True)]
        rewards[-1] += c.reward
        estimates.append(gae(c, rewards, 1.0, lam(len(rewards))))
    return zip(rows, whitened_over_tokens(estimates), strict=True)


def ppo_preset(groups, max_new_tokens):
    loss = 0.0
    for c, advantages in judged_by_a_critic(groups, lambda _: 0.95, kl_coef=0.05):
        for ratio, a in zip(ratios(c), advantages, strict=True):
            loss -= ppo(ratio, a, 0.8, 1.2)
    return loss / tokens(groups)


def ppo_kl(groups, max_new_tokens):
    loss = 0.0
    for c, advantages in judged_by_a_critic(groups, lambda _: 0.95):
        for ratio, a, new_logprob, old_logprob in zip(
            ratios(c), advantages, c.new_logprobs, c.old_logprobs, strict=True
        ):
            loss -= ratio * a - 1.0 * ratio * k3(new_logprob, old_logprob)
    return loss / tokens(groups)


def trpo(groups, max_new_tokens):
    loss = 0.0
    for c, advantages in judged_by_a_critic(groups, lambda _: 0.97):
        for ratio, a in zip(ratios(c), advantages, strict=True):
            loss -= ratio * a
    return loss / tokens(groups)


def vapo(groups, max_new_tokens):
    loss, imitation, correct = 0.0, 0.0, 0
    for c, advantages in judged_by_a_critic(groups, lambda length: max(0.0, 1 - 1 / (0.05 * length))):
        for ratio, a, new_logprob in zip(ratios(c), advantages, c.new_logprobs, strict=True):
            loss -= ppo(ratio, a, 0.8, 1.28)
            imitation -= new_logprob if c.reward >= 1 else 0.0
            correct += c.reward >= 1
    return loss / tokens(groups) + 0.1 * imitation / max(1, correct)


def _grpo(groups, eps, beta, advantages=None):
    loss = 0.0
    for c, a in completions(groups, advantages or group_normalised(groups)):
        completion_loss = 0.0
        for ratio, new_logprob, reference in zip(ratios(c), c.new_logprobs, c.reference, strict=True):
            completion_loss -= ppo(ratio, a, 1 - eps, 1 + eps) - beta * k3(new_logprob, reference)
        loss += completion_loss / len(c.new_logprobs)
    return loss / count(groups)


def grpo(groups, max_new_tokens):
    return _grpo(groups, 0.2, 0.04)


def gdpo(groups, max_new_tokens):
    return _grpo(groups, 0.2, 0.04, group_decoupled(groups, (1.0, 1.0)))


def r1(groups, max_new_tokens):
    return _grpo(groups, 10.0, 0.001)


def grpo_book(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        loss -= a * sum(c.new_logprobs)
    return loss / count(groups)


def _book_clipped(groups, advantages):
    loss = 0.0
    for c, a in completions(groups, advantages):
        ratio = torch.exp(sum(c.new_logprobs) - sum(c.old_logprobs))
        unclipped_objective, clipped_objective = ratio * a, clip(ratio, -9.0, 11.0) * a
        is_unclipped_smaller = unclipped_objective.item() <= clipped_objective.item()
        loss -= (
            (unclipped_objective if is_unclipped_smaller else clipped_objective)
            if a >= 0
            else (clipped_objective if is_unclipped_smaller else unclipped_objective)
        )
    return loss / count(groups)


def grpo_book_clip(groups, max_new_tokens):
    return _book_clipped(groups, group_normalised(groups))


def grpo_book_format(groups, max_new_tokens):
    return _book_clipped(groups, group_normalised(groups))


def grpo_book_format_conditional(groups, max_new_tokens):
    return _book_clipped(groups, group_normalised(groups))


def gdpo_book(groups, max_new_tokens):
    distance = sum(sum(c.new_logprobs) - sum(c.reference) for group in groups for c in group) / count(groups)
    return _book_clipped(groups, group_decoupled(groups, (1.0, 0.1))) + 0.02 * distance


def _token_mean(groups, advantages, low, high, cap=None):
    loss = 0.0
    for c, a in completions(groups, advantages):
        for t, ratio in enumerate(ratios(c)):
            weight = 1.0 if cap is None else min(math.exp(c.old_logprobs[t] - c.sampler[t]), cap)
            loss -= weight * ppo(ratio, a, low, high)
    return loss / tokens(groups)


def dapo(groups, max_new_tokens):
    return _token_mean(groups, group_normalised(groups), 0.8, 1.28)


def opo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, centred_by_tokens(groups)):
        loss -= a * sum(c.new_logprobs)
    return loss / tokens(groups)


def against_each_token(group):
    """Yield the advantages of tokens, with entropies as energies, since any positive numbers will do."""
    for c in group:
        advantages = []
        for t in range(len(c.new_logprobs)):
            unfinished = [sibling for sibling in group if len(sibling.new_logprobs) > t]
            weights = [sum(sibling.entropy[: t + 1]) for sibling in unfinished]
            baseline = sum(w * sibling.reward for w, sibling in zip(weights, unfinished, strict=True)) / sum(
                weights
            )
            advantages.append(c.reward - (baseline if len(unfinished) > 1 else 0.0))
        yield c, advantages


def otb(groups, max_new_tokens):
    loss = 0.0
    for group in groups:
        for c, advantages_of_tokens in against_each_token(group):
            for ratio, a in zip(ratios(c), advantages_of_tokens, strict=True):
                loss -= ppo(ratio, a, 0.8, 1.2)
    return loss / tokens(groups)


def greedy_reward(group):
    """Return the reward of a completion outside the group, for which any number will do."""
    return group[0].terms[1] / 2


def remax(groups, max_new_tokens):
    loss, count = 0.0, sum(len(group) for group in groups)
    for group in groups:
        for c in group:
            loss -= (c.reward - greedy_reward(group)) * sum(c.new_logprobs) / count
    return loss


def maxrl(groups, max_new_tokens):
    return _token_mean(groups, over_their_mean(groups), 0.8, 1.2)


def _whitened_rewards(groups, advantages):
    """Return the advantage of each completion per token, with mean 0 and deviation 1 over tokens."""
    pairs = list(completions(groups, advantages))
    rows = whitened_over_tokens([[a] * len(c.new_logprobs) for c, a in pairs])
    loss = 0.0
    for (c, _), advantages_of_tokens in zip(pairs, rows, strict=True):
        for ratio, a in zip(ratios(c), advantages_of_tokens, strict=True):
            loss -= ppo(ratio, a, 0.8, 1.2)
    return loss / tokens(groups)


def reinforce_plus_plus(groups, max_new_tokens):
    return _whitened_rewards(groups, [[c.reward for c in group] for group in groups])


def reinforce_plus_plus_baseline(groups, max_new_tokens):
    return _whitened_rewards(groups, group_centred(groups))


def pass_at_k(groups, max_new_tokens):
    return _token_mean(groups, leads(groups), 0.8, 1.2)


def _k3_rejection(groups, threshold):
    """Return the loss with rejected completions masked, so that verl's mean is over the remaining tokens."""
    loss, accepted_tokens = 0.0, 0
    for c, a in completions(groups, group_normalised(groups)):
        drift = [o - mu for o, mu in zip(c.old_logprobs, c.sampler, strict=True)]
        if mean([math.exp(d) - 1 - d for d in drift]) <= threshold:
            loss -= sum(ppo(ratio, a, 0.8, 1.2) for ratio in ratios(c))
            accepted_tokens += len(c.old_logprobs)
    return loss / max(accepted_tokens, 1)


def k3_rejection(groups, max_new_tokens):
    return _k3_rejection(groups, 0.01)


def lite_ppo(groups, max_new_tokens):
    return _token_mean(groups, centred_by_group_scaled_by_batch(groups), 0.8, 1.2)


def olmo3(groups, max_new_tokens):
    return _token_mean(groups, group_centred(groups), 0.8, 1.272, cap=2.0)


def olmo3_book(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_centred(groups)):
        for ratio in ratios(c):
            loss -= a * clip(ratio, 0.0, 11.0)
    return loss / tokens(groups)


def dr_grpo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_centred(groups)):
        for ratio in ratios(c):
            loss -= ppo(ratio, a, 0.8, 1.2) / max_new_tokens
    return loss / count(groups)


def gspo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        ratio = torch.exp((sum(c.new_logprobs) - sum(c.old_logprobs)) / len(c.new_logprobs))
        loss -= ppo(ratio, a, 1 - 3e-4, 1 + 4e-4)
    return loss / count(groups)


def luspo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        ratio = torch.exp((sum(c.new_logprobs) - sum(c.old_logprobs)) / len(c.new_logprobs))
        loss -= len(c.new_logprobs) * ppo(ratio, a, 1 - 3e-4, 1 + 4e-4)
    return loss / count(groups)


def gpg(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_centred(groups)):
        loss -= a * sum(c.new_logprobs)
    return loss / tokens(groups)


def two_grpo(groups, max_new_tokens):
    return _grpo(groups, 0.2, 0.0)


def gspo_token(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        sequence = math.exp(
            sum(n.item() - o for n, o in zip(c.new_logprobs, c.old_logprobs, strict=True))
            / len(c.new_logprobs)
        )
        completion_loss = 0.0
        for new_logprob in c.new_logprobs:
            completion_loss -= ppo(
                sequence * torch.exp(new_logprob - new_logprob.item()), a, 1 - 3e-4, 1 + 4e-4
            )
        loss += completion_loss / len(c.new_logprobs)
    return loss / count(groups)


def gmpo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        sign = 1.0 if a > 0 else -1.0
        total = 0.0
        for new_logprob, old_logprob in zip(c.new_logprobs, c.old_logprobs, strict=True):
            d = sign * (new_logprob - old_logprob)
            limit = sign * min(max(new_logprob.item() - old_logprob, -0.4), 0.4)
            total += sign * (d if d.item() <= limit else limit)
        loss -= torch.exp(torch.as_tensor(total / len(c.new_logprobs), dtype=torch.float64)) * a
    return loss / count(groups)


def rspo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        sign = 1.0 if a > 0 else -1.0
        total = 0.0
        for new_logprob, old_logprob, gamma in zip(c.new_logprobs, c.old_logprobs, c.gamma, strict=True):
            d = sign * (new_logprob - old_logprob + math.log(max(gamma, 0.8)))
            limit = sign * min(max(sign * d.item(), -0.4), 0.4)
            total += sign * (d if d.item() <= limit else limit)
        loss -= torch.exp(torch.as_tensor(total / len(c.new_logprobs), dtype=torch.float64)) * a
    return loss / count(groups)


def deepseek_v32(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_centred(groups)):
        drift = sum(
            mu - new_logprob.item() for mu, new_logprob in zip(c.sampler, c.new_logprobs, strict=True)
        ) / len(c.new_logprobs)
        kept_factor = 0.0 if a < 0 and drift > 0.5 else 1.0
        for ratio, new_logprob, reference in zip(ratios(c), c.new_logprobs, c.reference, strict=True):
            token = kept_factor * ppo(ratio, a, 0.8, 1.2) - 0.001 * ratio * k3(new_logprob, reference)
            loss -= token / len(c.new_logprobs)
    return loss / count(groups)


def _book_objective(c, a):
    ratio = torch.exp(sum(c.new_logprobs) - sum(c.old_logprobs))
    unclipped_objective, clipped_objective = ratio * a, clip(ratio, -9.0, 11.0) * a
    is_unclipped_smaller = unclipped_objective.item() <= clipped_objective.item()
    return (
        (unclipped_objective if is_unclipped_smaller else clipped_objective)
        if a >= 0
        else (clipped_objective if is_unclipped_smaller else unclipped_objective)
    )


def grpo_book_kl(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        loss -= _book_objective(c, a) - 0.02 * (sum(c.new_logprobs) - sum(c.reference))
    return loss / count(groups)


def deepseek_v32_book(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        drift = (sum(c.old_logprobs) - sum(new_logprob.item() for new_logprob in c.new_logprobs)) / len(
            c.new_logprobs
        )
        kept_factor = 0.0 if a < 0 and drift > 0.1 else 1.0
        ratio = torch.exp(sum(c.new_logprobs) - sum(c.old_logprobs))
        loss -= kept_factor * _book_objective(c, a) - 0.02 * ratio * (sum(c.new_logprobs) - sum(c.reference))
    return loss / count(groups)


def _ar_lopti(groups, alpha, is_trained):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        for ratio, new_logprob, old_logprob, reference in zip(
            ratios(c), c.new_logprobs, c.old_logprobs, c.reference, strict=True
        ):
            if not is_trained(math.exp(old_logprob)):
                continue
            weighted = a * (alpha * math.exp(old_logprob) + 1 - alpha)
            objective = ppo(ratio, weighted, 0.8, 1.24)
            if weighted < 0 and objective.item() < 10 * weighted:
                objective = torch.full_like(ratio, 10 * weighted, requires_grad=False)
            loss -= objective - 0.001 * k3(new_logprob, reference)
    return loss / tokens(groups)


def prorl(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        for ratio, new_logprob, reference in zip(ratios(c), c.new_logprobs, c.reference, strict=True):
            loss -= ppo(ratio, a, 0.8, 1.4) - 0.001 * k3(new_logprob, reference)
    return loss / tokens(groups)


def lopti(groups, max_new_tokens):
    rare_loss = _ar_lopti(groups, 0.0, lambda probability: probability < 0.5)
    return rare_loss + _ar_lopti(groups, 0.0, lambda probability: probability >= 0.5)


def ar(groups, max_new_tokens):
    return _ar_lopti(groups, 0.3, lambda probability: probability <= 1)


def cispo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        for new_logprob, ratio in zip(c.new_logprobs, ratios(c), strict=True):
            loss -= min(ratio.item(), 5.0) * a * new_logprob
    return loss / tokens(groups)


def dcpo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, smoothed(groups)):
        for ratio, old_logprob in zip(ratios(c), c.old_logprobs, strict=True):
            q = math.exp(old_logprob)
            low = 0.5 + 0.5 * math.sqrt(max(1 - 4 * 0.16 / q, 0))
            high = min(0.5 + 0.5 * math.sqrt(1 + 4 * 0.2 / q), 10)
            objective_value = ppo(ratio, a, low, high)
            if a < 0 and objective_value.item() < 10 * a:
                objective_value = torch.full_like(ratio, 10 * a, requires_grad=False)
            loss -= objective_value / len(c.new_logprobs)
    return loss / count(groups)


def reinforce_rej(groups, max_new_tokens):
    loss = _token_mean(groups, ([c.reward for c in group] for group in groups), 0.8, 1.2)
    for group in groups:
        for c in group:
            for new_logprob, reference, entropy in zip(c.new_logprobs, c.reference, c.entropy, strict=True):
                loss += (0.001 * k3(new_logprob, reference) - 0.001 * entropy) / tokens(groups)
    return loss


def scalerl(groups, max_new_tokens):
    loss = 0.0
    for group, advantages in zip(groups, centred_in_units_of_their_deviation(groups), strict=True):
        for c, a in zip(group, advantages, strict=True):
            for new_logprob, ratio in zip(c.new_logprobs, ratios(c), strict=True):
                loss -= min(ratio.item(), 5.0) * a * new_logprob / tokens([group])
    return loss / len(groups)


def magistral(groups, max_new_tokens):
    centred = list(group_centred(groups))
    all_advantages = [a for advantages_of_group in centred for a in advantages_of_group]
    deviation = sample_std(all_advantages) + EPSILON
    loss = 0.0
    for group, advantages in zip(groups, centred, strict=True):
        for c, a in zip(group, advantages, strict=True):
            for ratio in ratios(c):
                loss -= ppo(ratio, (a - mean(all_advantages)) / deviation, 0.8, 1.28) / tokens([group])
    return loss / len(groups)


def prorl_v2(groups, max_new_tokens):
    centred = list(group_centred(groups))
    all_advantages = [a for c, a in completions(groups, centred) for _ in c.new_logprobs]
    deviation = math.sqrt(mean([(a - mean(all_advantages)) ** 2 for a in all_advantages])) + 1e-8
    loss = 0.0
    for c, a in completions(groups, centred):
        whitened = (a - mean(all_advantages)) / deviation
        for t, ratio in enumerate(ratios(c)):
            rho = math.exp(c.old_logprobs[t] - c.sampler[t])
            if 0.5 <= rho <= 5:
                loss -= rho * ppo(ratio, whitened, 0.8, 1.27)
            loss += 1e-4 * (c.new_logprobs[t] - c.reference[t]) ** 2 / 2
    return loss / tokens(groups)


def sapo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        tau = 1.0 if a > 0 else 1.05
        for ratio in ratios(c):
            loss -= 4 / tau / (1 + torch.exp(-tau * (ratio - 1))) * a / len(c.new_logprobs)
    return loss / count(groups)


def covariance_of_tokens(groups, advantages):
    """Return (covariance, number of completion, number of token), in descending order."""
    rows = list(completions(groups, advantages))
    logprobs = [old_logprob for c, _ in rows for old_logprob in c.old_logprobs]
    weights = [a for c, a in rows for _ in c.old_logprobs]
    contributions = [
        ((old_logprob - mean(logprobs)) * (a - mean(weights)), i, t)
        for i, (c, a) in enumerate(rows)
        for t, old_logprob in enumerate(c.old_logprobs)
    ]
    return sorted(contributions, reverse=True)


def kl_cov(groups, max_new_tokens):
    advantages = list(group_normalised(groups))
    ranked_tokens = covariance_of_tokens(groups, advantages)
    top_positions = {(i, t) for _, i, t in ranked_tokens[: max(1, int(0.002 * tokens(groups)))]}
    loss = 0.0
    for i, (c, a) in enumerate(completions(groups, advantages)):
        for t, ratio in enumerate(ratios(c)):
            loss -= ratio * a - (torch.abs(torch.log(ratio)) if (i, t) in top_positions else 0.0)
    return loss / tokens(groups)


def clip_cov(groups, max_new_tokens):
    """Draw one token of the band with the random generator of the test."""
    advantages = list(group_normalised(groups))
    band = sorted((i, t) for cov, i, t in covariance_of_tokens(groups, advantages) if 1 < cov < 5)
    drawn_position = (
        band[torch.randperm(len(band), generator=torch.Generator().manual_seed(0))[0]] if band else None
    )
    loss = 0.0
    for i, (c, a) in enumerate(completions(groups, advantages)):
        for t, ratio in enumerate(ratios(c)):
            loss -= 0.0 if (i, t) == drawn_position else ppo(ratio, a, 0.0, 2.0)
    return loss / tokens(groups)


def fipo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        log_ratios = [
            new_logprob.item() - old_logprob
            for new_logprob, old_logprob in zip(c.new_logprobs, c.old_logprobs, strict=True)
        ]
        for t, ratio in enumerate(ratios(c)):
            future = sum(0.5 ** ((k - t) / 32) * log_ratios[k] for k in range(t, len(log_ratios)))
            weight = min(max(math.exp(future), 1.0), 1.2)
            if a < 0 and ratio.item() > 4:
                weight = min(max(weight, 0.8), 1.0)
            loss -= weight * ppo(ratio, a, 0.8, 1.2)
    return loss / tokens(groups)


def vespo(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        w = math.exp(
            sum(new_logprob.item() - s for new_logprob, s in zip(c.new_logprobs, c.sampler, strict=True))
        )
        k, rate = (2.0, 3.0) if a >= 0 else (3.0, 2.0)
        loss -= w**k * math.exp(rate * (1 - w)) * a * sum(c.new_logprobs)
    return loss / tokens(groups)


def _dppo(groups, has_left):
    """Use `has_left(q, p)` to decide if a token is too far away, where q was sampled and p is now."""
    loss = 0.0
    for c, a in completions(groups, group_centred(groups)):
        for new_logprob, sampler in zip(c.new_logprobs, c.sampler, strict=True):
            p, q = math.exp(new_logprob.item()), math.exp(sampler)
            onwards = p > q if a > 0 else p < q
            if not (onwards and has_left(q, p)):
                loss -= min(p / q, 20.0) * a * new_logprob
    return loss / tokens(groups)


def dppo(groups, max_new_tokens):
    return _dppo(groups, lambda q, p: abs(p - q) > 0.2)


def dppo_kl(groups, max_new_tokens):
    def divergence(q, p):
        return q * math.log(q / p) + (1 - q) * math.log((1 - q + 1e-8) / (1 - p + 1e-8))

    return _dppo(groups, lambda q, p: divergence(q, p) > 0.05)


LOSS_BY_PRESET = {
    loss.__name__: loss
    for loss in (
        reinforce,
        rloo,
        grpo,
        grpo_book,
        grpo_book_clip,
        grpo_book_format,
        grpo_book_format_conditional,
        gdpo_book,
        gdpo,
        dcpo,
        reinforce_rej,
        scalerl,
        magistral,
        prorl_v2,
        r1,
        dapo,
        dr_grpo,
        gspo,
        luspo,
        opo,
        remax,
        otb,
        reinforce_plus_plus,
        reinforce_plus_plus_baseline,
        maxrl,
        k3_rejection,
        pass_at_k,
        gpg,
        two_grpo,
        gspo_token,
        gmpo,
        rspo,
        prorl,
        clip_cov,
        fipo,
        kl_cov,
        vespo,
        dppo,
        dppo_kl,
        lopti,
        ar,
        deepseek_v32,
        deepseek_v32_book,
        grpo_book_kl,
        cispo,
        sapo,
        lite_ppo,
        olmo3,
        olmo3_book,
    )
} | {"ppo": ppo_preset, "ppo_kl": ppo_kl, "trpo": trpo, "vapo": vapo}


def top_entropy(groups, max_new_tokens):
    ranked_entropies = sorted((h for group in groups for c in group for h in c.entropy), reverse=True)
    threshold = ranked_entropies[round(0.3 * len(ranked_entropies)) - 1]
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        for ratio, entropy in zip(ratios(c), c.entropy, strict=True):
            loss -= (ppo(ratio, a, 0.8, 1.2) if entropy >= threshold else 0.0) / len(c.new_logprobs)
    return loss / count(groups)


def kl_by_domain(groups, max_new_tokens):
    """The first group has the domain "easy" and the others "math", with coefficients 0.5 and 2."""
    loss = 0.0
    for number, (group, advantages) in enumerate(zip(groups, group_normalised(groups), strict=True)):
        for c, a in zip(group, advantages, strict=True):
            for ratio, new_logprob, reference in zip(ratios(c), c.new_logprobs, c.reference, strict=True):
                pull = (2.0 if number else 0.5) * (new_logprob - reference) ** 2 / 2
                loss -= (ppo(ratio, a, 0.8, 1.2) - pull) / len(c.new_logprobs)
    return loss / count(groups)


def kl_to_old(groups, max_new_tokens):
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        for ratio, new_logprob, old_logprob in zip(ratios(c), c.new_logprobs, c.old_logprobs, strict=True):
            loss -= (ppo(ratio, a, 0.8, 1.2) - 0.7 * k3(new_logprob, old_logprob)) / len(c.new_logprobs)
    return loss / count(groups)


def masked_by_token(groups, max_new_tokens):
    """Mask against the old policy under a mean over all tokens, with rare tokens reweighted."""
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        drift = sum(
            old_logprob - new_logprob.item()
            for old_logprob, new_logprob in zip(c.old_logprobs, c.new_logprobs, strict=True)
        ) / len(c.new_logprobs)
        kept_factor = 0.0 if a < 0 and drift > 0.05 else 1.0
        for ratio, old_logprob in zip(ratios(c), c.old_logprobs, strict=True):
            loss -= kept_factor * ppo(ratio, a * (0.4 * math.exp(old_logprob) + 0.6), 0.8, 1.2)
    return loss / tokens(groups)


def rejected_by_k3(groups, max_new_tokens):
    """Use a threshold that keeps about half of the completions."""
    return _k3_rejection(groups, 0.04)


def adaptive_entropy(groups, max_new_tokens):
    """A weight of 0.25 on entropies that are constants changes the value and no gradient."""
    loss = 0.0
    for c, a in completions(groups, group_normalised(groups)):
        for ratio, entropy in zip(ratios(c), c.entropy, strict=True):
            loss -= (ppo(ratio, a, 0.8, 1.2) + 0.25 * entropy) / len(c.new_logprobs)
    return loss / count(groups)


LOSS_BY_KNOB = {
    loss.__name__: loss
    for loss in (top_entropy, kl_by_domain, kl_to_old, masked_by_token, rejected_by_k3, adaptive_entropy)
}
