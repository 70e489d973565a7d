"""Check a submitted config and resolve it to one that this installation can run."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from backend.base.errors import FieldError, InvalidConfig
from backend.base.settings import Settings
from backend.catalog.policies.offered import context_errors, policy_errors, policy_profile
from backend.catalog.policies.prompt_lengths import conversation_errors, prompt_errors
from backend.config.environments import OpenEnv
from backend.config.merge import resolve
from backend.config.run import RunConfig
from backend.config.sources import pin_sources, source_errors


def resolve_runnable(
    settings: Settings,
    base: Mapping[str, Any],
    variant: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> RunConfig:
    """Return the complete config; raise InvalidConfig if it is invalid or this installation cannot run it."""
    config = resolve(base, variant, seed, profile=partial(policy_profile, settings))
    errors = [
        *policy_errors(config.policy, settings),
        *context_errors(config, settings),
        *_source_errors(config, settings),
        *_engine_errors(config, settings),
        *_environment_errors(config, settings),
    ]
    if errors := errors or conversation_errors(config, settings) or prompt_errors(config, settings):
        raise InvalidConfig(errors)
    return pin_sources(config, datasets_dir=settings.datasets_dir)


def _source_errors(config: RunConfig, settings: Settings) -> list[FieldError]:
    return source_errors(
        config,
        datasets_dir=settings.datasets_dir,
        hf_online=settings.hf_online,
        unserved_reasons=settings.unserved_rewards,
    )


def _engine_errors(config: RunConfig, settings: Settings) -> Iterator[FieldError]:
    """Yield an error for each setting that the sampling servers of this installation do not support."""
    sampling = config.sampling
    if sampling.engine.type == "colocated" and not settings.engine_python:
        reason = "is colocated, but ENGINE_PYTHON is not set: see docs/engines.md"
        yield FieldError("sampling.engine.type", reason)
    if sampling.engine.type != "server":
        return
    if not settings.engine_url:
        yield FieldError("sampling.engine.type", "is server, but ENGINE_URL is not set: see docs/engines.md")
    if settings.engine_logprobs == "processed":
        return
    raw_reason = "but the servers send log-probabilities from before it (ENGINE_LOGPROBS is raw)"
    neutral = {"temperature": 1, "top_p": 1, "top_k": 0}
    for name, expected in neutral.items():
        if (value := getattr(sampling, name)) != expected:
            yield FieldError(f"sampling.{name}", f"is {value:g}, {raw_reason}: expected {expected}")


def _environment_errors(config: RunConfig, settings: Settings) -> Iterator[FieldError]:
    """Yield an error if this installation does not have the environment's server."""
    environment, servers = config.environment, settings.openenv_servers
    if isinstance(environment, OpenEnv) and environment.server not in servers:
        reason = f"names {', '.join(servers)}" if servers else "is not set: see docs/environments.md"
        yield FieldError("environment.server", f"is {environment.server}, but OPENENV_URLS {reason}")
