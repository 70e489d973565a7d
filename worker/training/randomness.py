"""All random number generators of a trainer process, as one part of its state."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch, which plugins may use."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - libraries use it
    torch.manual_seed(seed)


@dataclass(frozen=True, slots=True)
class Randomness:
    """State of the global generators of Python, numpy and torch, and of the trainer's named generators."""

    generators: Mapping[str, torch.Generator]

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        version, words, gauss = random.getstate()
        _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002 - libraries use it
        states = {
            "python": torch.tensor([version, *words]),
            "python/gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
            "numpy": torch.tensor([*np.asarray(keys).tolist(), int(position), int(has_gauss)]),
            "numpy/gauss": torch.tensor([cached], dtype=torch.float64),
            "torch": torch.get_rng_state(),
        }
        for index in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
            states[f"cuda/{index}"] = torch.cuda.get_rng_state(index)
        generator_states = {
            f"generator/{name}": generator.get_state() for name, generator in self.generators.items()
        }
        return states | generator_states

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """Restore the generators. The state of a missing GPU is ignored."""
        version, *words = tensors["python"].tolist()
        random.setstate((version, tuple(words), *(tensors["python/gauss"].tolist() or [None])))
        *keys, position, has_gauss = tensors["numpy"].tolist()
        cached = tensors["numpy/gauss"].item()
        mersenne = ("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, cached)
        np.random.set_state(mersenne)  # noqa: NPY002 - libraries use it
        torch.set_rng_state(tensors["torch"])
        for index in range(torch.cuda.device_count()):
            if f"cuda/{index}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda/{index}"], index)
        for name, generator in self.generators.items():
            generator.set_state(tensors[f"generator/{name}"])
