"""Cases of the comparison: settings of TRL's GRPOConfig with the equivalent objective.

Both sides read this table, which imports neither of them.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

Settings = dict[str, Any]


class Case(NamedTuple):
    """One line of the table."""

    name: str
    trl: Settings
    """Keyword arguments of TRL's GRPOConfig."""
    our_settings: Settings | None
    """Our objective, or None if only TRL has it."""
    note: str = ""
    differs: bool = False
    """Whether the two are known to differ, for the reason in the note."""
    trainer: str = "GRPOTrainer"
    terms: int = 1
    """Number of reward terms, of which the second has a weight of a half."""
    truncated: bool = False
    """Whether truncated completions are excluded from the loss (TRL: mask_truncated_completions)."""
    holes: bool = False
    """Whether some tokens inside a completion were not written by the policy (TRL: tool_mask)."""
    parts: int = 1
    """Number of micro-batches per optimizer step."""

    @property
    def with_sampler(self) -> bool:
        """Whether the sampler's log-probabilities are used."""
        return "vllm_importance_sampling_mode" in self.trl or "off_policy_mask_threshold" in self.trl


MAX_NEW_TOKENS = 12
CLIP_SETTINGS = {"epsilon": 0.2, "epsilon_high": 0.28}
PPO_SURROGATE = {"type": "ppo_clip", "eps_low": 0.2, "eps_high": 0.28}
TOKEN, SEQUENCE = {"type": "token"}, {"type": "seq_geo"}

