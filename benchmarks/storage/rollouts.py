"""Bytes of a rollout of the demo's kind, here and as Parquet: without and with the values of its tokens."""

import math
import platform
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert

from backend.rollouts.store import pack_groups, write_groups
from backend.storage.engine import Sessions, new_id, open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Attempt, Experiment, Run
from backend.storage.rollout_words import index_groups
from benchmarks.common.installation import installation
from benchmarks.scale.fill import attempt_row, run_row
from benchmarks.storage.used import used
from worker.recording.records import CompletionRecord, GroupRecord

GROUPS, COMPLETIONS = 4, 8
"""Of a step."""
PROMPTS = 200
TABLES = ("rollout_group", "group_tally", "run_prompt", "rollout_words", "rollout_tokens")


def groups_of(step: int, chance: np.random.Generator) -> Iterator[GroupRecord]:
    """The groups of a step: sums in two parts, some of them wrong."""
    for index in range(GROUPS):
        prompt = int(chance.integers(PROMPTS))
        a, b, c = (prompt * 7 + 13) % 90 + 10, (prompt * 3 + 5) % 90 + 10, prompt % 90 + 10
        right = chance.random(COMPLETIONS) < 0.6
        rewards = right.astype(np.float32)
        spread = float(rewards.std())
        advantages = np.zeros_like(rewards) if not spread else (rewards - rewards.mean()) / spread
        yield GroupRecord(
            kind="train",
            prompt_index=index,
            prompt_id=f"train-{prompt}",
            problem="arithmetic",
            domain="arithmetic",
            prompt=f"{a}+{b}+{c}=?",
            answer=str(a + b + c),
            completions=tuple(
                completion(a, b, c, float(reward), float(advantage), chance)
                for reward, advantage in zip(rewards, advantages, strict=True)
            ),
        )


def completion(
    a: int, b: int, c: int, reward: float, advantage: float, chance: np.random.Generator
) -> CompletionRecord:
    """A completion of one token for each character, with the values that the trainer records."""
    off = 0 if reward else int(chance.integers(1, 10))
    said = f"<think>{a}+{b}={a + b}, {a + b}+{c}={a + b + c + off}</think>\\boxed{{{a + b + c + off}}}"
    return CompletionRecord(
        text=said,
        token_strings=list(said),
        token_ids=np.array([ord(each) - 32 for each in said], np.int32),
        reward=reward,
        rewards={"correctness": reward},
        advantage=advantage,
        finish_reason="stop",
        correct=bool(reward),
        flags=() if reward else ("wrong",),
        arrays=values_of(len(said), advantage, chance),
    )


