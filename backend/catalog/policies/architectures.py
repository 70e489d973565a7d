"""The model architectures that are tested, and those that cannot be trained."""

from typing import Any

from backend.catalog.policies.text_model import text_config

TESTED_MODEL_TYPES = frozenset(
    {
        "cohere2", "deepseek_v3", "falcon_h1", "gemma2", "gemma3", "gemma3_text", "glm4", "gpt_neox",
        "gpt_oss",
        "granite", "granitemoehybrid", "lfm2", "llama", "mistral", "olmo2", "olmo3", "phi3", "qwen2", "qwen3",
        "qwen3_5", "qwen3_5_text", "qwen3_moe", "qwen3_next", "smollm3",
    }
)  # fmt: skip
"""Model types in `make test-models`, which compares sampling, learning and export with a plain forward pass.
"""

REFUSED_MODEL_TYPES = {
    "deepseek_v4": "its cache gives other logits for prompts of different lengths",
    "llama4": "transformers offers no body without its output layer",
    "llama4_text": "transformers offers no body without its output layer",
    "minimax": "its cache cannot be divided among completions",
    "mllama": "transformers offers no body without its output layer",
    "rwkv": "its state cannot be divided among completions",
    "xlnet": "it does not predict one token after the other",
    "zamba2": "its cache cannot be divided among completions",
}
"""Model types that can be loaded but not sampled or trained, each with the reason."""

MAX_NAME_CHARACTERS = 64
"""Maximum number of characters of a name in a message."""


def architecture_error(config: dict[str, Any]) -> str:
    """Return the reason why a model with this config.json cannot be trained, or "" if none is known."""
    kind = _model_type(config)
    if config.get("is_encoder_decoder"):
        return f"{kind} is an encoder with a decoder; expected a causal language model"
    if kind in REFUSED_MODEL_TYPES:
        return f"{kind} is not supported: {REFUSED_MODEL_TYPES[kind]}"
    names = config.get("architectures")
    class_names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    if class_names and not any(
        "CausalLM" in name or "LMHead" in name or "Conditional" in name for name in class_names
    ):
        return f"it is a {class_names[0][:MAX_NAME_CHARACTERS]}; expected a causal language model"
    return ""


ATTENTION_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention", "attention"})
"""Layer types in configs whose tokens interact only through attention."""


UNPACKABLE_MODEL_TYPES = {"gpt_oss": "transformers makes its masks without the positions of the tokens"}
"""Model types without recurrent layers whose texts cannot share a row, each with the reason."""


def packing_error(config: dict[str, Any]) -> str:
    """Return the reason why texts cannot share a row in a model with this config.json, or "" if none is
    known.

    Layers with a state (Mamba, gated delta nets, convolutions) would pass it from one text to the next.
    """
    text_fields = text_config(config)
    if reason := UNPACKABLE_MODEL_TYPES.get(_model_type(text_fields)):
        return reason
    layers = text_fields.get("layer_types")
    kinds = {str(kind) for kind in layers} if isinstance(layers, list) else set()
    stateful_kinds = sorted(kinds - ATTENTION_LAYER_TYPES)
    if not kinds and any(str(name).startswith("mamba_") for name in text_fields):
        stateful_kinds = ["mamba"]
    if not stateful_kinds:
        return ""
    return (
        f"its {stateful_kinds[0][:MAX_NAME_CHARACTERS]} layers "
        "would pass their state from one text to the next"
    )


def architecture_note(config: dict[str, Any]) -> str:
    """Return a description of the architecture for a list of policies."""
    kinds = {str(fields.get("model_type")) for fields in (config, text_config(config))}
    kind = _model_type(config) or "model"
    return kind if kinds & TESTED_MODEL_TYPES else f"{kind} (an architecture that is not tested here)"


def _model_type(config: dict[str, Any]) -> str:
    return str(config.get("model_type", ""))[:MAX_NAME_CHARACTERS]
