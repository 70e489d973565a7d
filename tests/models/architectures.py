"""Reduced models of real architectures, with random weights, few layers and a byte tokenizer's vocabulary."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from worker.policy.model import BUILT_IN

HIDDEN_SIZE = 32

TEMPLATE = """{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""

BASE = {
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
NARROW = BASE | {"head_dim": 8}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
EXPERT = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

QWEN_IMAGES = {"depth": 2, "hidden_size": HIDDEN_SIZE, "intermediate_size": 48, "num_heads": 4,
    "out_hidden_size": HIDDEN_SIZE, "patch_size": 4, "num_position_embeddings": 16}  # fmt: skip
GEMMA_IMAGES = {"hidden_size": HIDDEN_SIZE, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": 32, "patch_size": 8}  # fmt: skip

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("qwen3", NARROW),
    "qwen2.5": ("qwen2", BASE),
    "llama3": ("llama", BASE | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "gemma3": ("gemma3_text", NARROW | {"sliding_window": 16, "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention"]}),
    "mistral": ("mistral", NARROW | {"sliding_window": 16}),
    "smollm3": ("smollm3", BASE | {"no_rope_layers": [1, 0]}),
    "gpt_neox": ("gpt_neox", BASE | {"intermediate_size": 64}),
    "phi3": ("phi3", BASE),
    "olmo2": ("olmo2", BASE),
    "qwen3_moe": ("qwen3_moe", NARROW | EXPERT),
    "gpt_oss": ("gpt_oss", NARROW | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16}),
    "lfm2": ("lfm2", BASE | {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
    "qwen3_next": ("qwen3_next", NARROW | LINEAR | EXPERT | {"shared_expert_intermediate_size": 24}),
    "qwen3.5": ("qwen3_5_text", NARROW | LINEAR),
    "gemma3_images": ("gemma3", {"vision_config": GEMMA_IMAGES, "mm_tokens_per_image": 4,
        "text_config": NARROW | {"sliding_window": 16, "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"]}}),
    "qwen3.5_images": ("qwen3_5", {"vision_config": QWEN_IMAGES, "text_config": NARROW | LINEAR}),
    "gemma2": ("gemma2", NARROW | {"sliding_window": 16, "query_pre_attn_scalar": 8,
        "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}),
    "falcon_h1": ("falcon_h1", NARROW | {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16,
        "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_chunk_size": 16, "lm_head_multiplier": 0.02}),
    "granite4": ("granitemoehybrid", BASE | {"layer_types": ["mamba", "attention"], "mamba_n_heads": 4,
        "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_chunk_size": 16,
        "mamba_expand": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 24,
        "logits_scaling": 6.0}),
    "granite": ("granite", BASE | {"logits_scaling": 8.0}),
    "cohere2": ("cohere2", NARROW | {"logit_scale": 0.25, "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"]}),
    "olmo3": ("olmo3", BASE | {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}),
    "glm4": ("glm4", NARROW),
    "deepseek_v3": ("deepseek_v3", BASE | {"num_key_value_heads": 4, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 24,
        "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1}),
}  # fmt: skip
"""Model type and config by a common name."""


def build(
    name: str, *, vocabulary: int = 128, dtype: torch.dtype = torch.float32, wide: bool = False
) -> PreTrainedModel:
    """Return a model of the architecture in evaluation mode, with large enough weights for distinct
    logits.

    Its heads have 8 values, or 16 if `wide`, the minimum for a GPU's flex attention."""
    model = _scaled(name, AutoModelForCausalLM, vocabulary, **(_wide(ARCHITECTURES[name][1]) if wide else {}))
    return model.to(dtype).eval()


def _wide(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config that give attention heads 16 values."""
    if "text_config" in fields:
        return {"text_config": fields["text_config"] | _wide(fields["text_config"])}
    if "qk_rope_head_dim" in fields:
        return {"v_head_dim": 16}  # queries and keys have 8 values with a rotation and 8 without
    if "head_dim" in fields:
        return {"head_dim": 16}
    return {"num_attention_heads": 2, "num_key_value_heads": 1}


def _scaled(name: str, opener: Any, vocabulary: int, **changes: Any) -> Any:
    """Return a model of the architecture as one of transformers' auto classes makes it from a config."""
    kind, fields = ARCHITECTURES[name]
    fields = fields | changes
    text = {"vocab_size": vocabulary, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if "text_config" in fields:
        fields = fields | {"text_config": fields["text_config"] | text}
    config = AutoConfig.for_model(kind, **({} if "text_config" in fields else text), **fields)
    torch.manual_seed(0)
    model = opener.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(4.0)
    return model


def published(name: str, *, vocabulary: int, **changes: Any) -> Any:
    """Return a model of the architecture as published, including the part that reads images."""
    has_images = "vision_config" in ARCHITECTURES[name][1]
    opener = AutoModelForImageTextToText if has_images else AutoModelForCausalLM
    return _scaled(name, opener, vocabulary, **changes)


def tokenizer() -> PreTrainedTokenizerBase:
    """Return the character tokenizer of the built-in policies with a chat template."""
    loaded_tokenizer = AutoTokenizer.from_pretrained(BUILT_IN["tiny"])
    loaded_tokenizer.chat_template = TEMPLATE
    return loaded_tokenizer


def save(name: str, directory: Path, *, vocabulary: int, **changes: Any) -> None:
    """Write a model of the architecture with its tokenizer, as `from_pretrained` expects it.

    Every eighth token ends a text, so that random texts have different lengths. `changes` are fields of
    its config."""
    model = published(name, vocabulary=vocabulary, **changes)
    model.generation_config.eos_token_id = list(range(2, vocabulary, 8))
    model.save_pretrained(directory)
    tokenizer().save_pretrained(directory)