SETTINGS_BY_LOSS: dict[str, tuple[Settings, Settings]] = {
    "grpo": (CLIP_SETTINGS, {"surrogate": PPO_SURROGATE, "aggregation": {"type": "seq_mean_token_mean"}}),
    "dr_grpo": (
        CLIP_SETTINGS,
        {
            "surrogate": PPO_SURROGATE,
            "aggregation": {"type": "seq_mean_token_sum_norm", "l_max": MAX_NEW_TOKENS},
        },
    ),
    "dapo": (CLIP_SETTINGS, {"surrogate": PPO_SURROGATE, "aggregation": {"type": "token_mean"}}),
    "bnpo": (CLIP_SETTINGS, {"surrogate": PPO_SURROGATE, "aggregation": {"type": "token_mean"}}),
    "luspo": (CLIP_SETTINGS, {"surrogate": PPO_SURROGATE, "aggregation": {"type": "seq_mean_token_sum"}}),
    "cispo": (
        {"epsilon_high": 1.28},
        {"surrogate": {"type": "weight_cap", "cap": 1.28}, "aggregation": {"type": "token_mean"}},
    ),
    "sapo": (
        {"sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05},
        {"surrogate": {"type": "sapo"}, "aggregation": {"type": "seq_mean_token_mean"}},
    ),
}
RATIO_BY_LEVEL = {"token": TOKEN, "sequence": SEQUENCE}
SCALE_BY_NAME = {"group": "group_std", "batch": "batch_std", "none": "none"}
SETTINGS_BY_CORRECTION: dict[str, tuple[Settings, Settings]] = {
    "none": ({}, {}),
    "token_truncate": ({"clip_max": 2.0}, {"correction": {"type": "token_tis", "cap": 2.0}}),
    "token_mask": (
        {"clip_min": 0.5, "clip_max": 2.0},
        {"correction": {"type": "token_mask", "low": 0.5, "high": 2.0}},
    ),
    "sequence_truncate": ({"clip_max": 2.0}, {"correction": {"type": "seq_tis", "cap": 2.0}}),
    "sequence_mask": (
        {"clip_min": 0.5, "clip_max": 3.0},
        {"correction": {"type": "seq_mask", "low": 0.5, "high": 3.0}},
    ),
    "off_policy_mask": ({}, {"off_policy_mask": {"type": "opsm", "delta": 0.1}}),
}


def combination(loss: str, level: str, scale: str, correction: str, **changes: Any) -> Case:
    """Return the case of one combination of TRL's four choices."""
    loss_trl, loss_ours = SETTINGS_BY_LOSS[loss]
    limits, correction_ours = SETTINGS_BY_CORRECTION[correction]
    trl_settings = {"loss_type": loss, "importance_sampling_level": level, "scale_rewards": scale, **loss_trl}
    if correction == "off_policy_mask":
        trl_settings["off_policy_mask_threshold"] = 0.1
    elif correction != "none":
        trl_settings["vllm_importance_sampling_mode"] = correction
        trl_settings |= {f"vllm_importance_sampling_{bound}": limit for bound, limit in limits.items()}
    our_settings = {
        "advantage": {"type": "group_mean", "scale": {"type": SCALE_BY_NAME[scale]}},
        "ratio": RATIO_BY_LEVEL[level],
        **loss_ours,
        **correction_ours,
    }
    name = f"{loss}, {level}, scale {scale}, {'no correction' if correction == 'none' else correction}"
    return Case(name, trl_settings, our_settings)._replace(**changes)


def every_combination() -> Iterator[Case]:
    """Yield the cross product of settings that both sides have, of which only TRL caps sequence weights."""
    for loss, level, scale, correction in product(
        SETTINGS_BY_LOSS, RATIO_BY_LEVEL, SCALE_BY_NAME, SETTINGS_BY_CORRECTION
    ):
        if (loss, level) != ("cispo", "sequence"):
            yield combination(loss, level, scale, correction)


def _with(base: Case, name: str, trl_settings: Settings, our_settings: Settings, **changes: Any) -> Case:
    merged_settings = None if base.our_settings is None else base.our_settings | our_settings
    return base._replace(name=name, trl=base.trl | trl_settings, our_settings=merged_settings, **changes)


GRPO, DR_GRPO, DAPO, BNPO = (
    combination(loss, "token", "group", "none") for loss in ("grpo", "dr_grpo", "dapo", "bnpo")
)
GSPO = combination("grpo", "sequence", "group", "none")
K3_OBJECTIVE = {"kl": {"type": "k3", "coef": 0.04}}
R_K3_OBJECTIVE = {"kl": {"type": "r_k3", "coef": 0.04}}
BONUS_OBJECTIVE = {"entropy": {"type": "bonus", "coef": 0.01}}
GDPO_OBJECTIVE = {"advantage": {"type": "group_mean", "multi_reward": "gdpo"}}

EQUAL_CASES = [
    combination("grpo", "token", "group", "none"),
    combination("dr_grpo", "token", "none", "none", note="l_max is TRL's max_completion_length"),
    combination("dapo", "token", "group", "none"),
    combination("bnpo", "token", "group", "none", note="our token_mean, while one micro-batch is the batch"),
    combination("cispo", "token", "group", "none", note="TRL's epsilon_high is the cap itself"),
    combination("sapo", "token", "group", "none"),
    combination("luspo", "token", "group", "none", note="our seq_mean_token_sum"),
    combination("grpo", "sequence", "group", "none", note="GSPO"),
    combination("luspo", "sequence", "group", "none", note="LUSPO: seq_geo with seq_mean_token_sum"),
    combination("sapo", "sequence", "group", "none"),
    combination("grpo", "token", "batch", "none", note="Lite PPO's scale"),
    combination("grpo", "token", "none", "none"),
    combination("dapo", "token", "none", "token_truncate", note="Olmo 3's loss"),
    combination("dapo", "token", "group", "token_mask", note="IcePop"),
    combination("grpo", "token", "group", "sequence_truncate"),
    combination("grpo", "token", "group", "sequence_mask", note="TRL's default mode"),
    combination("grpo", "token", "none", "off_policy_mask", note="opsm with source = sampler"),
    _with(GRPO, "grpo, beta 0.04", {"beta": 0.04, "use_bias_correction_kl": False}, K3_OBJECTIVE, note="k3"),
    _with(
        GRPO, "grpo, beta 0.04, bias correction", {"beta": 0.04}, R_K3_OBJECTIVE, note="r_k3; TRL's default"
    ),
    _with(GSPO, "grpo, sequence, beta 0.04, bias correction", {"beta": 0.04}, R_K3_OBJECTIVE, note="r_k3"),
    _with(
        DAPO,
        "vespo",
        {"loss_type": "vespo"},
        {"ratio": {"type": "seq_product"}, "surrogate": {"type": "vespo"}},
        note="its weight is TRL's default",
    ),
    _with(
        GRPO,
        "grpo, delta 1.3",
        {"delta": 1.3},
        {"surrogate": PPO_SURROGATE | {"dual_clip": 1.3}},
        note="dual_clip; for A > 0 the upper bound acts before delta does",
    ),
    _with(
        GRPO,
        "gmpo (trl.experimental), 0.4",
        {"epsilon": 0.4, "epsilon_high": None},
        {"ratio": SEQUENCE, "surrogate": {"type": "geo_token"}},
        trainer="GMPOTrainer",
    ),
    _with(
        GRPO,
        "grpo, two rewards, normalize_then_sum",
        {"multi_objective_aggregation": "normalize_then_sum"},
        GDPO_OBJECTIVE,
        terms=2,
        note="GDPO",
    ),
    _with(GRPO, "grpo, two rewards, sum_then_normalize", {}, {}, terms=2),
    _with(DAPO, "dapo, entropy_coef 0.01", {"entropy_coef": 0.01}, BONUS_OBJECTIVE),
    _with(GRPO, "grpo, cut completions masked", {"mask_truncated_completions": True}, {}, truncated=True),
    _with(DAPO, "dapo, cut completions masked", {"mask_truncated_completions": True}, {}, truncated=True),
    _with(GRPO, "grpo, tool tokens inside", {}, {}, holes=True),
    _with(DAPO, "dapo, tool tokens inside", {}, {}, holes=True),
    _with(GRPO, "grpo, 3 micro-batches", {}, {}, parts=3),
    _with(DR_GRPO, "dr_grpo, 3 micro-batches", {}, {}, parts=3),
    _with(DAPO, "dapo, 3 micro-batches", {}, {}, parts=3),
]
"""Cases that both sides have and must agree on."""

DIFFERENT_CASES = [
    _with(
        BNPO,
        "bnpo, 3 micro-batches",
        {},
        {},
        parts=3,
        differs=True,
        note="TRL divides by each micro-batch's own tokens, so the objective depends on the split; our "
        "denominators belong to the optimizer batch. They agree with one micro-batch, or with dapo.",
    ),
    _with(
        GRPO,
        "grpo, entropy_coef 0.01",
        {"entropy_coef": 0.01},
        BONUS_OBJECTIVE,
        differs=True,
        note="TRL's bonus is a token mean whatever the loss; ours is reduced as the policy loss is. They "
        "agree under token_mean (dapo, bnpo).",
    ),
    _with(
        DAPO,
        "dapo, entropy_coef 0.01, 3 micro-batches",
        {"entropy_coef": 0.01},
        BONUS_OBJECTIVE,
        parts=3,
        differs=True,
        note="TRL's bonus is the mean of the micro-batches' own token means. It agrees with one micro-batch.",
    ),
    _with(
        DAPO,
        "dapo, top_entropy_quantile 0.2",
        {"top_entropy_quantile": 0.2},
        {"token_weight": {"type": "top_entropy", "q": 0.2}},
        differs=True,
        note="TRL interpolates a quantile of each micro-batch's present entropies; ours keeps the share q of "
        "the step's tokens by the sampler's. They agree up to one token while there is one update.",
    ),
]
"""Cases that both sides have and define differently."""

ONLY_TRL = {
    "loss_type vespo with a sampler's correction": "our vespo takes ratio.old = sampler instead",
    "loss_type cispo with importance_sampling_level sequence": "our weight_cap is defined for token ratios",
    "vllm_importance_sampling_clip_min with a truncate mode": "our truncation has an upper end alone",
    "sampler log-probabilities of NaN count as no mismatch": "our sampler always reports them",
    "router_aux_loss_coef": "load balancing of a mixture of experts",
}
ONLY_OURS = {
    "ratio seq_geo_token": "GSPO-token; TRL 1.16 knows token and sequence (and has no sequence_token)",
    "ratio seq_product and none": "the book's and REINFORCE's forms",
    "surrogate dynamic, divergence, clip_cov, kl_cov, fipo, book_signed": (
        "DCPO, DPPO, the Covs, FIPO, the book"
    ),
    "aggregation prompt_mean": "DAPO as written, Magistral",
    "correction with level geo, geo_filter": "geometric sequence weights; NeMo-RL",
    "off_policy_mask source old": "the book's script",
    "kl k1, k2, r_k1, in the reward, to the old policy, by domain, under a controller": "TRL has k3 and r_k3",
    "advantage loo, optimal, best_of_group, batch_mean, ema, none, critic, and the scales mean_reward, "
    "seq_whiten, token_whiten, sas": "",
    "router_shift, nll, ar": "RSPO, VAPO and AR",
}
