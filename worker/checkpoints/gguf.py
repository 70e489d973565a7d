"""Convert a GGUF file to the files of a policy: float32 safetensors, tokenizer and chat template.

    python -m worker.checkpoints.gguf FILE DIRECTORY NAME

DIRECTORY must not exist yet and may be incomplete after an error. `grpolab model` creates it in MODELS_DIR,
removes it after an error, and renames a complete one to NAME. GGUF files hold no code. The memory and time
for their conversion are limited by the header (gguf_header.py) and by limits of this process.
"""

import resource
import sys
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

from backend.base.durable_files import sync
from backend.base.errors import GrpoLabError
from backend.base.text import clean_text, size_text
from backend.catalog.policies.architectures import REFUSED_MODEL_TYPES
from backend.config.sections import PolicyConfig
from backend.storage.faults import disk_fault, free_bytes
from worker.checkpoints.gguf_header import BadGguf, GgufHeader, read_header
from worker.policy.model import open_directory
from worker.policy.prompt_form import shorten

TEXT_BYTES = 50_000_000
"""Disk space reserved for tokenizer and configs, in bytes."""

VALUE_BYTES = 4
WORKING_BYTES = 6 * 2**30
"""Memory that this process may use in addition to the weights, in bytes. Most of it is for libraries."""

CPU_SECONDS = 600
VALUES_PER_SECOND = 2_000_000
"""Number of values per second that even a slow machine unpacks."""


def main() -> None:
    """Convert the file that the command line names."""
    file, directory, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    transformers.utils.logging.disable_progress_bar()
    try:
        header = examine_header(file, directory)
        limit_process(header)
        convert(file, directory, name)
        print(header.licence)  # noqa: T201 - read by `grpolab model`
    except (GrpoLabError, BadGguf, OSError) as error:
        fault = disk_fault(error, directory)
        reason = fault.sentence if fault else getattr(error, "detail", error)
        sys.exit(f"{name} was not converted: {clean_text(str(reason))}")


def examine_header(file: Path, directory: Path) -> GgufHeader:
    """Return the header of a file that can be converted into a new directory. Raise BadGguf or OSError."""
    header = read_header(file)
    _check_header(header, directory)
    return header


def convert(file: Path, directory: Path, name: str) -> None:
    """Write the policy of an examined file. Raise BadGguf, InvalidConfig or OSError."""
    loader_options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    _open_model(file, loader_options).save_pretrained(directory)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, **loader_options).save_pretrained(
        directory
    )
    open_directory(directory, PolicyConfig(name=name, chat_template=True))
    for path in directory.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner can read
        sync(path)


def _check_header(header: GgufHeader, directory: Path) -> None:
    kind = header.architecture
    if kind not in GGUF_SUPPORTED_ARCHITECTURES or kind in REFUSED_MODEL_TYPES:
        reason = REFUSED_MODEL_TYPES.get(kind, "transformers reads no GGUF of it")
        raise BadGguf(f"the architecture {clean_text(kind)!r} is not supported: {reason}")
    if not header.has_chat_template:
        raise BadGguf("it has no chat template: expected an instruct model")
    needed_bytes = header.values * VALUE_BYTES + TEXT_BYTES
    disk_bytes = free_bytes(directory.parent)
    if disk_bytes is not None and disk_bytes < needed_bytes:
        raise BadGguf(
            f"it takes {size_text(needed_bytes)} in float32, and {size_text(disk_bytes)} are free on the disk"
        )
    memory_bytes = psutil.virtual_memory().available
    if memory_bytes < needed_bytes:
        raise BadGguf(
            f"it takes {size_text(needed_bytes)} in float32, and {size_text(memory_bytes)} of memory is free"
        )


def limit_process(header: GgufHeader) -> None:
    """Limit the memory and time of this process, because a config may define larger layers than the file
    holds.
    """
    memory = 2 * header.values * VALUE_BYTES + WORKING_BYTES
    seconds = CPU_SECONDS + header.values // VALUES_PER_SECOND
    for kind, limit in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, seconds)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _open_model(file: Path, loader_options: dict[str, Any]) -> PreTrainedModel:
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            **loader_options,
        )
    except Exception as error:  # The libraries may raise any error for an invalid file.
        raise BadGguf(f"transformers cannot read it: {shorten(str(error) or repr(error), 200)}") from error
    if missing := sorted(map(str, report["missing_keys"])):
        raise BadGguf(f"it lacks {len(missing)} weights of its architecture, e.g. {missing[0]}")
    model.hf_quantizer = None  # transformers does not save a model that has one
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model


if __name__ == "__main__":
    main()
