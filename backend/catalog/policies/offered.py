"""The policies that this installation offers, and checks of a policy before a run is queued."""

import re
from pathlib import Path
from typing import Any

from backend.base.errors import FieldError
from backend.base.settings import Settings
from backend.catalog.policies.adapters import adapter_error
from backend.catalog.policies.architectures import architecture_note
from backend.catalog.policies.directories import conversion_command, directory_error, read_config
from backend.catalog.policies.installation import SMOLLM2, unconverted_files
from backend.catalog.policies.text_model import text_config
from backend.catalog.policies.weight_files import UnreadableWeights, read_weights
from backend.config.adapters import ContinuedAdapter
from backend.config.merge import merge
from backend.config.policies import BUILT_IN, MAX_SMALL_PARAMETERS, PolicyOffer, make_profile
from backend.config.run import RunConfig
from backend.config.sections import POLICY_NAME_PATTERN, PolicyConfig

TINY_CONTEXT_TOKENS = 1024
"""Context length of the built-in policies, in tokens. A test compares it with the policy."""


COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")
NOT_PINNED_MESSAGE = (
    "expected a commit of the hub (40 hexadecimal digits, in the model's history there): "
    "a branch or a tag may change between two attempts of a run"
)


def policy_offers(settings: Settings) -> list[PolicyOffer]:
    """Return the built-in policies, all usable directories of MODELS_DIR, and unconverted GGUF files."""
    return [
        *BUILT_IN,
        *(_local_offer(name, settings) for name in _local_names(settings.models_dir)),
        *(_unconverted_offer(name, settings) for name in unconverted_files(settings.models_dir)),
    ]


def policy_profile(settings: Settings, policy: str) -> dict[str, Any]:
    """Return the RunConfig fields that suit a policy, with completions of at most half of its context."""
    profile = make_profile(policy, is_small=is_small(policy, settings))
    context = None if is_built_in(policy) else context_length(policy, settings)
    if context is None or context >= 2 * profile["sampling"]["max_new_tokens"]:
        return profile
    return merge(profile, {"sampling": {"max_new_tokens": max(1, context // 2)}})


def is_small(policy: str, settings: Settings) -> bool:
    """Return whether a directory of MODELS_DIR contains a model that is small enough to train on a CPU."""
    try:
        weights = read_weights(settings.models_dir / policy)
    except UnreadableWeights:
        return False
    return not is_built_in(policy) and sum(weight.values for weight in weights) <= MAX_SMALL_PARAMETERS


def is_built_in(name: str) -> bool:
    """Return whether a policy is included in the project."""
    return any(offer.name == name for offer in BUILT_IN)


def policy_errors(policy: PolicyConfig, settings: Settings) -> list[FieldError]:
    """Return the reasons why this installation cannot load the policy.

    The list is empty if it can load it, or if only the hub can tell.
    """
    adapter = policy.adapter
    if isinstance(adapter, ContinuedAdapter):
        directory = settings.models_dir / adapter.name
        if reason := adapter_error(directory, policy.name, root=settings.models_dir):
            return [FieldError("policy.adapter.name", f"{adapter.name!r}: {reason}")]
    if is_built_in(policy.name):
        return []
    directory = settings.models_dir / policy.name
    if directory.is_dir():
        reason = directory_error(directory, root=settings.models_dir)
        return [FieldError("policy.name", f"{policy.name!r}: {reason}")] if reason else []
    if policy.name.endswith(".gguf") and directory.is_file():
        command = conversion_command(directory)
        return [FieldError("policy.name", f"{policy.name!r} is a GGUF file; convert it: {command}")]
    if settings.hf_online:
        return (
            []
            if COMMIT_PATTERN.fullmatch(policy.revision)
            else [FieldError("policy.revision", NOT_PINNED_MESSAGE)]
        )
    offered_names = ", ".join(offer.name for offer in policy_offers(settings))
    hint = "; `grpolab model` installs it" if policy.name == SMOLLM2.name else ""
    reason = (
        f"is {policy.name!r}, neither built in nor a directory of MODELS_DIR ({settings.models_dir}), "
        f"and names of the hub need HF_ONLINE=1; on offer are {offered_names}{hint}"
    )
    return [FieldError("policy.name", reason)]


def context_errors(config: RunConfig, settings: Settings) -> list[FieldError]:
    """Return an error for each max_new_tokens that leaves no room for a prompt in the policy's context."""
    context = context_length(config.policy.name, settings)
    caps = {"sampling.max_new_tokens": config.sampling.max_new_tokens}
    for number, suite in enumerate(config.evaluation.suites):
        caps[f"evaluation.suites.{number}.max_new_tokens"] = suite.max_new_tokens
    limit = f"the context of {config.policy.name} is {context} tokens, prompt included"
    return [
        FieldError(path, f"is {cap}, but {limit}")
        for path, cap in caps.items()
        if context is not None and cap >= context
    ]


def context_length(policy: str, settings: Settings) -> int | None:
    """Return the maximum length of prompt and completion in tokens, or None if it is not known."""
    if is_built_in(policy):
        return TINY_CONTEXT_TOKENS
    context = text_config(read_config(settings.models_dir / policy) or {}).get("max_position_embeddings")
    return context if isinstance(context, int) else None


def _local_names(models_dir: Path) -> list[str]:
    """Return `name` or `owner/name` of each directory that contains a usable model."""
    if not models_dir.is_dir():
        return []
    config_files = [*models_dir.glob("*/config.json"), *models_dir.glob("*/*/config.json")]
    usable_directories = [
        path.parent for path in config_files if not directory_error(path.parent, root=models_dir)
    ]
    names = sorted(directory.relative_to(models_dir).as_posix() for directory in usable_directories)
    return [name for name in names if re.fullmatch(POLICY_NAME_PATTERN, name)]  # a draft begins with a dot


def _local_offer(name: str, settings: Settings) -> PolicyOffer:
    kind = architecture_note(read_config(settings.models_dir / name) or {})
    profile = policy_profile(settings, name)
    return PolicyOffer(name=name, title=name, note=f"{kind} in MODELS_DIR", profile=profile)


def _unconverted_offer(name: str, settings: Settings) -> PolicyOffer:
    command = conversion_command(settings.models_dir / name)
    note = f"A GGUF file in MODELS_DIR. Convert it first: `{command}`"
    return PolicyOffer(name=name, title=f"{name} (not converted)", note=note, profile={})