def values_of(count: int, advantage: float, chance: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Values of tokens: most are certain, the others are spread."""
    sampled = -np.exp(chance.normal(-3, 2, count)).astype(np.float32)
    reference = sampled + chance.normal(0, 0.02, count).astype(np.float32)
    kl = np.exp(reference - sampled) - (reference - sampled) - 1
    policy = np.full(count, -advantage / 2_000, np.float32)
    return {
        "logprob": sampled,
        "policy_logprob": sampled + chance.normal(0, 1e-5, count).astype(np.float32),
        "reference_logprob": reference,
        "entropy": np.exp(chance.normal(-3, 2, count)).astype(np.float32),
        "ratio": np.ones(count, np.float32),
        "clipped": np.zeros(count, np.float32),
        "kl": kl,
        "kl_coef": np.full(count, 0.001, np.float32),
        "loss": policy + kl * 1e-6,
        "loss_policy": policy,
        "loss_kl": kl * 1e-6,
        "gradient": policy * (1 - np.exp(sampled)),
    }


def measured(steps: int) -> dict[str, dict[str, float]]:
    """Bytes a rollout of each store, by what is in it; bytes a value of a token."""
    found = {f"GRPO Lab, {database}": ours(database, steps) for database in ("sqlite", "postgres")}
    return found | {"Parquet, a file, zstd": parquet(steps)}


def ours(database: str, steps: int) -> dict[str, float]:
    """A run without tokens, the same with its index, and one with tokens."""
    sizes = {}
    for name in ("plain", "tokens"):
        with installation(database) as place:
            upgrade(place.url)
            engine = open_engine(place.url, pool_size=2)
            sessions = open_sessions(engine)
            empty = used(sessions, TABLES)
            fill(sessions, steps, with_tokens=name == "tokens")
            sizes[name] = used(sessions, TABLES) - empty
            if name == "plain":
                list(index_groups(sessions))
                sizes["words"] = used(sessions, TABLES) - empty
            engine.dispose()
    return shown(sizes["plain"], sizes["words"], sizes["tokens"], steps)


def shown(plain: int, words: int | None, tokens: int, steps: int) -> dict[str, float]:
    """The sizes for each rollout and value."""
    rollouts, chance = steps * GROUPS * COMPLETIONS, np.random.default_rng(7)
    values = sum(
        len(values) for step in range(1, steps + 1) for group in groups_of(step, chance)
        for each in group.completions for values in each.arrays.values()
    )  # fmt: skip
    return {
        "text, ids, rewards": plain / rollouts,
        "with the full-text index": float("nan") if words is None else words / rollouts,
        "with token values": tokens / rollouts,
        "a token value": (tokens - plain) / values,
    }


def fill(sessions: Sessions, steps: int, *, with_tokens: bool) -> None:
    """Write a run."""
    row, chance = run_row(0, new_id(), random.Random(0)), np.random.default_rng(7)
    with sessions.begin() as session:
        session.add(
            Experiment(
                id=row["experiment_id"],
                name="demo",
                request={"variants": [], "seeds": []},
                request_hash="0" * 64,
            )
        )
        session.flush()
        session.execute(insert(Run), [row])
        session.execute(insert(Attempt), [attempt_row(row["id"])])
    for step in range(1, steps + 1):
        packed = pack_groups(row["id"], step, 1, list(groups_of(step, chance)), with_tokens=with_tokens)
        with sessions.begin() as session:
            write_groups(session, packed)


def parquet(steps: int) -> dict[str, float]:
    """The same columns as a table of rollouts, and one of tokens beside it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    tokens: dict[str, list[Any]] = {}
    for step in range(1, steps + 1):
        for group in groups_of(step, chance):
            for position, each in enumerate(group.completions):
                for name, values in each.arrays.items():
                    tokens.setdefault(name, []).append(values)
                tokens.setdefault("rollout", []).append(np.full(len(each.token_ids), len(rows), np.int32))
                tokens.setdefault("id", []).append(each.token_ids)
                rows.append(row_of(step, group, position, each))
    with tempfile.TemporaryDirectory() as directory:
        first, second = Path(directory, "rollouts.parquet"), Path(directory, "tokens.parquet")
        pq.write_table(pa.Table.from_pylist(rows), first, compression="zstd")
        joined = {name: np.concatenate(parts) for name, parts in tokens.items()}
        pq.write_table(pa.table(joined), second, compression="zstd")
        plain, whole = first.stat().st_size, first.stat().st_size + second.stat().st_size
    return shown(plain, None, whole, steps)


def row_of(step: int, group: GroupRecord, position: int, each: CompletionRecord) -> dict[str, Any]:
    """A rollout as a row of Parquet."""
    names = ("kind", "prompt_index", "prompt_id", "problem", "domain", "prompt", "answer")
    own = {"text": each.text, "reward": each.reward, "advantage": each.advantage, "correct": each.correct}
    return {
        "step": step,
        "position": position,
        **{name: getattr(group, name) for name in names},
        **own,
        "finish_reason": each.finish_reason,
        "tokens": len(each.token_ids),
        "rewards": str(dict(each.rewards)),
        "flags": str(list(each.flags)),
    }


def table(found: dict[str, dict[str, float]], steps: int) -> list[str]:
    """The sizes in Markdown."""
    names = list(next(iter(found.values())))
    lines = [
        (
            f"{steps * GROUPS * COMPLETIONS:,} rollouts: sums of three numbers in groups of {COMPLETIONS}, "
            f"{PROMPTS} prompts, a token for each character, 12 values for each token; Postgres after VACUUM "
            f"FULL; {platform.machine()}, Python {platform.python_version()}."
        ),
        "",
        f"| bytes of a rollout | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for store, sizes in found.items():
        lines.append(f"| {store} | {' | '.join(map(_cell, sizes.values()))} |")
    return lines


def _cell(size: float) -> str:
    return "" if math.isnan(size) else f"{size:.2f}" if size < 10 else f"{size:.0f}"
