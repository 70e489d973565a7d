"""A fixed sample of a model's weights, from which the size of an update is estimated."""

import math

import torch
from torch import Tensor, nn

MAX_SAMPLED = 16_384
"""Maximum number of weights in the sample. Smaller models are sampled completely."""


class WeightSample:
    """Every n-th trainable weight at the time of the sample. Weights may only change in place afterwards."""

    def __init__(self, model: nn.Module) -> None:
        weights = [weight.detach().view(-1) for weight in model.parameters() if weight.requires_grad]
        self.count = sum(map(len, weights))
        stride = math.ceil(self.count / MAX_SAMPLED)
        self.views = [weight[::stride] for weight in weights]
        self.initial_values = self._values()

    def measure_change(self) -> float:
        """Return the L2 norm of the change of all weights since the sample, estimated from it."""
        change = self._values() - self.initial_values
        return float(change.norm()) * math.sqrt(self.count / max(1, len(change)))

    def _values(self) -> Tensor:
        return torch.cat(self.views).float() if self.views else torch.zeros(0)
