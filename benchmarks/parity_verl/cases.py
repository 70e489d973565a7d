"""Comparisons with verl's functions: an advantage estimator or a policy loss, and what should mean the same.

Both sides read this table; it imports neither of them.
"""

import math
from typing import Any, NamedTuple

from benchmarks.parity.batches import PROMPTS, random_batch

Settings = dict[str, Any]


class VerlCase(NamedTuple):
    """One line of the table."""

    name: str
    """Its registered name in verl."""
    settings: Settings
    """Of verl's config of the actor, or arguments of the estimator."""
    ours: Settings
    """Our objective."""
    is_advantage: bool = False
    """Whether it is an estimator of advantages; otherwise a loss over GRPO's own advantages."""
    note: str = ""


TOKEN_MEAN = {"aggregation": {"type": "token_mean"}}
CLIPPED = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2}
NARROW: Settings = dict.fromkeys(CLIPPED, 0.05)
WIDE: Settings = dict.fromkeys(CLIPPED, 100.0)
WHITENED = {"type": "token_whiten", "eps": 0}
INSIDE = "verl adds 1e-8 to the variance"
BAND = {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.2, "clip_cov_ub": 1.5}


def _divergence(measure: str, most: float) -> Settings:
    return {"type": "divergence", "measure": measure, "low": most, "high": most}


def _advantage(name: str, advantage: Settings, note: str = "", **settings: Any) -> VerlCase:
    return VerlCase(name, settings, {"advantage": advantage}, is_advantage=True, note=note)


def _loss(name: str, surrogate: Settings, note: str = "", **settings: Any) -> VerlCase:
    return VerlCase(name, CLIPPED | settings, {"surrogate": surrogate} | TOKEN_MEAN, note=note)


VERL_CASES = [
    _loss("vanilla", {"type": "ppo_clip", "dual_clip": 3.0}, clip_ratio_c=3.0, note="dual clip 3"),
    _loss("dppo_tv", _divergence("tv", 0.2), note="bounds of 0.2"),
    _loss(
        "dppo_tv",
        {"type": "divergence", "measure": "tv", "low": 0.05, "high": 0.05},
        **NARROW,
        note="bounds of 0.05",
    ),
    _loss("dppo_kl", _divergence("kl", 0.05), **NARROW),
    _loss(
        "clip_cov",
        {"type": "clip_cov", "eps_low": 100, "eps_high": 100, "share": 1.0, "low": 0.2, "high": 1.5},
        policy_loss=BAND,
        **WIDE,
        note="all of the band, by the present log-probabilities; no clip",
    ),
    _loss(
        "kl_cov",
        {"type": "kl_cov", "share": 0.1, "coef": 1.0},
        policy_loss={"kl_cov_ratio": 0.1, "ppo_kl_coef": 1.0},
        note="chosen by the present log-probabilities on both sides",
    ),
    _advantage("opo", {"type": "optimal"}),
    _advantage("optimal_token_baseline", {"type": "optimal_token"}, "verl adds 1e-8 to the sum of weights"),
    _advantage("remax", {"type": "greedy"}),
    _advantage("grpo_passk", {"type": "best_of_group"}, norm_adv_by_std_in_grpo=False),
    _advantage("reinforce_plus_plus", {"type": "none", "scale": WHITENED}, INSIDE, gamma=1.0),
    _advantage("reinforce_plus_plus_baseline", {"type": "group_mean", "scale": WHITENED}, INSIDE),
    _advantage("rloo", {"type": "loo"}),
]


def batch_for_verl(seed: int) -> dict[str, Any]:
    """The random batch of the comparison with TRL, with log-probabilities below 0 as a divergence needs.

    `squares` stands for the sum of squared probabilities, `greedy` for the rewards of greedy completions.
    """
    batch = random_batch(seed)
    for name in ("new", "old"):
        batch[name] = [[min(value, -0.001) for value in row] for row in batch[name]]
    batch["squares"] = [[math.exp(2 * value) + 0.1 for value in row] for row in batch["old"]]
    batch["greedy"] = [rewards / 2 for rewards in batch["rewards"][0][:PROMPTS]]
    return batch
