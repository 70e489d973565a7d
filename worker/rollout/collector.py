"""Collect the groups of a step: sample, score, filter, and resample if the config requires a full step."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from backend.config.filters import (
    AccuracyFilter,
    ActiveRefill,
    NeighboursRefill,
    NoRefill,
    ZeroVarianceFilter,
)
from backend.config.knobs import GreedyBaseline
from backend.config.length import (
    LengthConfig,
    MagistralPenalty,
    NoLengthPenalty,
    ScaleTruncatedReward,
    SoftOverlong,
)
from backend.config.rewards import LengthReward
from backend.config.run import RunConfig
from worker.objective import filters, shaping
from worker.objective.multi_reward import RewardTerms
from worker.problems.mixture import Mixture
from worker.prompt import Prompt
from worker.rewards.score import Scorer, weighted_sums
from worker.rollout.engine import Samples
from worker.rollout.episodes import draw
from worker.rollout.pool import Pool
from worker.rollout.sampler import Decoding
from worker.rollout.turns import TakesTurns
from worker.state import Parts
from worker.types import Completion, Group

LENGTH_REWARD_NAME = LengthReward.model_fields["name"].default
LENGTH_PENALTY = "length_penalty"
"""Name of the reward term of the length penalty."""


@dataclass(slots=True)
class CollectedGroups:
    """Groups and counts of one step's sampling."""

    groups: list[Group] = field(default_factory=list)
    """All groups: first those carried over to this step, then those it sampled."""
    carried: list[int] = field(default_factory=list)
    """Positions in `groups` of groups that the previous step sampled."""
    trained: list[int] = field(default_factory=list)
    """Positions in `groups` of groups that train, at most prompts_per_step of them."""
    left_out: dict[int, str] = field(default_factory=dict)
    """Reason why a group does not train, by position in `groups`: see backend.rollouts.marks."""
    batches: int = 0
    """Number of generation batches."""
    informative: int = 0
    """Number of groups that passed the filter, including surplus ones."""
    is_short: bool = False
    """True if refilling could not fill the step."""
    cursor: int = 0
    """Number of prompts used since the run began."""
    may_carry: bool = False
    """True if groups may be carried over from one step to the next."""
    compared: int = 0
    """Number of groups sampled in this step that have several completions with a reward."""
    equal: int = 0
    """Number of the `compared` groups whose rewards are all equal by the rule of the zero-variance filter."""
    greedy_tokens: int = 0
    """Number of tokens of the greedy baseline completions."""
    is_shaped: bool = False
    """True if a reward may depend on more than the weighted terms: on length, or on a required term."""
    opens_think: bool = False
    """True if the chat template ends every prompt with <think>."""
    has_tools: bool = False
    """True if the policy could call tools."""
    sample_seconds: float = 0.0
    score_seconds: float = 0.0

    @property
    def training(self) -> list[Group]:
        """The groups that train."""
        return [self.groups[index] for index in self.trained]

    @property
    def sampled(self) -> list[Group]:
        """The groups that this step sampled."""
        carried_indices = set(self.carried)
        return [group for index, group in enumerate(self.groups) if index not in carried_indices]

    def judge(self, count: int, informative: Sequence[int], reason: str) -> None:
        """Mark which of the next `count` groups train. The others are left out for `reason`."""
        self.left_out |= {
            len(self.groups) + offset: reason for offset in range(count) if offset not in informative
        }
        self.trained += [len(self.groups) + offset for offset in informative]

    def add(self, epoch: "CollectedGroups") -> None:
        """Append the samples of an additional epoch of the same prompts."""
        self.carried += [len(self.groups) + index for index in epoch.carried]
        self.trained += [len(self.groups) + index for index in epoch.trained]
        self.left_out |= {len(self.groups) + index: reason for index, reason in epoch.left_out.items()}
        self.groups += epoch.groups
        self.batches += epoch.batches
        self.cursor = max(self.cursor, epoch.cursor)
        self.informative += epoch.informative
        self.compared += epoch.compared
        self.equal += epoch.equal
        self.greedy_tokens += epoch.greedy_tokens
        self.is_short = self.is_short or epoch.is_short
        self.sample_seconds += epoch.sample_seconds
        self.score_seconds += epoch.score_seconds

    @property
    def tokens(self) -> int:
        """Number of generated tokens, including groups that do not train and greedy baselines."""
        sampled_tokens = sum(
            completion.written_tokens for group in self.sampled for completion in group.completions
        )
        return sampled_tokens + self.greedy_tokens


