"""Upper bounds of the tokens that a run generates and the bytes that it stores, computed from its config."""

from backend.config.evaluation import Suite
from backend.config.run import RunConfig

BYTES_PER_TOKEN = 16
"""Compressed size of a generated token with its text, string and arrays, in bytes, as measured."""


BYTES_PER_ALTERNATIVE = 6
"""Uncompressed size of the id and log-probability of an alternative token, in bytes."""


def max_tokens(config: RunConfig, *, after_step: int = 0) -> int:
    """Return the maximum number of tokens that a run generates after the step `after_step`.

    Every completion is assumed to have its maximum length, and every refill to be used.
    """
    sampling, evaluation, updates = config.sampling, config.evaluation, config.updates
    batches = config.filters.refill.batch_limit
    batches *= updates.epochs if updates.resample_each_epoch else 1
    train = batches * sampling.prompts_per_step * sampling.group_size * (config.steps - after_step)
    interval = evaluation.every
    evaluations = 2 + config.steps // interval - after_step // interval if interval else 0
    completions = train + evaluations * evaluation.prompts * evaluation.k
    return completions * sampling.max_new_tokens + sum(
        _max_suite_tokens(suite, config, after_step) for suite in evaluation.suites
    )


def _max_suite_tokens(suite: Suite, config: RunConfig, after_step: int) -> int:
    cap = suite.max_new_tokens or config.sampling.max_new_tokens
    return suite.evaluations(config.steps, after_step=after_step) * suite.prompts * suite.n * cap


def max_bytes(config: RunConfig, *, after_step: int = 0) -> int:
    """Return the maximum size of all rollouts of a run after the step `after_step`, in bytes."""
    bytes_per_token = BYTES_PER_TOKEN + BYTES_PER_ALTERNATIVE * config.recording.alternatives
    return max_tokens(config, after_step=after_step) * bytes_per_token
