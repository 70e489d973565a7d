"""Parts of the configs that claims share."""

from collections.abc import Mapping
from typing import Any

from benchmarks.evidence.claim import Measure


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result


LEAN = {
    "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 64},
    "evaluation": {"every": 10},
    "checkpointing": {"every": 0},
    "recording": {"rollouts": "none", "tokens": False},
}
"""8 prompts x 8 completions of at most 64 tokens, evaluated every 10 steps on 128 held-out prompts."""

ACCURACY = Measure(title="held-out accuracy", metric="eval/accuracy", how="last", percent=True)
ENTROPY = Measure(title="entropy", metric="policy/entropy")
LENGTH = Measure(title="length", metric="length/mean")


def clip(high: float) -> dict[str, Any]:
    return {"objective": {"surrogate": {"type": "ppo_clip", "eps_low": 0.2, "eps_high": high}}}


def kl(**fields: Any) -> dict[str, Any]:
    return {"objective": {"kl": fields}}


def rewards(**think: Any) -> dict[str, Any]:
    return {"rewards": [{"name": "correctness", "weight": 1.0}, {"name": "think_format", **think}]}


def scale(scale: str) -> dict[str, Any]:
    return {"objective": {"advantage": {"type": "group_mean", "scale": {"type": scale}}}}


def size(prompts: int, group: int) -> dict[str, Any]:
    return {"sampling": {"prompts_per_step": prompts, "group_size": group}}


def sums(domain: str, **fields: Any) -> dict[str, Any]:
    return {"name": "sums", "domain": domain, **fields}


TIS = {"correction": {"type": "token_tis", "cap": 2.0}}
FILE = {"name": "file", "path": "sums.jsonl"}
FAST = {"optimizer": {"lr": 1e-3}}
MIXED = [
    sums("easy", operands=3, low=10, high=30),
    sums("medium", operands=3, low=10, high=99),
    sums("hard", operands=3, low=60, high=99),
]
"""Sums with few, some and almost only carries, which the warm-started policy forgets."""
