"""The policy used for sampling: the learner's policy, a copy in another precision, or older weights."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backend.config.sections import SamplingConfig
from worker.policy.adapter import is_adapted, merged_copy
from worker.policy.copies import changed_copy, copied_weights, replace_weights
from worker.policy.int8 import int8_copy
from worker.policy.model import Policy


class Behaviour:
    """The weights used for sampling, and their precision.

    With staleness n it keeps n copies of the weights, in memory and in every checkpoint: those at the start
    of each of the last n steps. During the first n steps, the oldest weights are those at the start of the
    run.
    """

    def __init__(self, sampling: SamplingConfig) -> None:
        self.precision, self.staleness = sampling.precision, sampling.staleness
        self.past_weights: deque[dict[str, Tensor]] = deque(maxlen=self.staleness)

    @property
    def age(self) -> int:
        """Age of the sampling weights, in steps."""
        return len(self.past_weights)

    def policy(self, current_policy: Policy) -> Policy:
        """Return the policy that samples a step begun by `current_policy`. It is valid until its weights
        change.
        """
        model = (
            replace_weights(current_policy.model, self.past_weights[0])
            if self.past_weights
            else current_policy.model
        )
        if self.precision != "policy" and is_adapted(model):
            model = merged_copy(model)  # rounded after merging, like an engine that serves the policy
        if self.precision == "int8":
            model = int8_copy(model)
        elif self.precision == "bfloat16" and model.dtype != torch.bfloat16:
            model = changed_copy(model, lambda weight: weight.to(torch.bfloat16))
        return current_policy if model is current_policy.model else replace(current_policy, model=model)

    def remember(self, current_policy: Policy) -> None:
        """Keep a copy of the weights at the start of a step for later steps."""
        if self.staleness:
            self.past_weights.append(copied_weights(current_policy.model))

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"versions": len(self.past_weights)}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {
            f"{version}/{name}": weight
            for version, weights in enumerate(self.past_weights)
            for name, weight in weights.items()
        }

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights from copies of the tensors.

        Memory that is aligned as in a file would change the last bits of sums.
        """
        self.past_weights.clear()
        for version in range(values["versions"]):
            prefix = f"{version}/"
            version_weights = {name: weight for name, weight in tensors.items() if name.startswith(prefix)}
            self.past_weights.append(
                {name.removeprefix(prefix): weight.clone() for name, weight in version_weights.items()}
            )
