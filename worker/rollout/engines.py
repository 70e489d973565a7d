"""Create the engine that a run's config selects."""

from typing import assert_never

from backend.base.settings import Settings
from backend.config.engines import ColocatedEngine as ColocatedConfig
from backend.config.engines import LocalEngine as LocalConfig
from backend.config.engines import ServerEngine as ServerConfig
from backend.config.run import RunConfig
from worker.policy.model import Policy, policy_directory
from worker.rollout.behaviour import Behaviour
from worker.rollout.colocated_engine import ColocatedEngine
from worker.rollout.engine import Engine
from worker.rollout.local_engine import LocalEngine
from worker.rollout.row_limit import RowLimit
from worker.rollout.server_engine import server_engine


def engine_for(
    config: RunConfig,
    policy: Policy,
    settings: Settings,
    *,
    behaviour: Behaviour,
    limit: RowLimit,
    run_id: str,
    attempt: int,
) -> Engine:
    """Return the engine, without weights. Raise EngineFailed if this installation has none."""
    sampling = config.sampling
    match sampling.engine:
        case LocalConfig():
            return LocalEngine(sampling, behaviour, limit, alternatives=config.recording.alternatives)
        case ServerConfig():
            return server_engine(
                sampling.engine,
                policy,
                settings,
                run_id=run_id,
                attempt=attempt,
                max_tokens=sampling.group_size * sampling.max_new_tokens,
            )
        case ColocatedConfig():
            return ColocatedEngine(
                sampling.engine,
                policy,
                settings,
                model=policy_directory(config.policy, settings),
                run_id=run_id,
                attempt=attempt,
                max_tokens=sampling.group_size * sampling.max_new_tokens,
            )
        case _:
            assert_never(sampling.engine)
