"""The config and the weight names of the text model in a multimodal model.

Such models are published as `...ForConditionalGeneration`. Only the text model is trained. The other parts
are loaded if transformers loads the whole model, and stay frozen.
"""

from collections.abc import Mapping
from typing import Any

DEFAULTS_BY_MODEL_TYPE: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
}
"""Default values of transformers for the fields that published configs of a model type leave out."""

NON_TEXT_NAME_PARTS = frozenset(
    {
        "audio_tower",
        "embed_audio",
        "embed_vision",
        "mtp",
        "multi_modal_projector",
        "vision_model",
        "vision_tower",
        "visual",
    }
)
"""Parts of the names of weights that do not belong to the text model."""

UNLOADED_NAME_PARTS = frozenset({"mtp"})
"""Name parts in NON_TEXT_NAME_PARTS of layers that predict several tokens, which no model of transformers
loads.
"""

FULLY_LOADED_MODEL_TYPES = frozenset({"gemma3", "gemma3n", "gemma4", "gemma4_unified"})
"""Model types of which AutoModelForCausalLM loads all parts instead of only the text model."""


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a config.json that describe its text model."""
    text = config.get("text_config")
    fields = {**config, **text} if isinstance(text, dict) else dict(config)
    kind = fields.get("model_type")
    return {**DEFAULTS_BY_MODEL_TYPE.get(kind, {}), **fields} if isinstance(kind, str) else fields


def is_outside_text_model(name: str) -> bool:
    """Return whether a weight or module does not belong to the text model, according to its name."""
    return not NON_TEXT_NAME_PARTS.isdisjoint(name.split("."))


def is_loaded(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether transformers loads a stored weight for a causal language model with this config.json."""
    if not is_outside_text_model(name):
        return True
    return config.get("model_type") in FULLY_LOADED_MODEL_TYPES and UNLOADED_NAME_PARTS.isdisjoint(
        name.split(".")
    )
