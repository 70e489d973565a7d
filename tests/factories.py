"""Valid runs, groups and metrics with default values, which tests can change."""

import json
import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from backend.config.merge import config_hash, resolve
from backend.metrics.store import write_points
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.store import pack_groups, write_groups
from backend.storage.completion import Completion
from backend.storage.completions import iterate_completions
from backend.storage.engine import new_id
from backend.storage.models import NOT_BEGUN, Attempt, Checkpoint, Experiment, RolloutGroup, Run

VALUE_BY_STEP = {
    1: 0.0,
    2: math.nan,
    3: math.inf,
    4: -math.inf,
    5: 1e-308,
    6: 1.7976931348623157e308,
    7: -0.0,
}
"""Values of a metric by step that are often stored wrongly."""


def make_experiment(session: Session, **fields: Any) -> Experiment:
    """Create an experiment with one variant and one seed."""
    request = {"name": "sweep", "base": {}, "variants": [{"name": "grpo"}], "seeds": [0]}
    experiment = Experiment(**{"name": "sweep", "request": request, "request_hash": "0" * 64} | fields)
    session.add(experiment)
    session.flush()
    return experiment


def make_run(session: Session, **fields: Any) -> Run:
    """Create a queued run with the default config, changed by `config`."""
    seed = fields.get("seed", 0)
    config = resolve(fields.pop("config", {}), None, seed)
    defaults = {
        "id": new_id(),
        "name": "brave-otter",
        "variant": "grpo",
        "seed": seed,
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash(config),
        "steps": config.steps,
        "status": "queued",
    }
    run = Run(**defaults | fields)
    session.add(run)
    session.flush()
    return run


def make_attempt(session: Session, run: Run, number: int, *, from_step: int = NOT_BEGUN) -> Attempt:
    """Create an attempt of a run that continued after `from_step`."""
    attempt = Attempt(run_id=run.id, number=number, worker_id="w", host="h", from_step=from_step)
    session.add(attempt)
    session.flush()
    return attempt


def make_checkpoint(
    session: Session, run: Run, state_dir: Path, *, step: int, attempt: int = 1, content: bytes = b"weights"
) -> Checkpoint:
    """Create a checkpoint with one file, in the state directory and in SQL."""
    name = f"s{step:06d}-a{attempt}"
    directory = state_dir / "runs" / run.id / name
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(content)
    entry = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    manifest = json.dumps({"files": {"model.safetensors": entry}}).encode()
    (directory / "manifest.json").write_bytes(manifest)
    row = {"path": name, "bytes_total": len(content), "manifest": {"files": ["model.safetensors"]}}
    row["sha256"] = sha256(manifest).hexdigest()
    checkpoint = Checkpoint(run_id=run.id, step=step, attempt=attempt, **row)
    session.add(checkpoint)
    session.flush()
    return checkpoint


def write_metric(
    session: Session, run: Run, name: str, values: Mapping[int, float], *, attempt: int = 1
) -> None:
    """Write the values of one metric by step and mark the run as changed, as a trainer does."""
    write_points(session, run.id, attempt, [(step, {name: value}) for step, value in values.items()])
    session.execute(update(Run).where(Run.id == run.id).values(changed_at=Run.changed_at + 1))


def seeded_metrics(steps: int, *, seed: int = 0, spike_at: int | None = None) -> dict[int, dict[str, float]]:
    """Return plausible metrics: accuracy rises, entropy falls, and the loss is 1000 at `spike_at`."""
    rng = np.random.default_rng(seed)
    metrics_by_step = {}
    for step in range(1, steps + 1):
        rise = 1 - math.exp(-3 * step / steps)
        metrics_by_step[step] = {
            "reward/mean": 0.2 + 0.6 * rise + rng.normal(0, 0.02),
            "policy/entropy": 1.2 * (1 - 0.7 * rise) + rng.normal(0, 0.01),
            "loss/total": 1000.0 if step == spike_at else rng.normal(0, 0.01),
            "time/wall_seconds": 0.5 * step,
            "tokens/total": 4096.0 * step,
        }
    return metrics_by_step


class MadeCompletion(CompletionRecord):
    """A completion as a trainer records it, with tokens of one character."""

    __slots__ = ()

    def __init__(
        self,
        text: str = "<think>1+1=2</think>\\boxed{2}",
        reward: float | None = 1.0,
        rewards: Mapping[str, float | None] | None = None,
        advantage: float | None = 0.5,
        **fields: Any,
    ) -> None:
        length = len(text)
        defaults: dict[str, Any] = {
            "token_strings": list(text),
            "token_ids": [ord(character) % 1000 for character in text],
            "finish_reason": "stop",
            "correct": True,
            "arrays": {
                "logprob": -np.arange(length, dtype=np.float32),
                "entropy": np.ones(length, np.float32),
            },
        }
        terms = {"correctness": 1.0} if rewards is None else rewards
        super().__init__(text, reward=reward, rewards=terms, advantage=advantage, **(defaults | fields))


class MadeGroup(GroupRecord):
    """A group as a trainer records it."""

    __slots__ = ()

    def __init__(
        self, prompt: str = "1+1=?", completions: Sequence[CompletionRecord] = (), **fields: Any
    ) -> None:
        problem = fields.get("problem", "sums")
        defaults: dict[str, Any] = {
            "kind": "train",
            "prompt_index": 0,
            "domain": "math",
            "answer": "2",
            "problem": problem,
        }
        super().__init__(
            **(defaults | {"prompt_id": f"{problem}/{prompt}"} | fields),
            prompt=prompt,
            completions=completions
            or (
                MadeCompletion(),
                MadeCompletion(text="no idea", reward=0.0, advantage=-0.5, correct=False, flags=("wrong",)),
            ),
        )


def make_group(
    session: Session, run: Run, *, step: int = 1, attempt: int = 1, tokens: bool = True, **fields: Any
) -> str:
    """Store a group of two completions and return its id."""
    packed_groups = pack_groups(run.id, step, attempt, [MadeGroup(**fields)], with_tokens=tokens)
    write_groups(session, packed_groups)
    return str(packed_groups.groups[0]["id"])


def stored_completions(session: Session, *conditions: Any) -> list[Completion]:
    """Return the completions of all groups, or of those that match SQL conditions, ordered by step."""
    query = select(RolloutGroup.id).where(*conditions)
    ids = session.scalars(
        query.order_by(RolloutGroup.step, RolloutGroup.kind, RolloutGroup.prompt_index)
    ).all()
    return [completion for _, completions in iterate_completions(session, ids) for completion in completions]
