"""The training loop.

evaluate held-out prompts                     step 0
for each step:
    collect   sample G completions of P prompts, score them, filter groups, refill
    learn     advantages -> policy loss -> optimizer
    evaluate  every `evaluation.every` steps
    record    metrics and rollouts, through a writer thread
    save      a checkpoint every `checkpointing.every` steps
    obey      shutdown, stop, pause, stop rules
"""

import resource
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from backend.config.run import RunConfig, StopAfterTime, StopAtAccuracy, StopOnNonFinite
from backend.settings import Settings
from worker.checkpoints import Checkpoints
from worker.learned import Learned
from worker.learner import Learner
from worker.outcome import Outcome
from worker.policy.model import Policy, frozen_copy, load_policy
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.routing import routers
from worker.problems.mixture import build_mixture
from worker.randomness import Randomness
from worker.recorder import Recorder
from worker.recording import evaluation_records, step_records
from worker.records import GroupRecord, StepRecord
from worker.reference import ReferenceUpdates
from worker.rewards.score import Scorer
from worker.rollout.behaviour import Behaviour
from worker.rollout.collector import Collected, Collector
from worker.rollout.sampler import Decoding, Interrupted, Sampler
from worker.state import Parts
from worker.step_metrics import Metrics, evaluation_metrics, group_metrics

EMPTY_STEPS = 20
"""A run stops after this many steps in a row without a single group that carries signal."""

SLOW_SAVE_SECONDS = 20.0
"""A checkpoint that takes longer is worth a word."""


def use_threads(threads: int) -> None:
    """How many CPU threads this process computes with."""
    torch.set_num_threads(threads)


@dataclass(slots=True)
class Progress:
    """Where a run stands."""

    step: int = 0
    """Last finished step."""
    cursor: int = 0
    """Prompts taken."""
    tokens: int = 0
    """Tokens generated."""
    wall_seconds: float = 0.0
    """Training time, pauses left out."""
    empty_steps: int = 0
    """Steps in a row without signal."""
    short_steps: int = 0
    """Steps in a row that refilling could not fill."""
    skipped_steps: int = 0
    """Steps in a row whose every update was not finite."""
    accuracy: float | None = None
    """Held-out accuracy at this very step, if it was measured."""

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """See Stateful."""
        for name, value in values.items():
            setattr(self, name, value)


