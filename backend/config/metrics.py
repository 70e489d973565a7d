"""The catalog of all metrics that a run records, with their unit, meaning and healthy band.

A trainer must not log a name outside of this catalog, which a test checks. Names of families contain
`<name>`.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Literal

from backend.config.base import Frozen

Better = Literal["up", "down", ""]


class Metric(Frozen):
    """The description of a metric or of a family of metrics."""

    name: str
    """Canonical name, e.g. `reward/mean`. The first segment is the section."""

    unit: str
    """Unit, e.g. tokens, seconds, nats, fraction."""

    meaning: str
    """Meaning of the metric, in one sentence."""

    low: float | None = None
    """Lower end of the healthy band."""

    high: float | None = None
    """Upper end of the healthy band."""

    better: Better = ""
    """Direction of improvement, or "" if there is none."""

    aliases: tuple[str, ...] = ()
    """Names of the same quantity in TRL, verl and the book's scripts."""

    scale: tuple[str, ...] = ()
    """Config fields that determine the scale. Runs that differ in these
    fields cannot be compared by the metric.
    """

    @property
    def section(self) -> str:
        """First segment of the name."""
        return self.name.partition("/")[0]


def _metric(
    name: str,
    unit: str,
    meaning: str,
    band: tuple[float | None, float | None] = (None, None),
    better: Better = "",
    *,
    aliases: str = "",
    scale: tuple[str, ...] = (),
) -> Metric:
    low, high = band
    return Metric(
        name=name,
        unit=unit,
        meaning=meaning,
        low=low,
        high=high,
        better=better,
        aliases=tuple(aliases.split()),
        scale=scale,
    )


_TERMS = ("rewards",)
_REWARD = ("rewards", "length.penalty", "length.truncated.factor")
_ADVANTAGE = (*_REWARD, "objective.advantage")

