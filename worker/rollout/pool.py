"""Informative groups that were sampled in one step and are trained in the next."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from worker.prompt import Prompt
from worker.types import Alternatives, Completion, EpisodeResult, Group, SamplingMask, Turn

MASK_PREFIX = "kept."
"""Prefix of the names of arrays that hold a completion's kept ids."""

ALTERNATIVES_PREFIX = "alternatives."
"""Prefix of the names of arrays that hold the most likely tokens at each position."""


class Pool:
    """The surplus groups of the last step, in sampling order.

    The pool is smaller than a step, and the next step uses all of it, so no group waits longer than one step.
    A group keeps the log-probabilities of the sampler that wrote it, so that corrections account for the
    policy's change since then.
    """

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"groups": group_documents(self.groups)}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return group_tensors(self.groups)

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See Stateful."""
        self.groups = decode_groups(values["groups"], tensors)


def group_documents(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the JSON part of groups."""
    return [_group_document(group) for group in groups]


def group_tensors(groups: Sequence[Group]) -> dict[str, Tensor]:
    """Return the per-token numbers of groups as tensors."""
    return {
        f"{index}.{number}.{name}": torch.from_numpy(np.array(values))
        for index, group in enumerate(groups)
        for number, completion in enumerate(group.completions)
        for name, values in _completion_arrays(completion).items()
    }


def decode_groups(documents: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> list[Group]:
    """Rebuild groups from their JSON and their tensors."""
    arrays: dict[tuple[int, int], dict[str, Any]] = {}
    for key, tensor in tensors.items():
        index, number, name = key.split(".", 2)
        arrays.setdefault((int(index), int(number)), {})[name] = tensor.numpy()
    return [
        _decode_group(document, [arrays[index, number] for number in range(len(document["completions"]))])
        for index, document in enumerate(documents)
    ]


def _completion_arrays(completion: Completion) -> dict[str, Any]:
    """Return the per-token numbers of a completion, by field."""
    by_field = {field.name: getattr(completion, field.name) for field in fields(completion)}
    arrays = {name: value for name, value in by_field.items() if isinstance(value, np.ndarray)}
    for prefix, record in (
        (MASK_PREFIX, completion.sampling_mask),
        (ALTERNATIVES_PREFIX, completion.alternatives),
    ):
        if record is not None:
            arrays |= {f"{prefix}{field.name}": getattr(record, field.name) for field in fields(record)}
    return arrays


def _decode_completion(document: Mapping[str, Any], arrays: Mapping[str, Any]) -> Completion:
    token_arrays = {name: value for name, value in arrays.items() if "." not in name}
    mask, alternatives = (_strip_prefix(prefix, arrays) for prefix in (MASK_PREFIX, ALTERNATIVES_PREFIX))
    other_fields = {name: _to_tuples(value) for name, value in document.items()}
    other_fields["turns"] = tuple(Turn(*turn) for turn in other_fields.get("turns", ()))
    if "episode" in other_fields:
        other_fields["episode"] = EpisodeResult(*other_fields["episode"])
    return Completion(
        **other_fields,
        **token_arrays,
        sampling_mask=SamplingMask(**mask) if mask else None,
        alternatives=Alternatives(**alternatives) if alternatives else None,
    )


def _strip_prefix(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _group_document(group: Group) -> dict[str, Any]:
    """Return the JSON part of a group: everything except its arrays."""
    completions = [
        {field.name: getattr(completion, field.name) for field in fields(completion)}
        for completion in group.completions
    ]
    by_field = {field.name: getattr(group, field.name) for field in fields(group)}
    return by_field | {
        "prompt": asdict(group.prompt),
        "completions": [
            {name: value for name, value in completion.items() if _is_json(value)}
            for completion in completions
        ],
    }


def _decode_group(document: Mapping[str, Any], arrays: Sequence[Mapping[str, Any]]) -> Group:
    """Rebuild a group from its arrays and its JSON, in which tuples have become lists."""
    pairs = zip(document["completions"], arrays, strict=True)
    completions = tuple(
        _decode_completion(completion_document, completion_arrays)
        for completion_document, completion_arrays in pairs
    )
    other_fields = {name: value for name, value in document.items() if name not in {"prompt", "completions"}}
    group = Group(_decode_prompt(document["prompt"]), completions, rewards=())
    return replace(group, **{name: _to_tuples(value) for name, value in other_fields.items()})


def _decode_prompt(document: Mapping[str, Any]) -> Prompt:
    """Rebuild a prompt from its JSON. Before 0.3 its columns were called `data`."""
    prompt_fields = {("columns" if name == "data" else name): value for name, value in document.items()}
    turns = {name: tuple(prompt_fields.get(name, ())) for name in ("messages", "tools")}
    return Prompt(**prompt_fields | turns)


def _is_json(value: Any) -> bool:
    return value is not None and not isinstance(value, np.ndarray | SamplingMask | Alternatives)


def _to_tuples(value: Any) -> Any:
    """Convert JSON lists back to tuples, inside mappings too."""
    if isinstance(value, Mapping):
        return {name: _to_tuples(item) for name, item in value.items()}
    return tuple(value) if isinstance(value, list) else value
