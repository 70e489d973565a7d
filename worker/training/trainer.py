"""The training loop.

evaluate held-out prompts                     step 0
for each step:
    collect   sample G completions of P prompts, score them, filter groups, refill
    learn     advantages -> policy loss -> optimizer
    evaluate  the held-out set and the suites that are due
    record    metrics and rollouts, through a writer thread
    diagnose  every few steps, whether the target metric fell and which metric changed first
    save      a checkpoint every `checkpointing.every` steps
    end       on shutdown, stop, pause, stop rules
"""

import os
import threading
import time
from contextlib import nullcontext

import torch

from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.rollouts.records import GroupRecord
from backend.runs.lifecycle import ENDED_STATUSES, has_attempt_ended
from worker.checkpoints.store import Checkpoints
from worker.outcome import Outcome
from worker.policy.microbatches import Microbatches
from worker.policy.model import frozen_copy
from worker.policy.ranks import ALONE, Ranks
from worker.policy.routing import routers
from worker.policy.weight_sample import WeightSample
from worker.problems.suites import load_problems
from worker.recording.recorder import Recorder
from worker.recording.records import StepRecord
from worker.rewards.score import Scorer
from worker.rollout.ahead import RolloutsAhead, age_metrics
from worker.rollout.behaviour import Behaviour
from worker.rollout.collector import CollectedGroups, Collector
from worker.rollout.engine import Engine, Interrupted
from worker.rollout.engines import engine_for
from worker.rollout.episodes import make_episodes
from worker.rollout.local_engine import LocalEngine
from worker.rollout.row_limit import RowLimit
from worker.state import Parts
from worker.training.evaluation import Evaluator
from worker.training.online_diagnosis import OnlineDiagnosis
from worker.training.randomness import Randomness, seed_generators
from worker.training.rank_sampler import sampler_factory
from worker.training.replica import Replica
from worker.training.run_counters import RunCounters
from worker.training.signal_budget import signal_budget
from worker.training.step_metrics import Metrics, group_metrics
from worker.training.step_records import step_records
from worker.training.stop_rules import reason_to_end, request_to_end
from worker.training.timings import Hardware, peak_bytes, timing_metrics
from worker.training.update_stats import UpdateStats

SLOW_SAVE_SECONDS = 20.0
"""Seconds after which a slow checkpoint is reported."""


def use_threads(threads: int) -> None:
    """Set the number of CPU threads of this process."""
    torch.set_num_threads(threads)


