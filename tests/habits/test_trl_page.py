"""The page for users of TRL: complete, and true about the fields of a run."""

import re
from pathlib import Path

from backend.config.presets import PRESETS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "trl.md").read_text(encoding="utf-8")
FIELDS = set(
    re.findall(r"^\| `([a-z_.0-9]+)` \|", (DOCS / "methods.md").read_text(encoding="utf-8"), re.MULTILINE)
)

OF_TRL = """
learning_rate model_init_kwargs trust_remote_code router_aux_loss_coef disable_dropout
cast_lm_head_to_fp32 remove_unused_columns num_generations num_generations_eval max_completion_length
ds3_gather_for_generation shuffle_dataset pad_to_multiple_of generation_batch_size steps_per_generation
temperature top_p top_k min_p generation_kwargs chat_template_kwargs repetition_penalty
cache_implementation use_vllm vllm_mode vllm_model_impl vllm_enable_sleep_mode
vllm_structured_outputs_regex vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout
vllm_group_port vllm_gpu_memory_utilization vllm_max_model_length vllm_tensor_parallel_size beta
num_iterations epsilon delta epsilon_high sapo_temperature_neg sapo_temperature_pos vespo_k_pos
vespo_lambda_pos vespo_k_neg vespo_lambda_neg importance_sampling_level reward_weights
multi_objective_aggregation scale_rewards loss_type mask_truncated_completions sync_ref_model
ref_model_mixup_alpha ref_model_sync_steps top_entropy_quantile entropy_coef use_adaptive_entropy
entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target max_tool_calling_iterations
vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_importance_sampling_clip_max
vllm_importance_sampling_clip_min off_policy_mask_threshold use_bias_correction_kl log_completions
log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo
use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged
vllm_importance_sampling_cap
"""
"""The fields that GRPOConfig of TRL 1.16.0 declares itself."""


def rows():
    return [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_field_of_trl_is_answered_once():
    named = [name for row in rows() for name in re.findall(r"`([a-z_0-9]+)`", row[0])]
    assert sorted(set(OF_TRL.split()) - set(named)) == []
    assert len(named) == len(set(named))
    assert {row[1] for row in rows()} == {"have", "differs", "no"}


def test_every_field_of_ours_exists():
    ours = {name for row in rows() for name in re.findall(r"`([a-z_]+\.[a-z_.]+)`", row[2])}
    assert ours - FIELDS == set()
    assert "luspo" in PRESETS
