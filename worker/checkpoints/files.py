"""Checkpoints: Hugging Face directories for `from_pretrained` that also hold the state of a run.

    config.json model.safetensors tokenizer.json ...   the policy, or instead of the first two
    adapter_config.json adapter_model.safetensors      its adapter, which names the base
    trainer/<part>.safetensors                         tensors of each part of the run's state
    trainer/state.json                                 step, run, JSON values of each part, versions
    manifest.json                                      size and SHA-256 of every file above

A directory gets its name only when it is complete and on disk. Nothing in it is pickled.
"""

import json
import os
import platform
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import file_digest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from backend.base.durable_files import make_directory, publish, sync
from backend.base.errors import Conflict
from backend.catalog.policies.adapters import ADAPTER_CONFIG
from worker.checkpoints.disk import need_room, translate_disk_errors
from worker.policy.adapter import BadAdapter, adapter_weights, is_adapted, load_adapter_weights
from worker.policy.model import Policy
from worker.state import Parts

FORMAT = 2
MANIFEST = "manifest.json"

TEXT_BYTES = 1_000_000
"""Disk space reserved for a checkpoint's files without tensors, in bytes."""

MAX_CONCURRENT_SYNCS = 8
"""Maximum number of files that are synced to disk at the same time."""


class BadCheckpoint(Conflict):
    """Raised for a checkpoint that cannot be used."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"checkpoint {directory}: {reason}")


class LoadedState(NamedTuple):
    """The state that was loaded from a checkpoint."""

    step: int
    restored_parts: list[str]
    """Names of the restored parts of the run's state."""
    reset_parts: list[str]
    """Names of the parts that start from their initial state."""
    versions: dict[str, str]
    """Versions of the packages that wrote the checkpoint."""