class Collector:
    """Collects the groups of each step."""

    def __init__(
        self, config: RunConfig, mixture: Mixture, scorer: Scorer, episodes: TakesTurns | None = None
    ) -> None:
        self.config, self.mixture, self.scorer, self.episodes = config, mixture, scorer, episodes
        self.pool = Pool()
        self.parts: Parts = {"pool": self.pool}
        length_config = config.length
        has_gate = any(getattr(term, "required", False) for term in config.rewards)
        scales = isinstance(length_config.truncated, ScaleTruncatedReward)
        self.is_shaped = has_gate or scales or not isinstance(length_config.penalty, NoLengthPenalty)
        self.reason = "equal" if isinstance(config.filters.groups, ZeroVarianceFilter) else "accuracy"

    def collect(self, sampler: Samples, generator: torch.Generator, *, cursor: int) -> CollectedGroups:
        """Return the groups of one step, or of one epoch if each epoch samples anew.

        `cursor` is the number of the first prompt. Refilling continues until prompts_per_step groups are
        informative or all batches are used. Surplus groups are recorded. They are carried over to the next
        step (active) or never train (dynamic). An interrupted collection leaves the pool unchanged.
        """
        target_count = self.config.sampling.prompts_per_step
        refill = self.config.filters.refill
        waiting_indices = list(range(len(self.pool.groups)))
        collected = CollectedGroups(
            groups=list(self.pool.groups),
            carried=waiting_indices,
            trained=list(waiting_indices),
            cursor=cursor,
            may_carry=isinstance(refill, ActiveRefill),
            is_shaped=self.is_shaped,
            opens_think=self.scorer.opens_think,
            has_tools=self.episodes is not None,
        )
        while len(collected.trained) < target_count and collected.batches < refill.batch_limit:
            missing_count = target_count - len(collected.trained)
            size = missing_count if isinstance(refill, NeighboursRefill) else target_count
            self._add_batch(collected, sampler, generator, size=size)
        if isinstance(refill, NeighboursRefill):
            collected.cursor = cursor + target_count
        collected.informative = len(collected.trained) - len(waiting_indices)
        collected.is_short = not isinstance(refill, NoRefill) and len(collected.trained) < target_count
        surplus = collected.trained[target_count:]
        collected.left_out |= dict.fromkeys(surplus, "waiting" if collected.may_carry else "surplus")
        self.pool.groups = (
            [collected.groups[index] for index in surplus] if isinstance(refill, ActiveRefill) else []
        )
        del collected.trained[target_count:]
        return collected

    def _add_batch(
        self, collected: CollectedGroups, sampler: Samples, generator: torch.Generator, *, size: int
    ) -> None:
        sampling = self.config.sampling
        prompts = self.mixture.prompts(collected.cursor, size)
        if self.episodes is not None:
            prompts = self.episodes.prepare_prompts(prompts)
        started_at = time.perf_counter()
        completions = draw(sampler, self.episodes, prompts, sampling.group_size, sampling, generator)
        greedy_completions = self._greedy(sampler, prompts, generator)
        sampled_at = time.perf_counter()
        scored_groups = self.scorer.score(prompts, completions)
        baselines = self._baselines(prompts, greedy_completions)
        collected.score_seconds += time.perf_counter() - sampled_at
        collected.sample_seconds += sampled_at - started_at
        collected.greedy_tokens += sum(completion.written_tokens for [completion] in greedy_completions)
        collected.judge(len(scored_groups), self._informative(scored_groups), self.reason)
        rewards, has_reward = reward_tensors([_rewards_without_length(group) for group in scored_groups])
        is_compared = has_reward.sum(dim=1) > 1
        collected.compared += int(is_compared.sum())
        collected.equal += int((is_compared & ~filters.group_variation_mask(rewards, has_reward)).sum())
        groups = shape_rewards(scored_groups, self.config.length, max_new_tokens=sampling.max_new_tokens)
        if baselines:
            groups = [
                replace(group, greedy_reward=reward) for group, reward in zip(groups, baselines, strict=True)
            ]
        collected.groups += groups
        collected.cursor += len(prompts)
        collected.batches += 1

    def _greedy(
        self, sampler: Samples, prompts: Sequence[Prompt], generator: torch.Generator
    ) -> list[list[Completion]]:
        """Sample one greedy completion of each prompt if the baseline needs it, else return an empty list."""
        if not isinstance(self.config.objective.advantage, GreedyBaseline):
            return []
        decoding = Decoding(self.config.sampling.max_new_tokens, temperature=0.0)
        return draw(sampler, self.episodes, prompts, 1, decoding, generator)

    def _baselines(self, prompts: Sequence[Prompt], greedy: list[list[Completion]]) -> list[float | None]:
        """Return the rewards of the greedy completions, shaped like those of the groups."""
        if not greedy:
            return []
        groups = self.scorer.score(prompts, greedy)
        limit = self.config.sampling.max_new_tokens
        return [group.rewards[0] for group in shape_rewards(groups, self.config.length, max_new_tokens=limit)]

    def _informative(self, groups: Sequence[Group]) -> list[int]:
        """Return the positions of the groups that pass the filter, before length changes any reward.

        Length terms are ignored too, because they would make a group of equal answers look informative.
        """
        rule = self.config.filters.groups
        if isinstance(rule, ZeroVarianceFilter):
            passes = filters.group_variation_mask(
                *reward_tensors([_rewards_without_length(group) for group in groups])
            )
        elif isinstance(rule, AccuracyFilter):
            scores, has_score = reward_tensors([group.correctness for group in groups])
            passes = filters.accuracy_band_mask(scores, has_score, low=rule.low, high=rule.high)
        else:
            return list(range(len(groups)))
        return torch.nonzero(passes).flatten().tolist()


