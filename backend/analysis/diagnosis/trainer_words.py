"""Descriptions of remedies with the settings of other trainers: TRL (1.16) and verl (0.9)."""

TRAINER_WORDS: dict[str, dict[str, str]] = {
    "trl": {
        "non_finite": "Continue from the checkpoint before it with a third of `learning_rate`.",
        "mismatch": "Leave `vllm_importance_sampling_correction` on, and sample in training's precision.",
        "staleness": "Set `num_iterations` and `steps_per_generation` so that each batch serves one update.",
        "update_size": "Set `learning_rate` to a third, and `max_grad_norm` to at most 1.",
        "kl_pull": "Lower `beta` to at most 0.04.",
        "kl_runaway": "Double `beta`; where it is 0, set it to 0.01.",
        "entropy_explosion": "Set `learning_rate` to a third.",
        "entropy_collapse": "Set `epsilon_high` to 0.28 beside an `epsilon` of 0.2.",
        "repetition": "Set `mask_truncated_completions` and a `beta` of 0.01.",
        "length_blowup": "Raise `max_completion_length`, or set `mask_truncated_completions`.",
        "length_collapse": "Take out rewards for brevity, or set `loss_type` to `dr_grpo`.",
        "reward_hacking": "Lower the weight of terms that wrong answers earn in `reward_weights`.",
        "overfitting": "Use more problems, set a `beta` of 0.01, or stop at the best evaluation.",
        "vanishing_signal": "Raise `num_generations`, and use problems of medium difficulty.",
        "dead_run": "Check `learning_rate`, `lr_scheduler_type`, and which weights train.",
    },
    "verl": {
        "non_finite": "Continue from the checkpoint before it with a third of `actor.optim.lr`.",
        "mismatch": "Set `algorithm.rollout_correction.rollout_is` to `token` with a threshold of 2.",
        "staleness": "Set `actor.ppo_epochs` to 1, `actor.ppo_mini_batch_size` to `data.train_batch_size`.",
        "update_size": "Set `actor.optim.lr` to a third, and `actor.grad_clip` to at most 1.",
        "kl_pull": "Set `actor.kl_loss_type` to `low_var_kl`, and `actor.kl_loss_coef` to at most 0.04.",
        "kl_runaway": "Set `actor.use_kl_loss`, and double `actor.kl_loss_coef`.",
        "entropy_explosion": "Set `actor.entropy_coeff` to 0; where it is 0, `actor.optim.lr` to a third.",
        "entropy_collapse": "Set `actor.clip_ratio_high` to 0.28 beside a `clip_ratio_low` of 0.2.",
        "length_blowup": "Raise `data.max_response_length`, or set `reward_model.overlong_buffer.enable`.",
        "length_collapse": "Take out rewards for brevity, or set `actor.loss_agg_mode` to `token-mean`.",
        "overfitting": "Use more problems, set `actor.use_kl_loss`, or stop at the best validation.",
        "vanishing_signal": "Set `algorithm.filter_groups.enable`, or raise `rollout.n`.",
        "critic": "Raise `trainer.critic_warmup`.",
        "dead_run": "Check `actor.optim.lr` and its warm-up.",
    },
}
"""Remedies by origin of the run and by cause. verl's `actor` and `rollout` are in `actor_rollout_ref`."""
