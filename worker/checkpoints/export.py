"""Export the model of a checkpoint in a standard format, with LoRA merged into its base.

    python -m worker.checkpoints.export CHECKPOINT DIRECTORY [--dtype bfloat16] [--card README.md]

CHECKPOINT is a checkpoint's directory, on disk or downloaded. The base of an adapter must be at its
base_model_name_or_path. DIRECTORY contains safetensors (several files above 5 GB), configs, tokenizer and
chat template. It is created only when it is complete. `grpolab export` adds the model card.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from backend.base.durable_files import make_directory, publish, sync
from backend.base.errors import GrpoLabError
from backend.catalog.policies.adapters import ADAPTER_CONFIG, parse_adapter
from backend.catalog.policies.directories import read_config
from worker.checkpoints.disk import need_room, translate_disk_errors
from worker.checkpoints.files import BadCheckpoint, verify_checkpoint
from worker.policy.adapter import add_adapter, digest_weights, load_adapter_weights, merged_copy
from worker.policy.model import DTYPES

MAX_SHARD_SIZE = "5GB"
"""Maximum size of a file of weights, as recommended by the hub."""

TEXT_BYTES = 50_000_000
"""Disk space reserved for tokenizer and configs, in bytes."""


def main() -> None:
    """Run the export with the command line's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.checkpoints.export", description=__doc__.split("\n")[0]
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("directory", type=Path, help="does not exist yet")
    parser.add_argument("--dtype", choices=sorted(DTYPES), help="precision (default: that of the run)")
    parser.add_argument("--card", type=Path, help="file that becomes README.md")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    try:
        card = arguments.card.read_text() if arguments.card else ""
        export_checkpoint(arguments.checkpoint, arguments.directory, dtype=arguments.dtype or "", card=card)
    except (GrpoLabError, OSError, ValueError) as error:
        sys.exit(f"export: {getattr(error, 'detail', error)}")


def export_checkpoint(checkpoint: Path, directory: Path, *, dtype: str = "", card: str = "") -> None:
    """Write model, tokenizer and card, and leave nothing behind after an error.

    Raise BadCheckpoint if the checkpoint is damaged or the base differs, FileExistsError, DiskFault, or
    OSError if the base cannot be opened.
    """
    directory = directory.absolute()
    if directory.exists() or directory.is_symlink():
        raise FileExistsError(f"{directory} exists already")
    verify_checkpoint(checkpoint)
    model = _open_model(checkpoint, dtype)
    draft = directory.with_name(f".{directory.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of a killed export
    needed_bytes = TEXT_BYTES + sum(weight.nbytes for weight in model.parameters())
    try:
        with translate_disk_errors(directory.parent, needed_bytes=needed_bytes):
            make_directory(draft)
            need_room(draft, needed_bytes)
            model.save_pretrained(draft, max_shard_size=MAX_SHARD_SIZE)
            AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False).save_pretrained(draft)
            if card:
                (draft / "README.md").write_text(card)
            for path in draft.rglob("*"):
                sync(path)
            publish(draft, directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _open_model(checkpoint: Path, dtype: str) -> PreTrainedModel:
    """Open the checkpoint's model on the CPU, with its adapter merged.

    The precision is `dtype`, or that of the run if it is "".
    """
    config = read_config(checkpoint, ADAPTER_CONFIG)
    load_options: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False}
    if config is None and (checkpoint / ADAPTER_CONFIG).exists():
        raise BadCheckpoint(checkpoint, f"its {ADAPTER_CONFIG} cannot be read")
    if config is None:
        precision: Any = DTYPES[dtype] if dtype else "auto"
        return AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=precision, local_files_only=True, **load_options
        )
    return _open_merged_model(checkpoint, config, dtype, load_options)


@torch.no_grad()
def _open_merged_model(
    checkpoint: Path, config: dict[str, Any], dtype: str, loader_options: dict[str, Any]
) -> PreTrainedModel:
    state = json.loads((checkpoint / "trainer/state.json").read_text())
    base, trained_dtype = config["base_model_name_or_path"], state["about"]["config"]["policy"]["dtype"]
    # If transformers opened it with its adapter, the model would be saved under the names of an adapter.
    model = AutoModelForCausalLM.from_pretrained(
        base, revision=config["revision"] or "main", dtype=DTYPES[trained_dtype], **loader_options
    )
    if digest_weights(dict(model.named_parameters())) != state["base_sha256"]:
        raise BadCheckpoint(checkpoint, f"{base} is not the base it was trained on")
    model.to(DTYPES[dtype or trained_dtype])  # before merging, so that a wider type holds the exact sum
    add_adapter(model, parse_adapter(config), base="")
    load_adapter_weights(model, checkpoint)
    return merged_copy(model)


if __name__ == "__main__":
    main()
