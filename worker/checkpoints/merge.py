"""Merging of a LoRA checkpoint into its base: one model that any tool opens.

    python -m worker.checkpoints.merge CHECKPOINT DIRECTORY

CHECKPOINT is a checkpoint's directory, as it is on disk or downloaded; its base must be where the adapter's
base_model_name_or_path says. The weights are written in the run's own precision.
"""

import argparse
import json
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

from backend.errors import GrpoLabError
from backend.policies.adapters import ADAPTER_CONFIG, adapter_of
from backend.policies.directories import read_config
from worker.checkpoints.files import BadCheckpoint, verify_checkpoint
from worker.policy.adapter import add_adapter, digest, load_adapter_weights, merged_copy


def main() -> None:
    """Merge as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.checkpoints.merge", description=__doc__.split("\n")[0]
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("directory", type=Path, help="does not exist yet")
    arguments = parser.parse_args()
    try:
        merge_checkpoint(arguments.checkpoint, arguments.directory)
    except (GrpoLabError, OSError, ValueError) as error:
        sys.exit(f"merge: {getattr(error, 'detail', error)}")


def merge_checkpoint(checkpoint: Path, directory: Path) -> None:
    """Write the merged model with its tokenizer.

    Raises BadCheckpoint for a damaged checkpoint, one without adapter, or another base; FileExistsError; and
    OSError where the base cannot be opened.
    """
    if directory.exists():
        raise FileExistsError(f"{directory} exists already")
    verify_checkpoint(checkpoint)
    config = read_config(checkpoint, ADAPTER_CONFIG)
    if config is None:
        raise BadCheckpoint(checkpoint, "it holds a whole model, there is nothing to merge")
    state = json.loads((checkpoint / "trainer/state.json").read_text())
    # opened with its adapter by transformers, a model would be saved under the names of an adapter
    model = AutoModelForCausalLM.from_pretrained(
        config["base_model_name_or_path"],
        revision=config["revision"] or "main",
        dtype=state["about"]["config"]["policy"]["dtype"],
        use_safetensors=True,
        trust_remote_code=False,
    )
    if digest(dict(model.named_parameters())) != state["base_sha256"]:
        raise BadCheckpoint(
            checkpoint, f"{config['base_model_name_or_path']} is not the base it was trained on"
        )
    add_adapter(model, adapter_of(config), base="")
    load_adapter_weights(model, checkpoint)
    merged_copy(model).save_pretrained(directory)
    AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False).save_pretrained(directory)


if __name__ == "__main__":
    main()
