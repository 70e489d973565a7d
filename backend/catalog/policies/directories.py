"""Check that model directories are safe to load: no code, no pickles and no links that lead outside."""

import json
import shlex
from pathlib import Path
from typing import Any

from backend.base.text import MAX_DEPTH, is_too_deep
from backend.catalog.policies.architectures import architecture_error

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
CONFIG_FILES = (
    "config.json",
    "tokenizer_config.json",
    "generation_config.json",
    "processor_config.json",
    "preprocessor_config.json",
)
"""Files in which a model may request custom code."""

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")

MAX_CONFIG_BYTES = 4_000_000


def read_config(directory: Path, name: str = "config.json") -> dict[str, Any] | None:
    """Return a JSON object from a file of the directory, or None if it cannot be read."""
    try:
        if (directory / name).stat().st_size > MAX_CONFIG_BYTES:
            return None
        return parse_config((directory / name).read_bytes())
    except OSError:
        return None


def parse_config(content: bytes) -> dict[str, Any] | None:
    """Parse a JSON object. Return None if it is invalid, larger than MAX_CONFIG_BYTES or nested too deep."""
    if len(content) > MAX_CONFIG_BYTES:
        return None
    try:
        config = json.loads(content.decode())
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) and not is_too_deep(config) else None


def config_error(name: str, config: dict[str, Any] | None) -> str:
    """Return the reason why a config is not usable, or "" if it is usable."""
    if config is None:
        return f"its {name} is not a JSON object of at most {MAX_CONFIG_BYTES:,} bytes and {MAX_DEPTH} levels"
    if _requests_code(config):
        return f"its {name} requires custom code (auto_map, trust_remote_code), which is never run"
    return ""


def directory_error(directory: Path, *, root: Path | None = None) -> str:
    """Return the reason why a directory has no usable Hugging Face causal language model, or "" if it has
    one.

    With `root`, links that lead out of that directory are an error.
    """
    if root is not None and has_outside_links(directory, root.expanduser().resolve()):
        return "the directory, or a file in it, is a symbolic link that leads out of MODELS_DIR"
    model = read_config(directory)
    if model is None and (directory / "adapter_config.json").is_file():
        return (
            "the directory holds an adapter; name its base model here and the adapter as policy.adapter.name"
        )
    if adapter := next((name for name in ADAPTER_FILES if (directory / name).exists()), ""):
        return (
            f"the directory holds an adapter ({adapter}) beside the model, whose weights it would change: "
            "move it to a directory of its own, and name that as policy.adapter.name"
        )
    if model is None and (file := next(directory.glob("*.gguf"), None)):
        return f"the directory holds a GGUF file; convert it: {conversion_command(file)}"
    if model is None:
        return "the directory has no readable config.json of a Hugging Face model"
    if reason := architecture_error(model):
        return reason
    for name in CONFIG_FILES:
        if (directory / name).exists() and (reason := config_error(name, read_config(directory, name))):
            return reason
    if not any(directory.glob("*.safetensors")):
        return "the directory holds no weights (expected *.safetensors)"
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        return "the directory holds no tokenizer (expected tokenizer.json)"
    return ""


def conversion_command(file: Path) -> str:
    """Return the command that converts a GGUF file to a policy."""
    return f"grpolab model {shlex.quote(str(file))}"


def has_outside_links(directory: Path, root: Path) -> bool:
    """Return whether the directory or a file in it is outside of `root` after links are resolved."""
    return any(not path.resolve().is_relative_to(root) for path in (directory, *directory.rglob("*")))


def _requests_code(config: Any) -> bool:
    if isinstance(config, dict):
        return bool(config.get("auto_map") or config.get("trust_remote_code")) or any(
            map(_requests_code, config.values())
        )
    return isinstance(config, list) and any(map(_requests_code, config))