def _rewards_without_length(group: Group) -> Sequence[float | None]:
    if LENGTH_REWARD_NAME not in group.counted:
        return group.rewards
    other_terms = {name: values for name, values in group.counted.items() if name != LENGTH_REWARD_NAME}
    return weighted_sums(other_terms, group.weights, count=len(group.completions))


def shape_rewards(groups: Sequence[Group], length: LengthConfig, *, max_new_tokens: int) -> list[Group]:
    """Apply the length config to the rewards of groups. A penalty is also recorded as a separate term."""
    truncated, penalty = length.truncated, length.penalty
    if isinstance(truncated, ScaleTruncatedReward):
        groups = [_scale_truncated(group, truncated.factor) for group in groups]
    if not isinstance(penalty, NoLengthPenalty):
        groups = [_apply_penalty(group, penalty, max_new_tokens=max_new_tokens) for group in groups]
    return list(groups)


def _scale_truncated(group: Group, factor: float) -> Group:
    rewards, has_reward = reward_tensors([group.rewards])
    is_truncated = torch.tensor([[completion.is_truncated for completion in group.completions]])
    scaled_rewards = shaping.scaled_truncated_rewards(rewards, is_truncated, factor=factor)
    counted_terms = {
        name: _scale_term(values, is_truncated, factor, sign=-1 if group.weights.get(name, 1.0) < 0 else 1)
        for name, values in group.counted.items()
    }
    return replace(group, rewards=_to_tuple(scaled_rewards, has_reward), counted=counted_terms)


def _scale_term(
    values: Sequence[float | None], is_truncated: Tensor, factor: float, *, sign: int
) -> tuple[float | None, ...]:
    """Return a term scaled according to the `sign` of its weight, so that negative contributions stay."""
    term, has_value = reward_tensors([values])
    return _to_tuple(
        sign * shaping.scaled_truncated_rewards(sign * term, is_truncated, factor=factor), has_value
    )


def _apply_penalty(group: Group, rule: SoftOverlong | MagistralPenalty, *, max_new_tokens: int) -> Group:
    """Apply the penalty to the completions that have a reward and meet all required terms."""
    rewards, has_reward = reward_tensors([group.rewards])
    lengths = torch.tensor([[completion.written_tokens for completion in group.completions]])
    ramp = rule.ramp(max_new_tokens)
    shape = shaping.magistral_penalty if isinstance(rule, MagistralPenalty) else shaping.soft_overlong
    penalty = shape(lengths, l_max=ramp.start + ramp.width, l_cache=ramp.width)
    if group.missed:
        penalty = penalty.masked_fill(torch.tensor([group.missed]), 0.0)
    penalty_term = {LENGTH_PENALTY: tuple(penalty[0].tolist())}
    return replace(
        group,
        rewards=_to_tuple(rewards + penalty, has_reward),
        terms={**group.terms, **penalty_term},
        counted={**group.counted, **penalty_term},
        weights={**group.weights, LENGTH_PENALTY: 1.0},
    )


def _to_tuple(rewards: Tensor, scored: Tensor) -> tuple[float | None, ...]:
    pairs = zip(rewards[0].tolist(), scored[0].tolist(), strict=True)
    return tuple(reward if is_scored else None for reward, is_scored in pairs)


def reward_terms(groups: Sequence[Group]) -> RewardTerms:
    """Return every counted reward term of P groups separately. A missing term has weight 0 in its group."""
    names = sorted({name for group in groups for name in group.counted})
    no_values = (None,) * len(groups[0].completions)
    values = torch.zeros(len(names), len(groups), len(no_values), dtype=torch.float64)
    has_value = torch.zeros(values.shape, dtype=torch.bool)
    weights = torch.zeros(len(names), len(groups), dtype=torch.float64)
    for row, name in enumerate(names):
        values[row], has_value[row] = reward_tensors([group.counted.get(name, no_values) for group in groups])
        weights[row] = torch.tensor([group.weights.get(name, 0.0) for group in groups], dtype=torch.float64)
    return RewardTerms(values, has_value, weights)


def greedy_rewards(groups: Sequence[Group]) -> Tensor:
    """Return the rewards (P,) of the groups' greedy completions in float64, NaN if there is none."""
    rewards = [math.nan if group.greedy_reward is None else group.greedy_reward for group in groups]
    return torch.tensor(rewards, dtype=torch.float64)


def reward_tensors(rows: Sequence[Sequence[float | None]]) -> tuple[Tensor, Tensor]:
    """Return values (P, G) in float64 with 0 for None, and a mask that is False for None."""
    values = [[0.0 if value is None else value for value in row] for row in rows]
    has_value = [[value is not None for value in row] for row in rows]
    return torch.tensor(values, dtype=torch.float64), torch.tensor(has_value)
