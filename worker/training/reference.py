"""Hold the reference policy of a run and update it from the policy."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

import torch
from torch import Tensor

from backend.base.errors import Conflict
from backend.config import knobs
from backend.config.adapters import LoraAdapter
from backend.config.run import RunConfig
from worker.policy.adapter import base_model, digest_weights
from worker.policy.model import Policy, frozen_copy
from worker.policy.optimizer import PolicyOptimizer
from worker.state import Stateful

PART = "reference"
"""Name of the checkpoint part that holds the updated reference weights."""


class ReferenceChanged(Conflict):
    """A run cannot continue against a reference other than the one it started with."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(
            "the reference policy is not the one this run began with: the SHA-256 of its weights was "
            f"{expected[:12]}..., the policy of that name now has {actual[:12]}...; bring the old weights "
            "back, or launch the run anew (policy.revision pins a hub model)"
        )


def reference_for(policy: Policy, config: RunConfig) -> Policy | None:
    """Return the reference that a run starts with, or None if its objective has none.

    The reference is the initial policy. With a new adapter it is the base model, which needs no second copy.
    Weights that are never trained are shared in any case.
    """
    if not config.objective.needs_reference:
        return None
    is_fixed = isinstance(config.objective.reference, knobs.FixedReference)
    if is_fixed and isinstance(config.policy.adapter, LoraAdapter):
        return replace(policy, model=base_model(policy.model).eval())
    return frozen_copy(policy)


class ReferenceUpdates:
    """Updates the weights of `reference` in place, if there is a reference.

    A resumed run measures the KL to the same reference. After the first update the weights are stored as
    state. Before that only their digest is stored, because the model behind a policy's name may have changed
    meanwhile.
    """

    def __init__(
        self, knob: knobs.Reference, policy: Policy, reference: Policy | None, optimizer: PolicyOptimizer
    ) -> None:
        self.knob, self.policy, self.reference, self.optimizer = knob, policy, reference, optimizer
        self.has_moved = False
        self.follows = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
        """Names of the weights in which policy and reference may differ."""
        # With an adapter, only the base is checked; the reference's adapter is stored.
        self.loaded_sha256 = policy.base_sha256 or (
            "" if reference is None else digest_weights(self._weights())
        )
        self.best_accuracy = -1.0
        self.last = -1.0
        self.waited_evaluations = 0

    @property
    def parts(self) -> dict[str, Stateful]:
        """Return this object under its name if there is a reference, else nothing."""
        return {} if self.reference is None else {PART: self}

    def record_accuracy(self, accuracy: float | None) -> None:
        """Record the accuracy of an evaluation."""
        if accuracy is None:
            return
        self.waited_evaluations = 0 if accuracy > self.best_accuracy else self.waited_evaluations + 1
        self.best_accuracy, self.last = max(self.best_accuracy, accuracy), accuracy

    def after_step(self, step: int) -> str:
        """Update the reference if it is due, and return a description of the update, else ""."""
        if self.reference is None:
            return ""
        match self.knob:
            case knobs.FixedReference():
                return ""
            case knobs.EveryN(n=n, reset_optimizer=reset):
                return self._replace(reset=reset) if step % n == 0 else ""
            case knobs.OnStagnation(patience=patience, reset_optimizer=reset):
                return self._replace(reset=reset) if self.waited_evaluations >= patience else ""
            case knobs.EmaReference(alpha=alpha, n=n):
                return self._drawn_nearer(alpha) if step % n == 0 else ""
            case _:
                assert_never(self.knob)

    def _replace(self, *, reset: bool) -> str:
        waited, best = self.waited_evaluations, self.best_accuracy
        self.waited_evaluations, self.best_accuracy = 0, self.last
        self._write(dict(self.policy.model.named_parameters()))
        if reset:
            self.optimizer.reset()
        is_stagnant = isinstance(self.knob, knobs.OnStagnation)
        reason = (
            f" after {waited} evaluations without a better accuracy than {best:.4g}" if is_stagnant else ""
        )
        return f"reference replaced by the policy{reason}" + ("; the optimizer begins anew" if reset else "")

    @torch.no_grad()
    def _drawn_nearer(self, alpha: float) -> str:
        policy = dict(self.policy.model.named_parameters())
        self._write(
            {
                name: weight.float().lerp(policy[name].to(weight.device).float(), alpha)
                for name, weight in self._weights().items()
            }
        )
        return f"reference moved {alpha:g} of the way to the policy"

    @torch.no_grad()
    def _write(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights().items():
            weight.copy_(weights[name])
        self.has_moved = True

    def _weights(self) -> dict[str, Tensor]:
        """Return the weights that belong to the reference: all of them, or only those of its adapter."""
        parameters = {} if self.reference is None else dict(self.reference.model.named_parameters())
        return {name: weight for name, weight in parameters.items() if name in self.follows}

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {
            "best": self.best_accuracy,
            "last": self.last,
            "waited": self.waited_evaluations,
            "loaded": self.loaded_sha256,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the reference's weights by name once they were updated. Adapter weights are always
        returned.
        """
        is_stored = self.has_moved or self.policy.base_sha256
        return {name: weight.detach() for name, weight in self._weights().items()} if is_stored else {}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See Stateful. Raises ReferenceChanged if the loaded weights differ from the stored digest."""
        if not tensors and values["loaded"] != self.loaded_sha256:
            raise ReferenceChanged(values["loaded"], self.loaded_sha256)
        self.best_accuracy, self.last, self.waited_evaluations = (
            values["best"],
            values["last"],
            values["waited"],
        )
        if tensors:
            self._write(tensors)
