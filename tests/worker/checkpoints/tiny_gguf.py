"""Write a tiny Llama as a GGUF file in the way llama.cpp does, and return the model."""

from pathlib import Path

import gguf
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGED_TOKEN = "12"
TOKENS = [*SPECIAL_TOKENS, *sorted(ByteLevel.alphabet()), MERGED_TOKEN]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GGUF_NAME_BY_WEIGHT = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "model.layers": "blk",
}  # fmt: skip


def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    template: str = TEMPLATE,
    layers: int = 2,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> LlamaForCausalLM:
    """Write the file, and return the model that it contains."""
    model = tiny_llama()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_license("apache-2.0")
    writer.add_block_count(layers)
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if template:
        writer.add_chat_template(template)
    for name, weight in model.state_dict().items():
        if name != "lm_head.weight":
            _add(writer, name, weight, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _add(writer: gguf.GGUFWriter, name: str, weight: torch.Tensor, kind: gguf.GGMLQuantizationType) -> None:
    heads = 4 if "q_proj" in name else 2 if "k_proj" in name else 0
    if heads:  # llama.cpp permutes the halves of a head into pairs
        weight = weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    for weight_name, gguf_name in GGUF_NAME_BY_WEIGHT.items():
        name = name.replace(weight_name, gguf_name)
    values = weight.contiguous().numpy()
    if values.ndim == 2 and kind != gguf.GGMLQuantizationType.F32:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, values)