# fmt: off
_CATALOG = (
    _metric("eval/accuracy", "fraction", "Share of held-out prompts solved; training never sees them.", better="up", aliases="eval_success_rate eval/success_rate val/accuracy_reward eval/accuracy_reward val/success_rate eval_acc val-core/acc/mean@1 eval_accuracy eval/acc val_accuracy val_acc test_accuracy test_acc validation_accuracy validation/accuracy val/accuracy val/acc eval/all/avg_score val_correct/all/mean eval_mean_accuracy heldout_accuracy held_out_accuracy test/env/all/correct"),
    _metric("eval/length_mean", "tokens", "Mean length of held-out completions.", aliases="eval_completions/mean_length eval/completions/mean_length eval_completion_length eval/completion_length validation/avg_length"),
    _metric("eval/truncated_frac", "fraction", "Share of held-out completions truncated at the cap.", (0, 0.3), "down", aliases="eval_completions/clipped_ratio eval/completions/clipped_ratio"),
    _metric("eval/effort_auc", "fraction", "Area under the held-out pass rate over the share of the thinking (0 to 100 %) before the answer is forced: high where little thinking is needed."),
    _metric("reward/mean", "reward", "Mean total reward of the step's completions, with length penalties, before KL.", better="up", aliases="reward/overall objective/verifiable_reward reward critic/rewards/mean reward/avg_raw_reward reward_avg reward/all/mean agg/all/reward/mean agg/effective/reward/mean rollout/raw_reward raw_reward task_reward ppo_actor/task_reward/avg mean_reward reward_mean avg_reward average_reward reward/avg train_reward rewards rewards/mean reward_total total_reward critic/score/all/mean env/all/reward/total", scale=_REWARD),
    _metric("reward/std", "reward", "Standard deviation of the total reward over all completions of the step.", aliases="reward_std_dev reward_std rewards/std std_reward ppo_actor/task_reward/std", scale=_REWARD),
    _metric("reward/raw_mean", "reward", "Mean weighted sum of the reward terms before length and required terms change it; logged if they may.", better="up", scale=_TERMS),
    _metric("reward/raw_std", "reward", "Standard deviation of the weighted sum of the reward terms before length and required terms change it.", scale=_TERMS),
    _metric("reward/accuracy", "fraction", "Share of the step's completions whose answer is correct.", better="up", aliases="train_success_rate accuracy acc train_accuracy train_acc accuracy_mean mean_accuracy env/all/correct correct_rate success_rate solve_rate"),
    _metric("reward/unearned_share", "fraction", "Share of the positive reward that completions with a wrong answer earned.", (0, 0.5), "down"),
    _metric("judge/requests", "scores", "Scores requested from the judge and the reward model, including cached ones and those of evaluations."),
    _metric("judge/cached_frac", "fraction", "Share of the requested scores that came from an equal earlier request of the run."),
    _metric("judge/failed_frac", "fraction", "Share of the requested scores that were still missing after all tries.", (0, 0.05), "down"),
    _metric("judge/prompt_tokens", "tokens", "Input tokens of the judge and the reward model, as their servers report them."),
    _metric("judge/completion_tokens", "tokens", "Output tokens of the judge, as its server reports them."),
    _metric("judge/unreported", "answers", "Answers of the judge and the reward model without a plausible token count; judge/cost omits them."),
    _metric("judge/cost", "money", "Price of the tokens of the judge and the reward model, at the worker's JUDGE_INPUT_PRICE, JUDGE_OUTPUT_PRICE and REWARD_MODEL_PRICE, in its CURRENCY."),
    _metric("tools/calls", "calls", "Tool calls per completion, unanswered calls included.", aliases="tools/call_frequency"),
    _metric("tools/used_frac", "fraction", "Share of the step's completions that called a tool."),
    _metric("tools/turns", "turns", "Mean number of turns per completion: each answered call is one, and so is the text after the last call."),
    _metric("tools/failed_frac", "fraction", "Share of the answered calls that failed, timed out or were ended by the sandbox.", better="down", aliases="tools/failure_frequency"),
    _metric("tools/unanswered_frac", "fraction", "Share of the step's completions with a call that was not answered because the limit of turns or tokens was reached.", better="down"),
    _metric("environment/done_frac", "fraction", "Share of the step's episodes that the environment ended; other episodes ended by themselves or at a budget."),
    _metric("environment/lost_frac", "fraction", "Share of the step's episodes in which the environment failed; they have no reward.", (0, 0.05), "down"),
    _metric("tools/observation_frac", "fraction", "Share of the step's tokens that tools wrote; they are not part of the loss."),
    _metric("advantage/mean", "advantage", "Mean advantage over completions (over tokens with a critic); with a group baseline, a value away from 0 is a bug.", (-0.05, 0.05), aliases="adv_avg critic/advantages/mean val/advantages_mean advantages_mean mean_advantage ppo_actor/advantages/avg", scale=_ADVANTAGE),
    _metric("advantage/std", "advantage", "Sample standard deviation of the advantages; near 1 they are well scaled, near 0 they carry no signal.", (0.3, 1.5), aliases="adv_std advantages_std std_advantage", scale=_ADVANTAGE),
    _metric("advantage/nonzero_frac", "fraction", "Share of the completions that train whose advantage is not 0 (DCPO's response utilisation).", (0.2, 1)),
    _metric("advantage/distinct_per_group", "values", "Mean number of distinct advantages in a group that trains. Ties in the summed reward merge advantages; GDPO keeps them distinct."),
    _metric("groups/zero_variance_frac", "fraction", "Share of groups with several completions whose rewards are all equal before length changes them. Without a critic, such groups teach nothing.", (0, 0.8), aliases="frac_reward_zero_std frac_zero_std zero_std_frac"),
    _metric("groups/all_right_frac", "fraction", "Share of groups in which every completion is correct."),
    _metric("groups/all_wrong_frac", "fraction", "Share of groups in which every completion is wrong."),
    _metric("groups/kept_frac", "fraction", "Share of sampled groups that the filter found informative.", (0.2, 1)),
    _metric("groups/expected_useful", "fraction", "Expected share of new groups of the step's prompts that have both right and wrong completions: 1 - p^G - (1-p)^G, with p under Jeffreys' prior.", (0.2, 1)),
    _metric("sampling/generated_batches", "batches", "Generation batches that the step needed; above 1 with dynamic sampling or if epochs sample again."),
    _metric("sampling/staleness", "versions", "Mean age, in steps, of the weights that sampled the step's completions.", aliases="rollout/sample_staleness"),
    _metric("sampling/staleness_max", "versions", "Age, in steps, of the oldest weights that sampled a completion of the step, if rollouts run ahead of the updates."),
    _metric("sampling/engine_retries", "requests", "Retried requests to the servers that sample."),
    _metric("sampling/engine_restarts", "starts", "Restarts of the sampling server beside the trainer after it died."),
    _metric("sampling/carried_frac", "fraction", "Share of the groups that train that were sampled in the previous step (active refill)."),
    _metric("sampling/kept_mass", "probability", "Mean probability, under the learner, of the token ids that top-p or top-k kept."),
    _metric("length/mean", "tokens", "Mean completion length.", aliases="mean_response_len val/sequence_lengths completions/mean_length response_length/mean generate/avg_num_tokens avg_response_len response_length completion_length completion_len completions_length rollout/response_lengths rollout/response_len/mean rollout/response_len response_lengths response_len agg/effective/num_output_tokens/mean mean_length length_mean avg_length average_length avg_len mean_len gen_len mean_gen_len gen_length mean_completion_length mean_response_length avg_response_length avg_completion_length mean_gen_tokens_per_sample mean_generation_length seq_len ppo_actor/seq_len/avg seq_len/all/mean seq_length length len resp_len resp_length avg_tokens mean_tokens tokens/response_length/mean env/all/ac_tokens_per_turn"),
    _metric("length/min", "tokens", "Shortest completion.", aliases="completions/min_length response_length/min tokens/response_length/min rollout/response_len/min"),
    _metric("length/max", "tokens", "Longest completion.", aliases="completions/max_length response_length/max tokens/response_length/max rollout/response_len/max"),
    _metric("length/mean_correct", "tokens", "Mean length of correct completions."),
    _metric("length/mean_incorrect", "tokens", "Mean length of incorrect completions. If only this length grows, the cause is the length bias of sequence means."),
    _metric("length/truncated_frac", "fraction", "Share of completions truncated at the cap.", (0, 0.3), "down", aliases="completions/clipped_ratio response_length/clip_ratio agg/all/is_truncated/mean agg/effective/is_truncated/mean rollout/truncated_ratio rollout/truncated truncated_ratio truncated_frac truncation_ratio clipped_ratio no_eos_ratios no_eos_ratio ppo_actor/no_eos_ratios/avg is_truncated/all/mean"),
    _metric("policy/entropy", "nats", "Mean entropy of the next-token distribution over the tokens that train; towards 0 the policy is deterministic.", (0.02, 2.0), aliases="entropy actor/entropy entropy_avg policy/entropy_avg entropy/all approx_entropy entropy/all/mean entropy_loss entropy/mean entropy_mean mean_entropy actor/entropy_loss actor/entropy/mean policy/policy_entropy ppo_actor/update/entropy/avg critic/entropy/mean optim/entropy"),
    _metric("policy/token_prob_mean", "probability", "Mean probability the policy gave to the tokens that train."),
    _metric("policy/distinct_frac", "fraction", "Number of distinct completions in a group over the group size G; 1 / G means that all have the same text.", (0.3, 1)),
    _metric("policy/covariance", "nats", "Covariance of a token's log-probability and its advantage; above 0 the update lowers the entropy."),
    _metric("policy/lift_right", "nats", "Change of the log-probability per token that the step causes in the right completions of one group, every 10 steps; healthy above 0."),
    _metric("policy/lift_wrong", "nats", "Change of the log-probability per token that the step causes in the wrong completions of one group, every 10 steps."),
    _metric("policy/reflection_frac", "fraction", "Share of completions with words such as wait, check, recheck."),
    _metric("text/repetition", "fraction", "Share of 8-character pieces at a completion's end that repeat other pieces; near 1 for loops.", (0, 0.3), "down"),
    _metric("text/compression", "fraction", "Compressed size over raw size of the last 2,048 characters of each completion; near 0 for loops."),
    _metric("text/unusual_script_frac", "fraction", "Share of the completions' letters outside the prompt's script.", (0, 0.1), "down"),
    _metric("text/structure_ok", "fraction", "Share of completions with a complete boxed answer and at most one pair of thinking tags.", better="up"),
    _metric("text/structure_answerless", "fraction", "Share of completions without a complete boxed answer, or truncated before the thinking tags close."),
    _metric("text/structure_polluted", "fraction", "Share of completions with more than one pair of thinking tags.", (0, 0.1), "down"),
    _metric("text/structure_broken", "fraction", "Share of completions whose thinking tags are unpaired at the end, or close before they open.", (0, 0.1), "down"),
    _metric("ratio/mean", "ratio", "Mean ratio of a token's probability under the policy to that under the old policy; 1 on the first update of a step.", (0.9, 1.1), aliases="policy_ratio val/ratio probs_ratio ppo_actor/update/importance_weight/avg"),
    _metric("ratio/max", "ratio", "Largest ratio of a token's probability under the policy to that under the old policy.", (None, 10), aliases="probs_ratio_max"),
    _metric("ratio/min", "ratio", "Smallest ratio of a token's probability under the policy to that under the old policy.", aliases="probs_ratio_min"),
    _metric("clip/frac", "fraction", "Share of tokens whose update is clipped on either side, in logs that do not tell the sides apart.", (0, 0.3), aliases="actor/pg_clipfrac clip_frac clip_fraction clipfrac clip_ratio clip_ratio/region_mean pg_clipfrac policy/clipfrac_avg ppo_clip_ratio policy/ppo_clip_ratio ppo_actor/update/clip_ratio/avg"),
    _metric("clip/low_frac", "fraction", "Share of tokens (or sequences) clipped from below.", (0, 0.3), aliases="clip_ratio/low_mean"),
    _metric("clip/high_frac", "fraction", "Share of tokens (or sequences) clipped from above.", (0, 0.3), aliases="clip_ratio/high_mean"),
    _metric("clip/dual_frac", "fraction", "Share of tokens capped by the dual clip.", (0, 0.1), aliases="actor/pg_clipfrac_lower"),
    _metric("gate/mean", "weight", "Mean gradient weight of the soft gate (SAPO)."),
    _metric("kl/k1", "nats", "Mean of log policy - log reference per token; with kl.to = old, the old policy is the reference."),
    _metric("kl/k2", "nats", "Mean of half the squared log-ratio to the reference per token."),
    _metric("kl/k3", "nats", "Mean k3 estimate of the distance from the reference per token.", (0, 1), aliases="kl actor/kl_loss objective/kl3_avg kl3 train/kl_loss kl_mean mean_kl avg_kl kl_avg kl_ref ref_kl kl_div kl_divergence kl_penalty_mean policy/policy_kl objective/kl"),
    _metric("kl/old", "nats", "Distance of the policy from the policy that sampled, per token, in logs of other trainers.", aliases="actor/ppo_kl ppo_kl approx_kl approxkl policy/approxkl_avg"),
    _metric("kl/coef", "coefficient", "Weight of the KL term, mean over completions; a controller or the domains may set it.", aliases="actor/kl_coef"),
    _metric("mismatch/prob_diff_mean", "probability", "Mean difference between a token's probability in the sampler and in the learner.", (0, 0.02), aliases="training/rollout_probs_diff_mean sampler_learner_prob_diff"),
    _metric("mismatch/prob_diff_max", "probability", "Largest difference between a token's probability in the sampler and in the learner.", aliases="training/rollout_probs_diff_max"),
    _metric("mismatch/k1", "nats", "Mean of log sampler - log learner per token: an estimate of the KL divergence between them that may be negative.", aliases="rollout_corr/kl"),
    _metric("mismatch/k3", "nats", "k3 distance between sampler and learner per token.", (0, 0.05), aliases="rollout_corr/k3_kl mismatch_kl/all mismatch_kl/all/mean mismatch_kl gen_kl_error generation_kl_error"),
    _metric("mismatch/rho_mean", "ratio", "Mean ratio of a token's probability in the learner to that in the sampler.", (0.9, 1.1), aliases="rollout_corr/rollout_is_mean sampling/importance_sampling_ratio/mean"),
    _metric("mismatch/rho_max", "ratio", "Largest ratio of a token's probability in the learner to that in the sampler.", (None, 10), aliases="rollout_corr/rollout_is_max sampling/importance_sampling_ratio/max"),
    _metric("mismatch/masked_frac", "fraction", "Share of tokens whose correction weight was truncated or masked."),
    _metric("mismatch/ess", "fraction", "Effective sample size of the correction weights.", (0.5, 1), aliases="rollout_corr/rollout_is_eff_sample_size"),
    _metric("mismatch/chi2", "1", "Chi-square of learner against sampler.", aliases="rollout_corr/chi2_token"),
    _metric("critic/loss", "1", "Half the critic's mean squared error, in units of reward squared.", better="down", aliases="critic/vf_loss value_loss critic_loss cri_loss", scale=_REWARD),
    _metric("critic/explained_variance", "fraction", "Share of the returns' variance that the critic predicts at the step's start. 0 is as good as their mean; below 0 is worse.", (0, 1), "up", aliases="critic/vf_explained_var"),
    _metric("critic/clip_frac", "fraction", "Share of tokens whose value estimate moved beyond the value clip.", (0, 0.3), aliases="critic/vf_clipfrac val/clipfrac_avg"),
    _metric("critic/lambda_mean", "1", "Mean lambda of the advantages, if it depends on the length."),
    _metric("lopti/low_frac", "fraction", "Share of rare tokens, which Lopti trains in a separate update.", (0.01, 0.99)),
    _metric("lopti/high_shift", "nats", "Mean change per token that the update of the rare tokens causes in the log-probabilities of the other tokens."),
    _metric("opsm/masked_frac", "fraction", "Share of completions (or tokens) left out because the policy has moved away from them.", (0, 0.3), aliases="opsm_clipfrac"),
    _metric("router/shift_mean", "ratio", "Mean gamma, the router's shift ratio per token: 1 if the router keeps the experts it chose for a token.", (0.9, 1)),
    _metric("router/shift_min", "ratio", "Smallest gamma, the router's shift ratio per token, before the floor."),
    _metric("router/expert_change_frac", "fraction", "Share of the experts that processed a token (in the sampler, or at the step's start) that the router would no longer choose.", (0, 0.3)),
    _metric("router/floor_frac", "fraction", "Share of tokens whose gamma is raised to the floor.", (0, 0.3)),
    _metric("loss/total", "1", "The minimised loss. On the first update of a step it is about 0 by construction: loss is not progress.", aliases="loss loss/total_avg training_loss train_loss loss/avg loss/mean total_loss policy/final_loss"),
    _metric("loss/policy", "1", "The policy term of the loss.", aliases="policy_loss actor/pg_loss loss/policy_avg pg_loss actor_loss ppo_actor/update/actor_loss/avg policy/policy_loss"),
    _metric("loss/kl", "1", "The KL term of the loss, with its coefficient.", aliases="kl_loss loss/kl_avg"),
    _metric("loss/value", "1", "The critic's loss with its coefficient. The critic has separate weights, so loss/total does not include it.", aliases="loss/value_avg val/loss"),
    _metric("loss/unstored", "1", "The part of loss/total from groups whose rollouts are not stored. Together with the contributions of the stored tokens it adds up to loss/total."),
    _metric("loss/entropy", "1", "The entropy term of the loss, with its coefficient."),
    _metric("entropy/coef", "coefficient", "Weight of the entropy bonus; if adaptive, it is 0 while the entropy is above its target."),
    _metric("loss/nll", "1", "The imitation term of the loss: NLL of correct completions, with its coefficient."),
    _metric("trust/kl_after", "nats", "Mean KL per token between the policy before and after a natural-gradient step; never above updates.trust.delta."),
    _metric("trust/backtrack", "lengths", "How often the line search shortened the step.", (0, 5)),
    _metric("trust/improvement", "1", "How much the step raised the surrogate.", better="up"),
    _metric("trust/line_search_failed", "fraction", "1 if the line search accepted no step length, so that the policy stayed unchanged.", (0, 0.5), "down"),
    _metric("optim/grad_norm", "1", "L2 norm of the gradient before clipping, mean over the step's updates.", aliases="grad_norm actor/grad_norm gradient_norm train_grad_norm actor_grad_norm policy/raw_grad_norm policy/grad_norm ppo_actor/update/grad_norm optim/grad-norm"),
    _metric("optim/lr", "1", "Learning rate.", aliases="learning_rate actor/lr act_lr actor_lr lr lr-pg_0 policy/policy_lr ppo_actor/update/lr"),
    _metric("optim/updates", "updates", "Optimizer steps taken in this training step."),
    _metric("optim/skipped", "updates", "Updates skipped because the loss or the gradient was not finite.", (0, 0), "down"),
    _metric("optim/update_norm", "1", "L2 norm of the step's change of the weights, estimated from at most 16,384 weights; 0 means that nothing trains."),
    _metric("optim/kl_share", "fraction", "The KL term's share of the gradient with respect to the tokens' log-probabilities.", (0, 0.5)),
    _metric("tokens/generated", "tokens", "Tokens generated in this step, discarded groups included."),
    _metric("tokens/total", "tokens", "Tokens generated since the run began.", aliases="num_tokens perf/total_num_tokens"),
    _metric("throughput/tokens_per_second", "tokens/s", "Generated tokens over the time of the whole step.", aliases="tokens_per_sec perf/throughput throughput"),
    _metric("throughput/model_flops", "FLOP/s", "Floating-point operations that the model needs for the step's sampling and learning, over the time of the whole step."),
    _metric("throughput/mfu", "fraction", "Model FLOPs utilisation: throughput/model_flops over the peak of the GPU at the policy's precision.", aliases="perf/mfu/actor perf/mfu", better="up"),
    _metric("time/wall_seconds", "seconds", "Training time since the run first started, pauses left out.", aliases="_runtime"),
    _metric("time/step_seconds", "seconds", "Time of sampling, scoring and learning in the step, without evaluation and checkpoints.", aliases="step_time perf/time_per_step timing_s/step time/step total_step_time"),
    _metric("time/sample_seconds", "seconds", "Time spent generating completions.", aliases="timing_s/gen timing/generation"),
    _metric("time/sync_seconds", "seconds", "Time spent sending new weights to the servers that sample."),
    _metric("time/engine_sleep_seconds", "seconds", "Time spent putting the sampling server beside the trainer to sleep and waking it."),
    _metric("time/wait_seconds", "seconds", "Time spent waiting for rollouts that run ahead of the updates."),
    _metric("time/score_seconds", "seconds", "Time spent computing rewards.", aliases="timing_s/reward"),
    _metric("time/update_seconds", "seconds", "Time of the log-probabilities, the loss, the backward pass and the optimizer.", aliases="timing_s/update_actor time/training time/forward_backward"),
    _metric("time/reference_seconds", "seconds", "Time spent computing the reference's log-probabilities.", aliases="timing_s/ref"),
    _metric("time/critic_seconds", "seconds", "Time spent updating the critic.", aliases="timing_s/update_critic"),
    _metric("time/eval_seconds", "seconds", "Time of the held-out evaluation.", aliases="timing_s/testing"),
    _metric("time/checkpoint_seconds", "seconds", "Time spent writing the newest checkpoint; recorded at the step after it.", aliases="timing_s/save_checkpoint time/save_ckpt"),
    _metric("machine/cpu_frac", "fraction", "Busy share of all processors of the machine since the last reading; read at most once a second."),
    _metric("machine/memory_bytes", "bytes", "Memory in use on the machine, by all processes."),
    _metric("machine/disk_free_bytes", "bytes", "Free space on the disk of the state directory."),
    _metric("machine/disk_read_rate", "bytes/s", "Bytes per second read from all disks of the machine."),
    _metric("machine/disk_write_rate", "bytes/s", "Bytes per second written to all disks of the machine."),
    _metric("machine/network_receive_rate", "bytes/s", "Bytes per second received by the machine, loopback excluded."),
    _metric("machine/network_send_rate", "bytes/s", "Bytes per second sent by the machine, loopback excluded."),
    _metric("machine/gpu_frac", "fraction", "Share of the time in which the GPU ran a kernel (what nvidia-smi calls utilisation)."),
    _metric("machine/gpu_memory_bytes", "bytes", "Memory in use on the GPU, by all processes."),
    _metric("machine/gpu_celsius", "°C", "Highest temperature of the GPU since the last reading.", (None, 87)),
    _metric("machine/gpu_watts", "watts", "Mean power of the GPU."),
    _metric("memory/peak_bytes", "bytes", "Peak memory of the trainer process (GPU memory on a GPU)."),
)