class Trainer:
    """Trains one run from its newest checkpoint, or from the start, to its end."""

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
        self.config, self.recorder, self.checkpoints, self.stopping = config, recorder, checkpoints, stopping
        torch.manual_seed(config.seed)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.policy = load_policy(config.policy, settings, device=device)
        reference = frozen_copy(self.policy) if config.objective.needs_reference else None
        self.optimizer = PolicyOptimizer(self.policy.model, config.optimizer, steps=config.steps)
        self.learner = Learner(config, self.policy, self.optimizer, reference)
        self.reference = ReferenceUpdates(config.objective.reference, self.policy, reference, self.optimizer)
        self.mixture = build_mixture(
            config.problems,
            seed=config.seed,
            order=config.sampling.order,
            datasets_dir=settings.datasets_dir,
            hf_online=settings.hf_online,
        )
        self.held_out = (
            self.mixture.evaluation_set(config.evaluation.prompts) if config.evaluation.every else []
        )
        self.scorer = Scorer(config.rewards)
        self.collector = Collector(config, self.mixture, self.scorer)
        self.behaviour = Behaviour(config.sampling)
        self.progress = Progress()
        self.parts: Parts = {
            "progress": self.progress,
            "random": Randomness({"training": self.generator}),
            "optimizer": self.optimizer,
            **self.learner.parts,
            **self.reference.parts,
            **self.collector.parts,
            **({"behaviour": self.behaviour} if config.sampling.staleness else {}),
        }
        self.timeouts = self.failures = 0
        self.last_save_seconds = 0.0
        self.clock = time.perf_counter()

    def train(self) -> Outcome:
        """Train until the last step, a shutdown, a wish or a stop rule ends it."""
        try:
            self._begin()
            outcome = None
            while outcome is None and self.progress.step < self.config.steps:
                metrics = self._step()
                outcome = self._reason_to_end(metrics)
            if self.config.steps:
                self._save()
            return outcome or Outcome("finished")
        finally:
            self.scorer.close()
            self.mixture.close()

    def _begin(self) -> None:
        """Continue from the newest good checkpoint, or evaluate the policy as it came.

        A run without steps only measures the policy that it is given.
        """
        if self._wants_routers() and not routers(self.policy.model):
            message = "the policy has no routers: router shift and routing replay do nothing"
            self._event("data", "warning", message)
        if self.config.steps == 0:
            self.checkpoints.take_weights(self.policy)
        restored = self.checkpoints.restore(self.policy, self.parts) if self.config.steps else None
        if restored is None:
            self.recorder.begin(-1)
            if self.config.evaluation.every:
                metrics, groups = self._evaluate()
                self.recorder.record_step(StepRecord(0, metrics | self._clocks(), groups))
            return
        self.recorder.begin(restored)

    def _wants_routers(self) -> bool:
        return self.config.sampling.routing_replay or self.config.objective.router.type != "none"

    def _step(self) -> Metrics:
        """One training step, recorded; nothing at all when the run was asked to end before it learned."""
        started = time.perf_counter()
        before = self.generator.get_state()
        sampler = self._sampler(self.policy, is_unwanted=self._is_asked_to_end)
        staleness = {"sampling/staleness": self.behaviour.age} if self.config.sampling.staleness else {}
        try:
            collected = self._collect(sampler)
        except Interrupted:
            self.generator.set_state(before)
            return {}
        self.progress.step += 1
        self.progress.accuracy = None
        learned = self._learn(collected)
        seconds = time.perf_counter() - started
        self._advance(collected, learned)
        metrics = group_metrics(collected) | learned.metrics() | _timings(collected, learned, seconds)
        metrics |= staleness
        groups = step_records(collected, learned, self.scorer)
        if self._is_due(self.config.evaluation.every):
            evaluated, held_out = self._evaluate()
            metrics, groups = metrics | evaluated, groups + held_out
        if change := self.reference.after_step(self.progress.step):
            self._event("reference", "info", change)
        metrics |= self._clocks()
        is_alarmed = bool(learned.skipped) or not collected.kept
        self.recorder.record_step(StepRecord(self.progress.step, metrics, groups, is_alarmed=is_alarmed))
        if self._is_due(self.config.checkpointing.every):
            self._save()
        return metrics

    def _sampler(self, opening: Policy, is_unwanted: Callable[[], bool] = lambda: False) -> Sampler:
        """What samples a step that `opening` begins."""
        sampling = self.config.sampling
        return Sampler(
            self.behaviour.policy(opening),
            is_unwanted=is_unwanted,
            keep_mask=sampling.keep_mask,
            routes=sampling.routing_replay,
        )

    def _collect(self, sampler: Sampler) -> Collected:
        return self.collector.collect(sampler, self.generator, cursor=self.progress.cursor)

    def _learn(self, collected: Collected) -> Learned:
        """Train on what was collected; when epochs sample afresh, each further one adds its rollouts."""
        updates, learned = self.config.updates, Learned(self.progress.step)
        if not updates.resample_each_epoch:
            self.behaviour.remember(self.policy)
            self.learner.learn(collected, self.generator, learned)
            self.learner.end_step()
            return learned
        opening = frozen_copy(self.policy)
        sampler = self._sampler(opening)
        self.learner.learn(collected, self.generator, learned)
        for _ in range(updates.epochs - 1):
            again = self._collect(sampler)
            self.learner.learn(again, self.generator, learned, opening=opening)
            collected.add(again)
        self.learner.end_step()
        self.behaviour.remember(opening)
        return learned

    def _advance(self, collected: Collected, learned: Learned) -> None:
        """Move the run's state on, and say so when a step carried too little signal."""
        progress, wanted = self.progress, self.config.sampling.prompts_per_step
        progress.cursor = collected.cursor
        progress.tokens += collected.tokens
        progress.skipped_steps = progress.skipped_steps + 1 if learned.is_stuck else 0
        progress.empty_steps = 0 if collected.kept else progress.empty_steps + 1
        progress.short_steps = progress.short_steps + 1 if collected.is_short else 0
        if progress.short_steps == 1:
            found = f"{len(collected.kept)} of {wanted} informative groups in {collected.batches} batches"
            self._event("data", "warning", f"refilling found {found}; the step trains on those")
        if slow := self.scorer.timeouts - self.timeouts:
            self.timeouts = self.scorer.timeouts
            self._event("data", "warning", f"{slow} answers took too long to check and were graded wrong")
        if failed := self.scorer.failures - self.failures:
            self.failures = self.scorer.failures
            self._event("data", "warning", f"{failed} completions left unscored: {self.scorer.last_failure}")
        if learned.skipped:
            self._event(
                "alert", "error", f"{learned.skipped} updates skipped: loss or gradient is not finite"
            )

    def _evaluate(self) -> tuple[Metrics, tuple[GroupRecord, ...]]:
        """Held-out accuracy; its random numbers depend on seed and step alone: training is not disturbed."""
        started = time.perf_counter()
        evaluation, sampling = self.config.evaluation, self.config.sampling
        decoding = Decoding(
            max_new_tokens=sampling.max_new_tokens,
            temperature=0.0 if evaluation.k == 1 else sampling.temperature,
            top_p=1.0 if evaluation.k == 1 else sampling.top_p,
            top_k=0 if evaluation.k == 1 else sampling.top_k,
        )
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.progress.step)
        completions = Sampler(self.policy).sample(self.held_out, evaluation.k, decoding, generator)
        groups = self.scorer.score(self.held_out, completions)
        metrics = evaluation_metrics(groups, k=evaluation.k)
        self.progress.accuracy = metrics.get("eval/accuracy")
        self.reference.saw(self.progress.accuracy)
        metrics["time/eval_seconds"] = time.perf_counter() - started
        return metrics, evaluation_records(groups, self.scorer)

    def _is_asked_to_end(self) -> bool:
        return self.stopping.is_set() or self.recorder.wish in ("stop", "pause")

    def _reason_to_end(self, metrics: Metrics) -> Outcome | None:
        """Why training ends after this step, if it does."""
        if self.stopping.is_set():
            return Outcome("queued", "the worker was asked to stop")
        if self.recorder.wish == "stop":
            return Outcome("stopped", "stopped by the user")
        if self.recorder.wish == "pause":
            return Outcome("paused", "paused by the user")
        if self.progress.empty_steps >= EMPTY_STEPS:
            return Outcome("stopped", "no_signal")
        return self._stop_rule(metrics)

    def _stop_rule(self, metrics: Metrics) -> Outcome | None:
        for rule in self.config.stop_rules:
            match rule:
                case StopAtAccuracy(value=value) if metrics.get("eval/accuracy", 0.0) >= value:
                    return Outcome("finished", f"held-out accuracy reached {value:g}")
                case StopAfterTime(seconds=seconds) if self.progress.wall_seconds >= seconds:
                    return Outcome("stopped", f"trained for {seconds:g} seconds")
                case StopOnNonFinite(patience=patience) if self.progress.skipped_steps >= patience:
                    return Outcome("failed", f"{patience} steps in a row had no finite loss or gradient")
        return None

    def _save(self) -> None:
        """A checkpoint of this step, unless there is one."""
        self.recorder.flush()
        started = time.perf_counter()
        step, accuracy = self.progress.step, self.progress.accuracy
        self.checkpoints.save(self.policy, self.parts, step=step, accuracy=accuracy)
        self.last_save_seconds = time.perf_counter() - started
        if self.last_save_seconds > SLOW_SAVE_SECONDS:
            slow = f"the disk is slow: writing a checkpoint took {self.last_save_seconds:.0f} s"
            self._event("checkpoint", "warning", slow)

    def _is_due(self, every: int) -> bool:
        return every > 0 and (self.progress.step % every == 0 or self.progress.step == self.config.steps)

    def _event(self, kind: str, level: str, message: str) -> None:
        self.recorder.event(kind, level, message, step=self.progress.step)

    def _clocks(self) -> Metrics:
        """Totals since the run began, and what the process takes."""
        now = time.perf_counter()
        self.progress.wall_seconds += now - self.clock
        self.clock = now
        metrics: Metrics = {
            "time/wall_seconds": self.progress.wall_seconds,
            "tokens/total": self.progress.tokens,
            "memory/peak_bytes": _peak_bytes(self.policy.model.device),
        }
        if self.last_save_seconds:
            metrics["time/checkpoint_seconds"] = self.last_save_seconds
            self.last_save_seconds = 0.0
        return metrics


def _timings(collected: Collected, learned: Learned, seconds: float) -> Metrics:
    timings = {
        "time/step_seconds": seconds,
        "time/sample_seconds": collected.sample_seconds,
        "time/score_seconds": collected.score_seconds,
        "time/update_seconds": learned.seconds - learned.reference_seconds - learned.critic_seconds,
        "throughput/tokens_per_second": collected.tokens / seconds,
    }
    parts = {
        "time/reference_seconds": learned.reference_seconds,
        "time/critic_seconds": learned.critic_seconds,
    }
    return timings | {name: taken for name, taken in parts.items() if taken}


def _peak_bytes(device: torch.device) -> float:
    """Largest memory so far: of the GPU on a GPU, else of the process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
