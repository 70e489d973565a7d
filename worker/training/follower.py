"""The process of a rank above 0, which builds the same models as the trainer and executes its orders.

    python -m worker.training.follower
    stdin   {"meeting": [...], "rank": 1, "size": 2, "device": "cpu", "threads": 1, "config": {...}}

Standard input stays open as a lifeline: when it closes, the process exits at once. The process records
nothing, grades nothing and writes no checkpoint. Like the trainer, it prints the reason if it fails.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from backend.base.settings import Settings
from backend.config.run import RunConfig
from worker.checkpoints.files import load_checkpoint
from worker.checkpoints.store import RestoredCheckpoint
from worker.outcome import EXIT_FAILED, EXIT_ORPHANED
from worker.policy.ranks import Meeting, Ranks, is_lost_peer, join
from worker.policy.shards import ShardedOptimizer
from worker.rollout.engine import Interrupted
from worker.rollout.row_limit import RowLimit
from worker.training.companions import LINGER_SECONDS, Companions, threads_per_rank
from worker.training.lifeline import await_line, exit_at_end, failure_text
from worker.training.rank_sampler import Task, sample_together
from worker.training.replica import Replica
from worker.training.update_stats import UpdateStats

logger = logging.getLogger("worker.training.follower")  # not __main__


def main() -> None:
    """Execute the trainer's orders until it is done."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the trainer decides when to end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.loads(await_line())
    threading.Thread(target=exit_at_end, name="lifeline", daemon=True).start()
    torch.set_num_threads(order["threads"])
    try:
        ranks = join(Meeting(*order["meeting"]), order["rank"], order["size"], device=order["device"])
        follow(RunConfig.model_validate(order["config"]), ranks, device=order["device"])
    except Exception as error:  # the only place that turns any failure into a reason
        if is_lost_peer(error):
            os._exit(EXIT_ORPHANED)
        logger.exception("the rank fails")
        sys.stdout.write(failure_text(error) + "\n")
        sys.stdout.flush()
        os._exit(EXIT_FAILED)


def follow(config: RunConfig, ranks: Ranks, *, device: str) -> None:
    """Build the trainer's models and execute its orders until it releases the ranks."""
    torch.manual_seed(config.seed)
    follower = Follower(Replica(config, Settings(), device=device, ranks=ranks))
    while (order := ranks.order())[0] != "leave":
        follower.obey(order)


def follow_on_node(node: Mapping[str, Any], *, device: str, threads: int, gpus: Sequence[str]) -> None:
    """Follow a trainer on another node with all ranks of this node, starting with this process.

    `node` holds the run's `config`, the `meeting` and this node's `rank`.
    """
    config, meeting = RunConfig.model_validate(node["config"]), Meeting(*node["meeting"])
    threads, first = threads_per_rank(config, threads, gpus), node["rank"] * config.resources.devices
    companions = Companions()
    try:
        companions.start(config, meeting, first=first, device=device, threads=threads, gpus=gpus)
        follow(config, join(meeting, first, config.resources.ranks, device=device), device=device)
    except RuntimeError as error:
        if is_lost_peer(error):
            time.sleep(LINGER_SECONDS)  # the watch thread of the rank that died ends this process
        raise
    finally:
        companions.close()


class Follower:
    """A replica that executes the orders of rank 0."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.limit = replica, RowLimit()

    def obey(self, order: tuple[str, *tuple[Any, ...]]) -> None:
        """Execute one order, a name with its arguments, together with rank 0."""
        name, *arguments = order
        handlers: dict[str, Callable[..., None]] = {
            "sample": self.sample,
            "learn": self.learn,
            "end_step": self.end_step,
            "restore": self.restore,
            "gather": self.gather,
        }
        handlers[name](*arguments)

    def sample(self, task: Task) -> None:
        """Sample this rank's part of the completions."""
        generator = torch.Generator()
        generator.set_state(task.generator)
        with contextlib.suppress(Interrupted):  # rank 0 sends the next order
            sample_together(task, self.replica.policy, self.replica.ranks, generator, limit=self.limit)

    def learn(self, collected: Any, generator: torch.Tensor, step: int) -> None:
        """Run this rank's part of the passes of a step."""
        rank_generator = torch.Generator()
        rank_generator.set_state(generator)
        self.replica.learner.learn(collected, rank_generator, UpdateStats(step))

    def end_step(self) -> None:
        """Update the state that changes once per step."""
        self.replica.learner.end_step()

    def restore(self, restored_checkpoint: RestoredCheckpoint) -> None:
        """Load the state of a checkpoint that rank 0 has chosen and verified."""
        restored_parts = {
            name: stateful
            for name, stateful in self.replica.parts.items()
            if name in restored_checkpoint.parts
        }
        load_checkpoint(
            restored_checkpoint.directory, self.replica.policy, restored_parts, fitting_names=restored_parts
        )
        self.replica.settle(restored_checkpoint)

    def gather(self, state_name: str) -> None:
        """Send this rank's part of an optimizer's state to rank 0."""
        critic = self.replica.learner.critic_step
        optimizer = critic.critic.optimizer if state_name == "critic" and critic else self.replica.optimizer
        if isinstance(optimizer, ShardedOptimizer):
            optimizer.gather()


if __name__ == "__main__":
    main()
