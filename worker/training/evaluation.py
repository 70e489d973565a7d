"""Evaluation of the policy on the run's held-out set and on its suites.

Random numbers depend only on seed, step and suite. Evaluation therefore does not disturb training, a resumed
run measures the same numbers, and so does a suite that is evaluated later on the checkpoint of a step.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from statistics import fmean
from typing import NamedTuple

import torch

from backend.config.evaluation import Suite
from backend.config.metrics import suite_metric
from backend.config.rewards import CorrectnessReward, EnvironmentReward, RewardTerm
from backend.config.run import RunConfig
from backend.config.served_rewards import CodeReward
from backend.rollouts.records import GroupRecord
from worker.policy.model import Policy
from worker.problems.suites import LoadedSuite
from worker.prompt import Prompt
from worker.rewards.score import Scorer
from worker.rollout.episodes import draw
from worker.rollout.row_limit import RowLimit
from worker.rollout.sampler import Decoding, Sampler
from worker.rollout.turns import TakesTurns
from worker.training.effort import effort_auc
from worker.training.step_metrics import Metrics, evaluation_metrics
from worker.training.step_records import evaluation_records
from worker.training.suite_metrics import GradedPrompt, suite_metrics
from worker.types import Group


class Evaluation(NamedTuple):
    """Result of the evaluations that were due after a step."""

    metrics: Metrics
    groups: tuple[GroupRecord, ...]
    accuracy: float | None
    """Accuracy on the held-out set. None if it was not due or nothing could be graded."""
    score: float | None
    """Accuracy that selects the best checkpoint. None if it was not measured."""


class Evaluator:
    """Evaluates one run. It must be closed when the run ends, because its scorer may own processes."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        scorer: Scorer,
        *,
        held_out: Sequence[Prompt],
        suites: Sequence[LoadedSuite],
        alive: Callable[[], None] = lambda: None,
        limit: RowLimit | None = None,
        episodes: TakesTurns | None = None,
    ) -> None:
        """Create the evaluator of a run.

        `episodes` is given if completions have several turns. `limit` is the row limit that the run's
        samplers share. `alive` is called every few tokens of a suite, because a suite may take far longer
        than a step.
        """
        self.config, self.policy, self.scorer, self.held_out, self.suites = (
            config,
            policy,
            scorer,
            held_out,
            suites,
        )
        self.episodes = episodes
        self._is_shown = episodes is None
        self.suite_scorer = Scorer(grading_terms(config.rewards), opens_think=policy.opens_think)
        self.origin_step = 0
        """Step of the checkpoint that is evaluated by a run without steps."""
        self._alive = alive
        self._limit = limit or RowLimit()

    def close(self) -> None:
        """End every process that grades suites."""
        self.suite_scorer.close()

    def is_due(self, step: int) -> bool:
        """Return whether anything is evaluated after a step."""
        return self._is_held_out_due(step) or bool(self._due_suites(step))

    def evaluate(self, step: int) -> Evaluation:
        """Run every evaluation that is due after a step."""
        started_at = time.perf_counter()
        self._show()
        metrics: Metrics = {}
        groups: tuple[GroupRecord, ...] = ()
        if self._is_held_out_due(step):
            metrics, groups = self._evaluate_held_out(step)
        accuracy = metrics.get("eval/accuracy")
        for loaded_suite in self._due_suites(step):
            suite_metrics_by_name, records = self._evaluate_suite(loaded_suite, step)
            metrics, groups = metrics | suite_metrics_by_name, groups + records
        best_by = self.config.checkpointing.best_by
        score = metrics.get(suite_metric(best_by, "accuracy")) if best_by else accuracy
        metrics["time/eval_seconds"] = time.perf_counter() - started_at
        return Evaluation(metrics, groups, accuracy, score)

    def _show(self) -> None:
        """Add the description of the environment to every prompt, once."""
        if self.episodes is None or self._is_shown:
            return
        self.held_out = self.episodes.prepare_prompts(self.held_out)
        self.suites = [
            replace(loaded_suite, prompts=self.episodes.prepare_prompts(loaded_suite.prompts))
            for loaded_suite in self.suites
        ]
        self._is_shown = True

    def _is_held_out_due(self, step: int) -> bool:
        interval = self.config.evaluation.every
        return interval > 0 and (step % interval == 0 or step == self.config.steps)

    def _due_suites(self, step: int) -> list[LoadedSuite]:
        return [
            loaded_suite
            for loaded_suite in self.suites
            if loaded_suite.suite.is_due(step, last_step=self.config.steps)
        ]

    def _evaluate_held_out(self, step: int) -> tuple[Metrics, tuple[GroupRecord, ...]]:
        evaluation, sampling = self.config.evaluation, self.config.sampling
        decoding = Decoding(
            max_new_tokens=sampling.max_new_tokens,
            temperature=0.0 if evaluation.k == 1 else sampling.temperature,
            top_p=1.0 if evaluation.k == 1 else sampling.top_p,
            top_k=0 if evaluation.k == 1 else sampling.top_k,
        )
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + step)
        sampler = Sampler(self.policy, limit=self._limit)
        completions = draw(sampler, self.episodes, self.held_out, evaluation.k, decoding, generator)
        groups = self.scorer.score(self.held_out, completions)
        metrics = evaluation_metrics(groups, k=evaluation.k)
        if evaluation.effort:
            effort = effort_auc(self.policy, groups, self.scorer, max_new_tokens=sampling.max_new_tokens)
            metrics |= {} if effort is None else {"eval/effort_auc": effort}
        return metrics, evaluation_records(groups, self.scorer)

    def _evaluate_suite(
        self, loaded_suite: LoadedSuite, step: int
    ) -> tuple[Metrics, tuple[GroupRecord, ...]]:
        suite = loaded_suite.suite
        seed = suite_seed(self.config.seed, self.origin_step or step, suite.name)
        generator = torch.Generator().manual_seed(seed)
        sampler = Sampler(self.policy, limit=self._limit, is_unwanted=self._show_life)
        decoding = self._decoding(suite)
        completions = draw(sampler, self.episodes, loaded_suite.prompts, suite.n, decoding, generator)
        groups = self.suite_scorer.score(loaded_suite.prompts, completions)
        metrics = suite_metrics(self._graded(groups), seed=seed) | length_metrics(groups)
        records = evaluation_records(groups, self.suite_scorer, kind=suite.kind)
        return {suite_metric(suite.name, name): value for name, value in metrics.items()}, records

    def _decoding(self, suite: Suite) -> Decoding:
        cap = suite.max_new_tokens or self.config.sampling.max_new_tokens
        return Decoding(cap, temperature=suite.temperature, top_p=suite.top_p, top_k=suite.top_k)

    def _graded(self, groups: Sequence[Group]) -> list[GradedPrompt]:
        """Return the grades of the prompts whose answer is known."""
        graded_prompts = []
        for group in groups:
            correct = [value >= 1 for value in group.correctness if value is not None]
            if correct and len(correct) == len(group.completions):
                texts = [completion.text for completion in group.completions]
                graded_prompts.append(GradedPrompt(correct, self.suite_scorer.votes(group.prompt, texts)))
        return graded_prompts

    def _show_life(self) -> bool:
        self._alive()
        return False


def grading_terms(rewards: Sequence[RewardTerm]) -> list[RewardTerm]:
    """Return the terms that decide whether an answer is correct; suites need no others."""
    return [
        CorrectnessReward(),
        *(term for term in rewards if isinstance(term, CorrectnessReward | CodeReward | EnvironmentReward)),
    ]


def suite_seed(seed: int, step: int, name: str) -> int:
    """Return the seed of a suite's sampling and of its majority votes, 56 bits."""
    return int.from_bytes(sha256(f"{seed}/{step}/{name}".encode()).digest()[:7])


def length_metrics(groups: Sequence[Group]) -> Metrics:
    """Return the mean length in tokens and the share of completions cut at the length limit."""
    completions = [completion for group in groups for completion in group.completions]
    return {
        "length_mean": fmean(completion.written_tokens for completion in completions),
        "truncated_frac": fmean(completion.is_truncated for completion in completions),
    }