FAMILIES = (
    _metric("reward/<term>/mean", "reward", "Mean of one reward term, before its weight.", aliases="rewards/<function>/mean rewards/<function>", scale=_TERMS),
    _metric("reward/<term>/std", "reward", "Standard deviation of one reward term.", aliases="rewards/<function>/std", scale=_TERMS),
    _metric("signal/<part>/completions", "completions", "Completions of the step in one part of its signal budget; the seven parts add up to all completions."),
    _metric("signal/<part>/tokens", "tokens", "Tokens of the step's completions in one part of its signal budget."),
    _metric("time/signal/<part>", "seconds", "Part of time/step_seconds that went into one part of the signal budget."),
    _metric("time/tool_seconds", "seconds", "Mean time until a tool had answered.", better="down"),
    _metric("kl/<domain>", "nats", "Mean k3 distance per token within one domain of a mixture."),
    _metric("eval/accuracy/<domain>", "fraction", "Held-out accuracy within one domain of a mixture.", better="up", aliases="val-core/<data>/acc/mean@1"),
    _metric("eval/<suite>/<metric>_low", "fraction", "Lower end of the 95 % interval of a suite's accuracy, pass@k or maj@k: a score interval over its prompts."),
    _metric("eval/<suite>/<metric>_high", "fraction", "Upper end of the 95 % interval of a suite's accuracy, pass@k or maj@k: a score interval over its prompts."),
    _metric("eval/<suite>/accuracy", "fraction", "Share of a suite's completions that are right, mean over its prompts: avg@n, the estimate of pass@1.", better="up", aliases="val-core/<data>/acc/mean@<n>"),
    _metric("eval/<suite>/pass_at_<k>", "fraction", "Probability that at least one of k completions is right, by the unbiased estimator.", better="up", aliases="val-core/<data>/acc/best@<k>/mean"),
    _metric("eval/<suite>/maj_at_<k>", "fraction", "Probability that the most frequent answer of k completions is right; tied answers share it.", better="up", aliases="val-core/<data>/acc/maj@<k>/mean"),
    _metric("eval/<suite>/length_mean", "tokens", "Mean length of a suite's completions."),
    _metric("eval/<suite>/truncated_frac", "fraction", "Share of a suite's completions truncated at its cap.", (0, 0.3), "down"),
    _metric("eval/<suite>/prompts", "prompts", "Prompts of a suite that could be graded."),
    _metric("eval/<suite>/n", "completions", "Completions per prompt of a suite."),
    _metric("eval/pass_at_<k>", "fraction", "Probability that at least one of k completions is correct.", better="up"),
    _metric("eval/avg_at_<k>", "fraction", "Mean correctness of k completions.", better="up"),
)
# fmt: on
"""Families of metrics, whose names contain a reward term, a domain, a suite or a number."""

