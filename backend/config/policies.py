"""The built-in policies, and the profiles of policies: suitable sizes and learning rates."""

from typing import Any

from backend.config.base import Frozen


class PolicyOffer(Frozen):
    """A policy that the form offers."""

    name: str
    """Value of `policy.name`."""

    title: str
    """Name of the policy in the form."""

    note: str
    """Description of the policy and of its requirements."""

    profile: dict[str, Any]
    """RunConfig fields that suit the policy."""


TINY = PolicyOffer(
    name="tiny",
    title="tiny (built in)",
    note="A Qwen3 of 0.8 M parameters with a character tokenizer, warm-started on sums; trains on any CPU.",
    profile={},
)
"""The default policy. Its profile is empty because the RunConfig defaults suit it."""

TINY_MOE = PolicyOffer(
    name="tiny_moe",
    title="tiny mixture of experts (built in)",
    note="A Qwen3-MoE of 1.8 M parameters, two of eight experts per layer and token, made as `tiny` is; for "
    "router shift and routing replay. A step takes two to three times that of `tiny`.",
    profile={},
)

BUILT_IN = (TINY, TINY_MOE)
"""Policies that need neither MODELS_DIR nor the hub. They share a tokenizer and a context length."""

LANGUAGE_MODEL = PolicyOffer(
    name="",
    title="language model",
    note="A causal language model in Hugging Face format; needs a GPU. With policy.adapter = lora use ten "
    "times the learning rate: 1e-5.",
    profile={
        "policy": {"dtype": "bfloat16", "chat_template": True},
        "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 1024},
        "optimizer": {"lr": 1e-6},
        "resources": {"microbatch_completions": 8},
        "evaluation": {"every": 25},
        "checkpointing": {"every": 50, "keep": 2, "spaced": 2},
    },
)
"""Profile for a model of half a billion to a few billion parameters on one large GPU."""

SMALL_MODEL = PolicyOffer(
    name="",
    title="small language model",
    note="A causal language model of at most 300 M parameters, which trains on a CPU too.",
    profile={
        "policy": {"dtype": "float32", "chat_template": True},
        "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 64},
        "optimizer": {"lr": 1e-5},
        "resources": {"microbatch_completions": 16},
        "evaluation": {"every": 25},
        "checkpointing": {"every": 25, "keep": 1, "spaced": 1},
    },
)
"""Profile for training on a CPU. Weights, masters and moments take 2 GB at 135 M parameters."""

MAX_SMALL_PARAMETERS = 300_000_000
"""Maximum number of parameters of a small model."""


def make_profile(policy: str, *, is_small: bool = False) -> dict[str, Any]:
    """Return the profile of a policy. `is_small` is only used for policies that are not built in."""
    default_offer = SMALL_MODEL if is_small else LANGUAGE_MODEL
    return next((offer.profile for offer in BUILT_IN if offer.name == policy), default_offer.profile)
