"""Informative groups that were sampled in one step and train in the next."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from worker.rollout.prompt import Prompt
from worker.rollout.types import Completion, Group


class Pool:
    """The surplus of the last step, in the order of sampling.

    It is smaller than a step and the next step takes all of it, so no group waits longer than one step. A
    group keeps the log-probabilities of the sampler that wrote it: corrections see how far the policy has
    moved since.
    """

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"groups": [_document(group) for group in self.groups]}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {
            f"{place}.{number}.{name}": torch.from_numpy(np.array(values))
            for place, group in enumerate(self.groups)
            for number, completion in enumerate(group.completions)
            for name, values in _arrays(completion).items()
        }

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See Stateful."""
        arrays: dict[tuple[int, int], dict[str, Any]] = {}
        for key, tensor in tensors.items():
            place, number, name = key.split(".")
            arrays.setdefault((int(place), int(number)), {})[name] = tensor.numpy()
        self.groups = [
            _group(document, [arrays[place, number] for number in range(len(document["completions"]))])
            for place, document in enumerate(values["groups"])
        ]


def _arrays(completion: Completion) -> dict[str, Any]:
    """The per-token numbers of a completion, by field."""
    given = {field.name: getattr(completion, field.name) for field in fields(completion)}
    return {name: value for name, value in given.items() if isinstance(value, np.ndarray)}


def _document(group: Group) -> dict[str, Any]:
    """Everything else of a group, as JSON."""
    completions = [
        {field.name: getattr(completion, field.name) for field in fields(completion)}
        for completion in group.completions
    ]
    given = {field.name: getattr(group, field.name) for field in fields(group)}
    return given | {
        "prompt": asdict(group.prompt),
        "completions": [
            {name: value for name, value in completion.items() if not isinstance(value, np.ndarray)}
            for completion in completions
        ],
    }


def _group(document: Mapping[str, Any], arrays: Sequence[Mapping[str, Any]]) -> Group:
    """A group from its JSON, whose lists were tuples, and its arrays."""
    completions = tuple(
        Completion(**{name: _hashable(value) for name, value in written.items()}, **own)
        for written, own in zip(document["completions"], arrays, strict=True)
    )
    rest = {name: value for name, value in document.items() if name not in {"prompt", "completions"}}
    group = Group(Prompt(**document["prompt"]), completions, rewards=())
    return replace(group, **{name: _hashable(value) for name, value in rest.items()})


def _hashable(value: Any) -> Any:
    """JSON's lists as the tuples they were, inside mappings too."""
    if isinstance(value, Mapping):
        return {name: _hashable(inner) for name, inner in value.items()}
    return tuple(value) if isinstance(value, list) else value