MACHINE_PREFIXES = ("machine/", "memory/", "throughput/", "time/")
"""Prefixes of the metrics that depend on the machine and are therefore not reproducible."""

METRICS: dict[str, Metric] = {metric.name: metric for metric in _CATALOG}

ALIASES: dict[str, str] = {alias: metric.name for metric in _CATALOG for alias in metric.aliases}
"""Canonical names of metrics, by the names that other trainers use."""

_FAMILY_ALIASES = [(alias, family.name) for family in FAMILIES for alias in family.aliases]

LOGGER_PREFIXES = ("train/", "metrics/", "metrics/train/")
"""Prefixes that some loggers, such as Hugging Face callbacks, add to every training metric."""

MAX_CACHED_NAMES = 4_096
"""Maximum number of names whose catalog entry is cached, because the rows of a log repeat the same names."""


@lru_cache(MAX_CACHED_NAMES)
def canonical_name(name: str) -> str | None:
    """Return the canonical name of the metric that another trainer calls `name`, or None if it is unknown."""
    compact = _AROUND_SLASH.sub("/", name.strip())
    bare_name = plain_name(name)
    for spelling in dict.fromkeys((name, compact, bare_name)):
        for alias_name in (spelling, *map(spelling.removeprefix, LOGGER_PREFIXES)):
            if alias_name != name and alias_name in METRICS:
                return alias_name
            if alias_name in ALIASES:
                return ALIASES[alias_name]
            for alias, family in _FAMILY_ALIASES:
                if match := _pattern(alias).fullmatch(alias_name):
                    return _fill_family(family, match.groups())
    return None


