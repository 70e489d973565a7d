"""The launch check: a run without steps that tries a config's problems, verifier and rewards.

sample    completions of training prompts in the same way as the run
grade     the reference answers, and texts without work
report    pass rate, expected signal by group size, wrong grades, and rewards for texts without work
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from backend.base.settings import Settings
from backend.config.data import DataConfig
from backend.config.run import RunConfig
from backend.rollouts.tags import CLOSE_TAG, OPEN_TAG
from backend.runs.check_report import CheckReport, ReferenceCheck, RewardProbe, RowsReport, WrongReference
from worker.checkpoints.store import Checkpoints
from worker.outcome import Outcome
from worker.policy.model import Policy, load_policy
from worker.problems.mixture import Mixture
from worker.problems.selection import Selection
from worker.problems.suites import load_problems
from worker.prompt import Prompt
from worker.recording.recorder import Recorder
from worker.recording.records import StepRecord
from worker.rewards.score import Scorer
from worker.rollout.behaviour import Behaviour
from worker.rollout.collector import CollectedGroups, shape_rewards
from worker.rollout.decoder_check import check_decoder
from worker.rollout.engine import Interrupted
from worker.rollout.episodes import make_episodes
from worker.rollout.sampler import Sampler
from worker.training.check_numbers import finite_mean, make_findings, report_numbers
from worker.training.form_trials import form_trials, shorten
from worker.training.step_metrics import Metrics, group_metrics
from worker.training.step_records import step_records
from worker.training.stop_rules import request_to_end
from worker.training.timings import peak_bytes
from worker.training.update_stats import UpdateStats
from worker.types import Completion, Group

MAX_REFERENCES = 256
"""Maximum number of reference answers to grade."""

MAX_PROBED_PROMPTS = 32
"""Maximum number of prompts that are answered with texts without work."""

MAX_EXAMPLES = 10

METRIC_PREFIXES = ("reward/", "length/", "text/", "tokens/")
"""Prefixes of step metrics that have the same meaning in a check."""


class TextWithoutWork(NamedTuple):
    """A text that a policy could write without solving anything."""

    name: str
    title: str
    write: Callable[[Prompt], str]


class LaunchCheck:
    """Checks one config and stores the report with its run."""

    def __init__(
        self,
        config: RunConfig,
        recorder: Recorder,
        *,
        settings: Settings,
        checkpoints: Checkpoints,
        device: str,
        stopping: threading.Event,
    ) -> None:
        self.config, self.recorder, self.stopping = config, recorder, stopping
        self.started_at = time.perf_counter()
        self.policy = load_policy(config.policy, settings, device=device)
        check_decoder(self.policy, name=config.policy.name)
        checkpoints.take_weights(self.policy)
        _, self.mixture = load_problems(config, settings, with_detection(config.data))
        self.scorer = Scorer(config.rewards, opens_think=self.policy.opens_think)
        self.episodes = make_episodes(config, self.policy, settings)

    def check(self) -> Outcome:
        """Run the check and store its report; store nothing if the run is asked to end meanwhile."""
        try:
            self.recorder.begin(-1)
            report, groups = self._report()
            collected = CollectedGroups(
                groups=groups,
                batches=1,
                opens_think=self.scorer.opens_think,
                has_tools=self.episodes is not None,
            )
            judge_metrics = self.scorer.take_metrics()
            self.recorder.pay(judge_metrics.get("judge/cost", 0.0))
            metrics = self._metrics(collected, report) | judge_metrics
            rollouts = step_records(collected, UpdateStats(), self.scorer)
            self.recorder.record_step(StepRecord(0, metrics, rollouts))
            self.recorder.store_check(report)
            return Outcome("finished")
        except Interrupted:
            return request_to_end(self.stopping, self.recorder.requested_action) or Outcome("stopped")
        finally:
            self.scorer.close()
            if self.episodes is not None:
                self.episodes.close()
            self.mixture.close()

    def _report(self) -> tuple[CheckReport, list[Group]]:
        evaluation = self.config.evaluation
        prompts = distinct_prompts(self.mixture, max(evaluation.prompts, MAX_REFERENCES))
        references = self._references(prompts[:MAX_REFERENCES])
        groups = self._sample(prompts[: evaluation.prompts])
        probes = self._probes(prompts[:MAX_PROBED_PROMPTS])
        report = CheckReport(
            **report_numbers(groups, group_size=self.config.sampling.group_size),
            references=references,
            probes=probes,
            findings=[],
            forms=form_trials(self._behaviour(), self.config.policy, prompts, self._completions),
            rows=[rows_report(selection) for selection in self.mixture.selections],
        )
        conclusions = make_findings(
            report, max_new_tokens=self.config.sampling.max_new_tokens, failure=shorten(self._failure())
        )
        return report.model_copy(update={"findings": conclusions}), groups

    def _sample(self, prompts: Sequence[Prompt]) -> list[Group]:
        """Sample and reward groups of `evaluation.k` completions in the same way as the run."""
        count, policy = self.config.evaluation.k, self._behaviour()
        if self.episodes is None:
            return self._score_groups(prompts, self._completions(policy, prompts, count))
        self.episodes.check()
        shown_prompts = self.episodes.prepare_prompts(prompts)
        sampler = Sampler(policy, is_unwanted=self._is_unwanted)
        generator = torch.Generator().manual_seed(self.config.seed)
        completions = self.episodes.sample(sampler, shown_prompts, count, self.config.sampling, generator)
        return self._score_groups(shown_prompts, completions)

    def _behaviour(self) -> Policy:
        return Behaviour(self.config.sampling).policy(self.policy)

    def _completions(self, policy: Policy, prompts: Sequence[Prompt], count: int) -> list[list[Completion]]:
        sampler = Sampler(policy, is_unwanted=self._is_unwanted)
        generator = torch.Generator().manual_seed(self.config.seed)
        return sampler.sample(prompts, count, self.config.sampling, generator)

    def _score_groups(
        self, prompts: Sequence[Prompt], completions: Sequence[Sequence[Completion]]
    ) -> list[Group]:
        if self._is_unwanted():
            raise Interrupted
        groups = self.scorer.score(prompts, completions)
        return shape_rewards(groups, self.config.length, max_new_tokens=self.config.sampling.max_new_tokens)

    def _reward_texts(self, prompts: Sequence[Prompt], write: Callable[[Prompt], str]) -> list[Group]:
        """Return a scored group with one written text for each prompt."""
        return self._score_groups(
            prompts, [[text_completion(self.policy, write(prompt))] for prompt in prompts]
        )

    def _references(self, prompts: Sequence[Prompt]) -> ReferenceCheck:
        """Grade the reference answers in the form that the reward requires."""
        answered_prompts = [prompt for prompt in prompts if prompt.answer.strip()]
        groups = self._reward_texts(answered_prompts, lambda prompt: self._in_form(box_answer(prompt.answer)))
        wrong_prompts = [
            group.prompt for group in groups if group.correctness[0] is not None and group.correctness[0] < 1
        ]
        return ReferenceCheck(
            checked=len(answered_prompts),
            missing=len(prompts) - len(answered_prompts),
            wrong=len(wrong_prompts),
            examples=[
                WrongReference(
                    id=shorten(prompt.id),
                    source=prompt.problem,
                    prompt=shorten(prompt.text),
                    answer=shorten(prompt.answer),
                )
                for prompt in wrong_prompts[:MAX_EXAMPLES]
            ],
            reward=finite_mean(group.rewards[0] for group in groups),
        )

    def _probes(self, prompts: Sequence[Prompt]) -> list[RewardProbe]:
        return [
            RewardProbe(
                name=text.name,
                title=text.title,
                example=shorten(text.write(prompts[0])),
                reward=finite_mean(group.rewards[0] for group in self._reward_texts(prompts, text.write)),
            )
            for text in self._texts_without_work(prompts)
        ]

    def _texts_without_work(self, prompts: Sequence[Prompt]) -> list[TextWithoutWork]:
        answers = [prompt.answer for prompt in prompts]
        return [
            TextWithoutWork("empty", "An empty text", lambda _: ""),
            TextWithoutWork("echo", "An echo of the prompt", lambda prompt: prompt.text),
            TextWithoutWork("format", "The format alone", lambda _: self._in_form(box_answer("?"))),
            TextWithoutWork(
                "ten_answers",
                "Ten boxed answers, the right one first",
                lambda prompt: self._in_form(" ".join(map(box_answer, ten_answers(prompt.answer, answers)))),
            ),
        ]

    def _in_form(self, answer: str) -> str:
        if not self.scorer.expects_think:
            return answer
        return f"{'' if self.scorer.opens_think else OPEN_TAG}\n{CLOSE_TAG}\n\n{answer}"

    def _failure(self) -> str:
        """Return a sentence about completions that could not be scored or checked in time, else ""."""
        if self.scorer.failures:
            return f"{self.scorer.failures} texts could not be scored: {self.scorer.last_failure}"
        if self.scorer.timeouts:
            return f"{self.scorer.timeouts} answers took too long to check and were graded wrong"
        return ""

    def _metrics(self, collected: CollectedGroups, report: CheckReport) -> Metrics:
        useful_chances = [chance.useful for chance in report.signal if chance.group_size == report.group_size]
        useful_metrics = {"groups/expected_useful": useful_chances[0]} if useful_chances else {}
        metrics = group_metrics(collected)
        sampled_metrics = {name: value for name, value in metrics.items() if name.startswith(METRIC_PREFIXES)}
        return (
            sampled_metrics
            | useful_metrics
            | {
                "tokens/total": collected.tokens,
                "time/wall_seconds": time.perf_counter() - self.started_at,
                "memory/peak_bytes": peak_bytes(self.policy.model.device),
            }
        )

    def _is_unwanted(self) -> bool:
        return request_to_end(self.stopping, self.recorder.requested_action) is not None


def with_detection(data: DataConfig) -> DataConfig:
    """Return the row selection config with overlap and near-duplicate detection enabled."""
    ignored_fields = [
        name for name in ("contamination", "near_duplicates") if getattr(data, name) == "ignore"
    ]
    return data.with_(**dict.fromkeys(ignored_fields, "report"))


def rows_report(selection: Selection) -> RowsReport:
    """Return the report on one source of rows."""
    return RowsReport(
        source=selection.source,
        rows=selection.rows,
        duplicates=selection.duplicates,
        contaminated=selection.contaminated,
        out_of_range=selection.out_of_range,
        examples=[shorten(example) for example in selection.examples],
        near=selection.near + selection.near_held_out,
        twins=[shorten(pair) for pair in selection.twins],
        dropped=selection.dropped,
    )


def distinct_prompts(mixture: Mixture, count: int) -> list[Prompt]:
    """Return the first `count` different training prompts of a run, or fewer if the problems repeat."""
    prompt_by_task: dict[str, Prompt] = {}
    for cursor in range(2 * count):
        [prompt] = mixture.prompts(cursor, 1)
        prompt_by_task.setdefault(prompt.task, prompt)
        if len(prompt_by_task) == count:
            break
    return list(prompt_by_task.values())


def text_completion(policy: Policy, text: str) -> Completion:
    """Return a text as a completion that the policy wrote and ended."""
    ids = np.array(policy.form.encode(text, add_special_tokens=False), dtype=np.int64)
    zeros = np.zeros(len(ids), dtype=np.float32)
    return Completion(ids, text, ("",) * len(ids), "stop", sampler_logprobs=zeros, entropies=zeros)


def box_answer(answer: str) -> str:
    """Return the answer in a LaTeX box."""
    return f"\\boxed{{{answer}}}"


def ten_answers(correct_answer: str, candidates: Sequence[str]) -> list[str]:
    """Return the right answer and nine wrong ones: answers of other prompts if they differ, else numbers."""
    other_answers = dict.fromkeys([*candidates, *map(str, range(10))])
    return [correct_answer, *(answer for answer in other_answers if answer != correct_answer)][:10]
