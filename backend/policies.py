"""The policies on offer here, and what can be said about one before a run is queued."""

import json
from pathlib import Path
from typing import Any

from backend.config.policies import BUILT_IN, LANGUAGE_MODEL, PolicyOffer
from backend.config.run import PolicyConfig, RunConfig
from backend.errors import FieldError
from backend.settings import Settings

TINY_CONTEXT = 1024
"""Tokens of prompt and completion that a built-in policy can hold (a test compares it with the policy)."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


def policy_offers(settings: Settings) -> list[PolicyOffer]:
    """The built-in policies and every usable directory of MODELS_DIR."""
    return [
        *BUILT_IN,
        *(_local_offer(name, settings.models_dir) for name in _local_names(settings.models_dir)),
    ]


def is_built_in(name: str) -> bool:
    """Whether a policy comes with the project."""
    return any(offer.name == name for offer in BUILT_IN)


def policy_errors(policy: PolicyConfig, settings: Settings) -> list[FieldError]:
    """Why this installation cannot load the policy; nothing when it can, or when only the hub knows."""
    if is_built_in(policy.name):
        return []
    directory = settings.models_dir / policy.name
    if directory.is_dir():
        reason = directory_error(directory)
        return [FieldError("policy.name", f"{policy.name!r}: {reason}")] if reason else []
    if settings.hf_online:
        return []
    offered = ", ".join(offer.name for offer in policy_offers(settings))
    reason = (
        f"is {policy.name!r}, neither built in nor a directory of MODELS_DIR ({settings.models_dir}), "
        f"and names of the hub need HF_ONLINE=1; on offer are {offered}"
    )
    return [FieldError("policy.name", reason)]


def context_errors(config: RunConfig, settings: Settings) -> list[FieldError]:
    """Whether max_new_tokens leaves room for a prompt in the policy's context, where that is known."""
    context = context_of(config.policy.name, settings)
    wanted = config.sampling.max_new_tokens
    if context is None or wanted < context:
        return []
    reason = f"is {wanted}, but the context of {config.policy.name} is {context} tokens, prompt included"
    return [FieldError("sampling.max_new_tokens", reason)]


def context_of(policy: str, settings: Settings) -> int | None:
    """Most tokens of prompt and completion together; None where only the loaded policy knows."""
    if is_built_in(policy):
        return TINY_CONTEXT
    found = (_config(settings.models_dir / policy) or {}).get("max_position_embeddings")
    return found if isinstance(found, int) else None


def directory_error(directory: Path) -> str:
    """What is missing for a causal language model in Hugging Face format; empty: nothing."""
    config = _config(directory)
    if config is None:
        return "the directory holds no readable config.json of a Hugging Face model"
    if _names_code(config):
        return "its config.json asks for code of its own (auto_map), which is never run"
    if not any(directory.glob("*.safetensors")):
        return "the directory holds no weights in safetensors format"
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        return "the directory holds no tokenizer"
    return ""


def _config(directory: Path) -> dict[str, Any] | None:
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _names_code(config: Any) -> bool:
    if isinstance(config, dict):
        return bool(config.get("auto_map") or config.get("trust_remote_code")) or any(
            map(_names_code, config.values())
        )
    return isinstance(config, list) and any(map(_names_code, config))


def _local_names(models_dir: Path) -> list[str]:
    """`name` or `owner/name` of each directory that holds a model."""
    if not models_dir.is_dir():
        return []
    found = [*models_dir.glob("*/config.json"), *models_dir.glob("*/*/config.json")]
    usable = [path.parent for path in found if not directory_error(path.parent)]
    return sorted(directory.relative_to(models_dir).as_posix() for directory in usable)


def _local_offer(name: str, models_dir: Path) -> PolicyOffer:
    kind = (_config(models_dir / name) or {}).get("model_type", "model")
    return PolicyOffer(name=name, title=name, note=f"{kind} in MODELS_DIR", profile=LANGUAGE_MODEL.profile)
