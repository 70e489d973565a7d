"""The replica of a run's models on one rank: policy, reference, optimizer and learner."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from backend.base.settings import Settings
from backend.config.run import RunConfig
from worker.checkpoints.store import RestoredCheckpoint
from worker.policy.logprobs import compute_by_rows
from worker.policy.model import load_policy
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.packing import enable_packing
from worker.policy.ranks import ALONE, Ranks
from worker.policy.recompute import enable_recompute
from worker.policy.routing import routed_logprobs
from worker.policy.shards import ShardedModel, ShardedOptimizer
from worker.rollout.decoder_check import check_decoder
from worker.state import Stateful
from worker.training.learner import Learner
from worker.training.reference import ReferenceUpdates, reference_for

Lull = Callable[[], AbstractContextManager[None]]


class Replica:
    """The models of a run with their optimizer and learner."""

    def __init__(
        self,
        config: RunConfig,
        settings: Settings,
        *,
        device: str,
        ranks: Ranks = ALONE,
        allow_writes: Lull = nullcontext,
    ) -> None:
        """Build the models. Every rank of a run builds them from the same config. Raise InvalidConfig."""
        self.config, self.ranks = config, ranks
        self.policy = load_policy(config.policy, settings, device=device)
        check_decoder(self.policy, name=config.policy.name)
        if config.resources.activation_checkpointing:
            enable_recompute(self.policy.model)
        if not ranks.is_alone:
            compute_by_rows(self.policy.model)  # The shards compute by rows too.
        is_packable = config.updates.rule == "adam" and ranks.is_alone
        self.unpacked = enable_packing(self.policy.model, config.resources.packing) if is_packable else ""
        reference = reference_for(self.policy, config)
        if reference is not None and config.resources.offload_reference:
            reference.model.to("cpu")
        shards = None if ranks.is_alone else ShardedModel(self.policy.model, ranks, routed_logprobs)
        self.optimizer = self._optimizer(shards)
        self.learner = Learner(
            config,
            self.policy,
            self.optimizer,
            reference,
            allow_writes=allow_writes,
            shards=shards,
            announce_critic=lambda: self.order("gather", "critic"),
        )
        self.reference = ReferenceUpdates(config.objective.reference, self.policy, reference, self.optimizer)
        self.parts: dict[str, Stateful] = {
            "optimizer": self.optimizer,
            **self.learner.parts,
            **self.reference.parts,
        }

    def _optimizer(self, shards: ShardedModel | None) -> PolicyOptimizer:
        config, resources = self.config.optimizer, self.config.resources
        if shards is None:
            offload = resources.offload_optimizer
            return PolicyOptimizer(self.policy.model, config, steps=self.config.steps, offload=offload)
        return ShardedOptimizer(
            shards,
            config,
            steps=self.config.steps,
            announce=lambda: self.order("gather", "optimizer"),
        )

    def order(self, order_name: str, *arguments: Any) -> None:
        """Send an order, the name and arguments of a method of `Follower`, to the other ranks, if any."""
        if not self.ranks.is_alone:
            self.ranks.order((order_name, *arguments))

    def settle(self, restored_checkpoint: RestoredCheckpoint) -> None:
        """Update the shards after weights were restored without the optimizer's state."""
        if isinstance(self.optimizer, ShardedOptimizer) and "optimizer" not in restored_checkpoint.parts:
            self.optimizer.restore({}, {})