def save_checkpoint(
    directory: Path,
    policy: Policy,
    parts: Parts,
    *,
    step: int,
    lineage_fields: Mapping[str, Any] | None = None,
) -> Path:
    """Write the state of a run after `step` to `directory`, and replace any checkpoint of that name.

    `lineage_fields` holds the lineage as JSON values, see `worker.checkpoints.lineage`.
    Raise DiskFault, and leave nothing behind, if the disk is full, read-only or faulty.
    """
    tensors = {name: stateful.tensors() for name, stateful in parts.items()}
    needed_bytes = _estimate_size(policy, tensors)
    need_room(directory.parent, needed_bytes)
    draft = directory.with_name(f".{directory.name}.{os.getpid()}.draft")
    try:
        with translate_disk_errors(directory.parent, needed_bytes=needed_bytes):
            shutil.rmtree(draft, ignore_errors=True)
            make_directory(draft / "trainer")
            _write(draft, policy, parts, tensors, {"step": step, "about": dict(lineage_fields or {})})
            with ThreadPoolExecutor(
                MAX_CONCURRENT_SYNCS
            ) as pool:  # Syncing several files together is faster on a slow disk.
                deque(pool.map(sync, draft.rglob("*")))
            _publish(draft, directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return directory


def _write(
    draft: Path,
    policy: Policy,
    parts: Parts,
    tensors: Mapping[str, Mapping[str, Tensor]],
    identity: Mapping[str, Any],
) -> None:
    policy.model.save_pretrained(draft)
    policy.tokenizer.save_pretrained(draft)
    for name, part_tensors in tensors.items():
        if part_tensors:
            _save_tensors(draft / f"trainer/{name}.safetensors", part_tensors)
    values = {name: stateful.values() for name, stateful in parts.items()}
    identity = {**identity, "base_sha256": policy.base_sha256}
    state = {**identity, "parts": values, "format": FORMAT, "versions": package_versions()}
    _write_json(draft / "trainer/state.json", state)
    _write_json(draft / MANIFEST, {"format": FORMAT, "files": dict(_digests(draft))})


def _estimate_size(policy: Policy, tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Return the approximate size of a checkpoint in bytes: its tensors and some text."""
    trainer_tensors = [tensor for part_tensors in tensors.values() for tensor in part_tensors.values()]
    weights = (adapter_weights(policy.model) or policy.model.state_dict()).values()
    return TEXT_BYTES + sum(tensor.nbytes for tensor in [*weights, *trainer_tensors])


def verify_checkpoint(directory: Path) -> None:
    """Raise BadCheckpoint unless every file exists and is unchanged."""
    manifest = directory / MANIFEST
    if not manifest.is_file():
        raise BadCheckpoint(directory, f"no complete checkpoint, {MANIFEST} is missing")
    expected: dict[str, dict[str, Any]] = json.loads(manifest.read_text())["files"]
    for name, entry in expected.items():
        path = directory / name
        if not path.is_file():
            raise BadCheckpoint(directory, f"{name} is missing")
        if _digest(path) != entry:
            raise BadCheckpoint(
                directory, f"{name} is damaged: its size or SHA-256 is not that of the manifest"
            )


def load_checkpoint(
    directory: Path, policy: Policy, parts: Parts, *, fitting_names: Collection[str] | None = None
) -> LoadedState:
    """Verify a checkpoint and restore the policy and every part from it.

    A checkpoint of the same run holds exactly its parts. With `fitting_names` it belongs to another run, and
    only the named parts that it holds are restored.
    """
    verify_checkpoint(directory)
    state = _read_state(directory)
    if state["format"] != FORMAT:
        raise BadCheckpoint(directory, f"has format {state['format']}, this version reads {FORMAT}")
    if fitting_names is None and (unexpected := sorted(state["parts"].keys() ^ parts.keys())):
        raise BadCheckpoint(directory, f"holds other state than the run has: {', '.join(unexpected)}")
    load_weights(directory, policy)
    restored_names = sorted(
        parts.keys() & state["parts"].keys() & (parts.keys() if fitting_names is None else set(fitting_names))
    )
    for name in restored_names:
        file = directory / f"trainer/{name}.safetensors"
        try:
            parts[name].restore(state["parts"][name], load_file(file) if file.is_file() else {})
        except (SafetensorError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise BadCheckpoint(directory, f"its {name} cannot be restored: {error!r:.200}") from error
    return LoadedState(
        state["step"], restored_names, sorted(parts.keys() - set(restored_names)), state["versions"]
    )


def _read_state(directory: Path) -> dict[str, Any]:
    """Read trainer/state.json, which another installation may have written. Raise BadCheckpoint."""
    try:
        state = json.loads((directory / "trainer/state.json").read_text())
        kinds = {"format": int, "step": int, "parts": dict, "versions": dict}
        is_right = all(type(state[name]) is kind for name, kind in kinds.items())
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        is_right = False
    if not is_right:
        raise BadCheckpoint(directory, "trainer/state.json is not the state of a trainer")
    return state


@torch.no_grad()
def load_weights(directory: Path, policy: Policy) -> None:
    """Copy the weights of a checkpoint into a policy of the same shape.

    The weights are read by `from_pretrained`, because a file may name and join weights differently from the
    model. For an adapted policy the checkpoint holds the adapter, which fits no other base.
    """
    if is_adapted(policy.model):
        _load_adapter(directory, policy)
    else:
        _load_model(directory, policy)


def _load_model(directory: Path, policy: Policy) -> None:
    if (directory / ADAPTER_CONFIG).exists():  # the adapter would be loaded with the weights
        raise BadCheckpoint(directory, f"it holds an adapter ({ADAPTER_CONFIG}), and the policy has none")
    try:
        saved_model, report = type(policy.model).from_pretrained(
            directory,
            dtype=policy.model.dtype,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise BadCheckpoint(directory, f"the weights cannot be read: {error}") from error
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(map(str, report[kind])):
            raise BadCheckpoint(directory, f"weights do not fit the policy: {kind} {names[:3]}")
    policy_state, saved_state = policy.model.state_dict(), saved_model.state_dict()
    if unexpected := policy_state.keys() ^ saved_state.keys():
        raise BadCheckpoint(directory, f"weights do not fit the policy: {sorted(unexpected)[:3]}")
    for name, tensor in saved_state.items():
        if tensor.shape != policy_state[name].shape:
            expected = list(policy_state[name].shape)
            reason = f"{name} has shape {list(tensor.shape)}, the policy expects {expected}"
            raise BadCheckpoint(directory, reason)
        policy_state[name].copy_(tensor)


def _load_adapter(directory: Path, policy: Policy) -> None:
    state = _read_state(directory)
    if (base_sha256 := state.get("base_sha256")) != policy.base_sha256:
        raise BadCheckpoint(
            directory,
            f"its adapter belongs to a base with SHA-256 {str(base_sha256)[:12]}..., the policy of that name "
            f"now has {policy.base_sha256[:12]}...; bring the old weights back",
        )
    try:
        load_adapter_weights(policy.model, directory)
    except BadAdapter as error:
        raise BadCheckpoint(directory, f"weights do not fit the policy: {error}") from error


def list_checkpoints(parent: Path) -> list[Path]:
    """Return the complete checkpoints in a directory, by name."""
    return sorted(manifest.parent for manifest in parent.glob(f"[!.]*/{MANIFEST}"))


def remove_checkpoint(directory: Path) -> None:
    """Delete a checkpoint. Its name never refers to an incomplete checkpoint."""
    doomed = directory.with_name(f".{directory.name}.{os.getpid()}.doomed")
    directory.rename(doomed)
    shutil.rmtree(doomed)


def remove_drafts(parent: Path, is_ours: Callable[[Path], bool] = lambda _: True) -> None:
    """Delete the remains of interrupted saves and removals, unless another process is writing them."""
    for pattern in (".*.draft", ".*.doomed"):
        for leftover in parent.glob(pattern):
            if is_ours(leftover):
                shutil.rmtree(leftover, ignore_errors=True)


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that write a checkpoint."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")


def _digests(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield path.relative_to(directory).as_posix(), _digest(path)


def _digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": file_digest(file, "sha256").hexdigest()}


def _publish(draft: Path, directory: Path) -> None:
    if directory.exists():
        remove_checkpoint(directory)
    publish(draft, directory)
    sync(directory.parent.parent)  # the run's directory may be new