def plain_name(name: str) -> str:
    """Return a name in lower case with underscores, such as training_loss for `Training Loss`.

    Spaces around slashes, units in brackets as in `Accuracy (%)`, asterisks of bold text and dots as in
    `Grad. Norm` are removed.
    """
    spelling = _UNIT.sub("", name.strip().strip("*`").strip())
    return _SPACES.sub("_", _AROUND_SLASH.sub("/", spelling)).lower()


_AROUND_SLASH = re.compile(r"\s*/\s*")
_SPACES = re.compile(r"\.?\s+")
_UNIT = re.compile(r"(?<=\w)\s*\((?:%|[A-Za-z/]{1,12})\)$")


@lru_cache(MAX_CACHED_NAMES)
def find_metric(name: str) -> Metric | None:
    """Return the catalog entry of a metric or of its family, or None if the name is unknown."""
    return METRICS.get(name) or next(
        (family for family in FAMILIES if _pattern(family.name).fullmatch(name)), None
    )


def suite_metric(suite: str, name: str) -> str:
    """Return the name of a suite's metric, e.g. eval/math500/pass_at_4."""
    return f"eval/{suite}/{name}"


INTERVAL_METRICS = {f"eval/<suite>/{name}" for name in ("accuracy", "pass_at_<k>", "maj_at_<k>")}


def has_interval(name: str) -> bool:
    """Return whether a metric is recorded together with the ends of its 95 % interval."""
    metric = find_metric(name)
    return metric is not None and metric.name in INTERVAL_METRICS


def is_interval_end(name: str) -> bool:
    """Return whether a metric is the lower or upper end of another metric's interval."""
    metric = find_metric(name)
    return metric is not None and metric.name in interval_names("eval/<suite>/<metric>")


def interval_names(name: str) -> tuple[str, str]:
    """Return the names of the metrics for the lower and upper end of a metric's 95 % interval."""
    return f"{name}_low", f"{name}_high"


def _fill_family(family: str, fillings: Sequence[str]) -> str:
    """Return the name of a family with its placeholders replaced by the parts. Extra parts are ignored."""
    literals = _BRACKETS.split(family)
    return "".join(
        text + filling for text, filling in zip_longest(literals, fillings[: len(literals) - 1], fillvalue="")
    )


_BRACKETS = re.compile("<[^>]+>")


@cache
def _pattern(family: str) -> re.Pattern[str]:
    """Return the pattern of a family's names. Each placeholder matches any text without a slash."""
    return re.compile("([^/]+)".join(map(re.escape, _BRACKETS.split(family))))
