"""Checks of a submitted config: the result is a config that this installation can run."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from backend.config.merge import resolve
from backend.config.run import RunConfig
from backend.config.sources import pinned, source_errors
from backend.errors import FieldError, InvalidConfig
from backend.policies.offered import context_errors, policy_errors, profile_here
from backend.policies.prompt_lengths import conversation_errors, prompt_errors
from backend.settings import Settings


def runnable(
    settings: Settings,
    base: Mapping[str, Any],
    variant: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> RunConfig:
    """The complete config; raises InvalidConfig for what is wrong with it here or anywhere."""
    config = resolve(base, variant, seed, profile=partial(profile_here, settings))
    errors = [
        *policy_errors(config.policy, settings),
        *context_errors(config, settings),
        *_source_errors(config, settings),
    ]
    if errors := errors or conversation_errors(config, settings) or prompt_errors(config, settings):
        raise InvalidConfig(errors)
    return pinned(config, datasets_dir=settings.datasets_dir)


def _source_errors(config: RunConfig, settings: Settings) -> list[FieldError]:
    return source_errors(
        config,
        datasets_dir=settings.datasets_dir,
        hf_online=settings.hf_online,
        unserved=settings.unserved_rewards,
    )