class Trainer:
    """Trains one run to its end, from its newest checkpoint or from the start."""

    def __init__(
        self,
        config: RunConfig,
        recorder: Recorder,
        *,
        settings: Settings,
        checkpoints: Checkpoints,
        device: str,
        stopping: threading.Event,
        ranks: Ranks = ALONE,
    ) -> None:
        self.config, self.recorder, self.checkpoints, self.stopping = config, recorder, checkpoints, stopping
        seed_generators(config.seed)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.replica = Replica(
            config, settings, device=device, ranks=ranks, allow_writes=recorder.allow_writes
        )
        self.policy, self.optimizer = self.replica.policy, self.replica.optimizer
        self.learner, self.reference = self.replica.learner, self.replica.reference
        self.unpacked = self.replica.unpacked
        suites, self.mixture = load_problems(config, settings, config.data)
        held_out = self.mixture.evaluation_set(config.evaluation.prompts) if config.evaluation.every else []
        self.mixture.hold_out(prompt for suite in suites for prompt in suite.prompts)
        self.scorer = Scorer(config.rewards, opens_think=self.policy.opens_think)
        self.row_limit = RowLimit()
        self.episodes = make_episodes(config, self.policy, settings)
        self.evaluator = Evaluator(
            config,
            self.policy,
            self.scorer,
            held_out=held_out,
            suites=suites,
            alive=recorder.show_life,
            limit=self.row_limit,
            episodes=self.episodes,
        )
        self.collector = Collector(config, self.mixture, self.scorer, self.episodes)
        self.behaviour = Behaviour(config.sampling)
        self.engine: Engine = engine_for(
            config,
            self.policy,
            settings,
            behaviour=self.behaviour,
            limit=self.row_limit,
            run_id=checkpoints.run_id,
            attempt=checkpoints.attempt,
        )
        if not ranks.is_alone and isinstance(self.engine, LocalEngine):
            self.engine.make_sampler = sampler_factory(self.replica)
        ahead = config.sampling.ahead
        self.ahead = (
            RolloutsAhead(self.engine, self.collector, ahead=ahead, seed=config.seed) if ahead else None
        )
        self.counters = RunCounters()
        self.diagnosis = OnlineDiagnosis(config, recorder)
        self.parts: Parts = {
            "progress": self.counters,
            "random": Randomness({"training": self.generator}),
            **self.replica.parts,
            **self.collector.parts,
            **({"behaviour": self.behaviour} if config.sampling.staleness else {}),
            **({} if self.ahead is None else {"ahead": self.ahead}),
        }
        epochs = 1 if config.updates.resample_each_epoch else config.updates.epochs
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "") if device.startswith("cuda") else ""
        self.hardware = Hardware(self.policy.model, epochs=epochs, state=settings.state, gpu=gpu)
        self.timeouts = self.failures = 0
        self.last_save_seconds = 0.0
        self.clock = time.perf_counter()

    def train(self) -> Outcome:
        """Train until the last step, a shutdown, a user request or a stop rule."""
        try:
            if (outcome := self._engine_outcome()) is not None:
                return outcome
            self._begin()
            outcome = self._unrecorded_decision()
            while outcome is None and self.counters.step < self.config.steps:
                self._step()
                outcome = self._reason_to_end()
            outcome = outcome or Outcome("finished")
            self.diagnosis.end(is_final=outcome.status in ENDED_STATUSES)
            if self.config.steps:
                self._save()
                self.checkpoints.finish()
            return outcome
        finally:
            if self.ahead is not None:
                self.ahead.close()
            self.engine.close()
            self.evaluator.close()
            self.scorer.close()
            if self.episodes is not None:
                self.episodes.close()
            self.mixture.close()
            self.hardware.close()
            self._judge_metrics()  # judge costs of an unfinished step

    def _engine_outcome(self) -> Outcome | None:
        """Prepare the engine, and return an outcome if the run is asked to end meanwhile."""
        if not self.config.steps:
            return None
        self.engine.is_unwanted = self._is_unwanted
        try:
            if sentence := self.engine.check():
                self._event("engine", "info", sentence)
        except Interrupted:
            return request_to_end(self.stopping, self.recorder.requested_action) or Outcome("stopped")
        return None

    def _begin(self) -> None:
        """Restore the newest good checkpoint, or evaluate the initial policy.

        A run without steps only evaluates its policy.
        """
        for selection in self.mixture.selections:
            if selection.sentence:
                level = "warning" if selection.contaminated else "info"
                self._event("data", level, selection.sentence)
        if self.unpacked:
            self._event("memory", "info", f"completions are padded, not packed: {self.unpacked}")
        if self._wants_routers() and not routers(self.policy.model):
            message = "the policy has no routers: router shift and routing replay do nothing"
            self._event("data", "warning", message)
        if self.episodes is not None:
            self.episodes.check()
        if self.config.steps == 0:
            self.evaluator.origin_step = self.checkpoints.take_weights(self.policy)
        restored_step = self.checkpoints.restore(self.policy, self.parts) if self.config.steps else None
        if restored_step is not None and self.checkpoints.restored_checkpoint is not None:
            self.replica.settle(self.checkpoints.restored_checkpoint)
            self.replica.order("restore", self.checkpoints.restored_checkpoint)
        self.learner.microbatches.limit(self.counters.microbatch_tokens)
        self.row_limit.lower(self.counters.sampled_rows)
        self.recorder.begin(-1 if restored_step is None else restored_step)
        self.diagnosis.begin(restored_step or 0)
        if restored_step is None and self.evaluator.is_due(0):
            metrics, groups = self._evaluate()
            metrics |= self._judge_metrics() | self._clocks()
            self.recorder.record_step(StepRecord(0, metrics, groups))
            self.diagnosis.take(0, metrics)
        if self.ahead is not None and self.config.steps:
            self.ahead.start(self.counters.step, self.counters.cursor, self._is_unwanted)
            self.ahead.publish(self.counters.step, self.policy)

    def _wants_routers(self) -> bool:
        return self.config.sampling.routing_replay or self.config.objective.router.type != "none"

    def _unrecorded_decision(self) -> Outcome | None:
        """Return the decision of a stop rule that was saved in a checkpoint but never recorded.

        Return None for a fork, or if the decision is recorded, because the user has then resumed the run.
        """
        decision, self.counters.decision = self.counters.decision, None
        if decision is None:
            return None
        restored, outcome = self.checkpoints.restored_checkpoint, Outcome(*decision)
        attempt = None if restored is None else restored.attempt
        if attempt is None:
            return None
        is_recorded = self.recorder.read(
            lambda session: has_attempt_ended(
                session, self.recorder.run_id, outcome.reason, since_attempt=attempt
            )
        )
        return None if is_recorded else outcome

    def _step(self) -> None:
        """Run and record one training step. Record nothing if the run was asked to end before learning."""
        started_at = time.perf_counter()
        generator_state = self.generator.get_state()
        staleness: Metrics = (
            {"sampling/staleness": self.behaviour.age} if self.config.sampling.staleness else {}
        )
        try:
            collected = self._collect() if self.ahead is None else self.ahead.take(self._is_unwanted)
        except Interrupted:
            self.generator.set_state(generator_state)
            return
        if self.ahead is not None:
            wait_metrics = {"time/wait_seconds": time.perf_counter() - started_at}
            staleness = wait_metrics | age_metrics(collected, version=self.counters.step)
        self.counters.step += 1
        self.counters.accuracy = None
        weights = WeightSample(self.policy.model)
        update_stats = self._learn(collected)
        if self.ahead is not None:
            self.ahead.publish(self.counters.step, self.policy)
        seconds = time.perf_counter() - started_at
        self._advance(collected, update_stats)
        metrics = (
            group_metrics(collected)
            | update_stats.metrics()
            | timing_metrics(collected, update_stats, seconds)
        )
        metrics |= self.engine.take_metrics() | staleness
        metrics |= {"optim/update_norm": weights.measure_change()}
        metrics |= self.hardware.utilization(collected, seconds)
        metrics |= signal_budget(collected, update_stats, seconds)
        groups = step_records(collected, update_stats, self.scorer)
        if self.evaluator.is_due(self.counters.step):
            eval_metrics, held_out = self._evaluate()
            metrics, groups = metrics | eval_metrics, groups + held_out
        metrics |= self._judge_metrics()
        if change := self.reference.after_step(self.counters.step):
            self._event("reference", "info", change)
        metrics |= self._clocks()
        is_alarmed = bool(update_stats.skipped) or not collected.trained
        self.recorder.record_step(StepRecord(self.counters.step, metrics, groups, is_alarmed=is_alarmed))
        self.diagnosis.take(self.counters.step, metrics)
        self._decide(metrics)
        if self._is_due(self.config.checkpointing.every):
            self._save()

    def _collect(self) -> CollectedGroups:
        """Sample the completions of a step with the current weights."""
        self.engine.is_unwanted = self._is_unwanted
        self.engine.sync(self.counters.step, self.policy)
        collected = self._sample_step()
        self.engine.release_memory()
        return collected

    def _sample_step(self) -> CollectedGroups:
        return self.collector.collect(self.engine, self.generator, cursor=self.counters.cursor)

    def _learn(self, collected: CollectedGroups) -> UpdateStats:
        """Train on the collected groups. If each epoch samples anew, add the rollouts of later epochs."""
        updates, update_stats = self.config.updates, UpdateStats(self.counters.step)
        if not updates.resample_each_epoch:
            self.behaviour.remember(self.policy)
            state = self.generator.get_state()
            self.replica.order("learn", collected, state, update_stats.step)
            self.learner.learn(collected, self.generator, update_stats)
            self.replica.order("end_step")
            self.learner.end_step()
            return update_stats
        old_policy = frozen_copy(self.policy)
        self.engine.is_unwanted = lambda: False  # learning has begun, so sampling is not interrupted
        self.engine.sync(update_stats.step - 1, old_policy)
        self.learner.learn(collected, self.generator, update_stats)
        for _ in range(updates.epochs - 1):
            new_groups = self._sample_step()
            self.learner.learn(new_groups, self.generator, update_stats, old_policy=old_policy)
            collected.add(new_groups)
        self.learner.end_step()
        self.behaviour.remember(old_policy)
        return update_stats

    def _advance(self, collected: CollectedGroups, update_stats: UpdateStats) -> None:
        """Update the run's state, and report steps that carried too little signal."""
        counters, target_count = self.counters, self.config.sampling.prompts_per_step
        counters.cursor = collected.cursor
        counters.tokens += collected.tokens
        counters.skipped_steps = counters.skipped_steps + 1 if update_stats.is_stuck else 0
        counters.empty_steps = 0 if collected.trained else counters.empty_steps + 1
        counters.short_steps = counters.short_steps + 1 if collected.is_short else 0
        if counters.short_steps == 1:
            shortfall = (
                f"{len(collected.trained)} of {target_count} informative groups "
                f"in {collected.batches} batches"
            )
            self._event("data", "warning", f"refilling found {shortfall}; the step trains on those")
        if timeout_count := self.scorer.timeouts - self.timeouts:
            self.timeouts = self.scorer.timeouts
            self._event(
                "data", "warning", f"{timeout_count} answers took too long to check and were graded wrong"
            )
        if failure_count := self.scorer.failures - self.failures:
            self.failures = self.scorer.failures
            self._event(
                "data", "warning", f"{failure_count} completions left unscored: {self.scorer.last_failure}"
            )
        if loss_message := self.episodes.take_loss() if self.episodes is not None else "":
            self._event("environment", "warning", loss_message)
        if self.learner.microbatches.halvings:
            self._note_halving(self.learner.microbatches)
        if self.row_limit.halvings:
            self.row_limit.halvings = 0
            self._event(
                "memory",
                "warning",
                f"memory ran out while sampling; at most {self.row_limit.rows} completions are sampled at "
                "once from now on, which changes none of them",
            )
        if update_stats.skipped:
            self._event(
                "alert", "error", f"{update_stats.skipped} updates skipped: loss or gradient is not finite"
            )

    def _note_halving(self, microbatches: Microbatches) -> None:
        """Report that memory ran out, and store the size that fitted for later attempts."""
        counters, microbatches.halvings = self.counters, 0
        counters.microbatch_tokens = microbatches.tokens
        self._event(
            "memory",
            "warning",
            f"memory ran out; the step was repeated with at most {microbatches.tokens} tokens per pass, and "
            "so will the next ones be: set resources.microbatch_tokens to begin there",
        )

    def _evaluate(self) -> tuple[Metrics, tuple[GroupRecord, ...]]:
        """Run the evaluations that are due after this step."""
        evaluation = self.evaluator.evaluate(self.counters.step)
        self.counters.accuracy = evaluation.score
        self.reference.record_accuracy(evaluation.accuracy)
        return evaluation.metrics, evaluation.groups

    def _judge_metrics(self) -> Metrics:
        """Return judge/* since the last call, and add its cost to the attempt even if the step is
        unfinished.
        """
        metrics = self.scorer.take_metrics()
        self.recorder.pay(metrics.get("judge/cost", 0.0))
        return metrics

    def _is_unwanted(self) -> bool:
        """Return whether sampling should be cancelled. Remote engines have separate deadlines."""
        if self.config.sampling.engine.type != "local":
            self.recorder.show_life()
        return self._is_asked_to_end()

    def _is_asked_to_end(self) -> bool:
        return request_to_end(self.stopping, self.recorder.requested_action) is not None

    def _decide(self, metrics: Metrics) -> None:
        """Apply the stop rules before the step is saved, so that its checkpoint holds the decision."""
        outcome = (
            reason_to_end(self.config.stop_rules, self.counters, metrics) or self.diagnosis.reason_to_end()
        )
        self.counters.decision = outcome and (outcome.status, outcome.reason)

    def _reason_to_end(self) -> Outcome | None:
        """Return the outcome with which training ends after this step, or None."""
        if self.counters.decision:
            return Outcome(*self.counters.decision)
        return request_to_end(self.stopping, self.recorder.requested_action)

    def _save(self) -> None:
        """Save a checkpoint of this step unless there is one."""
        self.recorder.flush()
        started_at = time.perf_counter()
        step, accuracy = self.counters.step, self.counters.accuracy
        self.counters.sampled_rows = self.row_limit.rows
        with nullcontext() if self.ahead is None else self.ahead.freeze_state():
            self.checkpoints.save(self.policy, self.parts, step=step, accuracy=accuracy)
        self.last_save_seconds = time.perf_counter() - started_at
        if self.last_save_seconds > SLOW_SAVE_SECONDS:
            message = f"the disk is slow: writing a checkpoint took {self.last_save_seconds:.0f} s"
            self._event("checkpoint", "warning", message)

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and (
            self.counters.step % interval == 0 or self.counters.step == self.config.steps
        )

    def _event(self, kind: str, level: str, message: str) -> None:
        self.recorder.event(kind, level, message, step=self.counters.step)

    def _clocks(self) -> Metrics:
        """Return totals since the run began, and the memory of the process."""
        now = time.perf_counter()
        self.counters.wall_seconds += now - self.clock
        self.clock = now
        metrics: Metrics = {
            "time/wall_seconds": self.counters.wall_seconds,
            "tokens/total": self.counters.tokens,
            "memory/peak_bytes": peak_bytes(self.policy.model.device),
            **self.hardware.machine(),
        }
        if self.last_save_seconds:
            metrics["time/checkpoint_seconds"] = self.last_save_seconds
            self.last_save_seconds = 0.0
        return metrics
