"""Upper bounds on what a run generates and stores, counted from its config."""

from backend.config.evaluation import Suite
from backend.config.run import RunConfig

BYTES_PER_TOKEN = 16
"""Measured: text, token strings and per-token arrays of one generated token, compressed."""


BYTES_PER_ALTERNATIVE = 6
"""Bytes of an alternative token's id and log-probability, before compression."""


def max_tokens(config: RunConfig, *, after: int = 0) -> int:
    """Tokens of the whole run if every completion is as long as it may be and every refill is used.

    Of a fork those of the steps behind `after`.
    """
    sampling, evaluation, updates = config.sampling, config.evaluation, config.updates
    batches = config.filters.refill.batch_limit
    batches *= updates.epochs if updates.resample_each_epoch else 1
    train = batches * sampling.prompts_per_step * sampling.group_size * (config.steps - after)
    every = evaluation.every
    evaluations = 2 + config.steps // every - after // every if every else 0
    completions = train + evaluations * evaluation.prompts * evaluation.k
    return completions * sampling.max_new_tokens + sum(
        _max_suite_tokens(suite, config, after) for suite in evaluation.suites
    )


def _max_suite_tokens(suite: Suite, config: RunConfig, after: int) -> int:
    cap = suite.max_new_tokens or config.sampling.max_new_tokens
    return suite.evaluations(config.steps, after=after) * suite.prompts * suite.n * cap


def max_bytes(config: RunConfig, *, after: int = 0) -> int:
    """Bytes that storing every rollout of the run, or of a fork behind `after`, takes at most."""
    bytes_per_token = BYTES_PER_TOKEN + BYTES_PER_ALTERNATIVE * config.recording.alternatives
    return max_tokens(config, after=after) * bytes_per_token
