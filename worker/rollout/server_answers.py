"""Parse and validate a sampling server's answers: tokens, log-probabilities and finish reasons."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from worker.policy.model import Policy
from worker.rollout.engine import SamplingLike, make_completion
from worker.rollout.engine_client import BadResponse
from worker.types import Completion

MAX_LOGPROB_NATS = 1e-3
"""Tolerance, in nats, by which a log-probability may exceed 0."""


MIN_LOGPROB_NATS = -1e6
"""Smallest valid log-probability, in nats. vLLM reports -inf as -9999, and float32 has to hold sums of it."""


class OtherWeights(Exception):
    """Raised if the server answered with another version of the weights than the one it was given."""


def read_completions(
    answer: Any,
    policy: Policy,
    prompt: Sequence[int],
    *,
    model: str,
    count: int,
    sampling: SamplingLike,
    version: int,
) -> list[Completion]:
    """Return the `count` completions in an answer of /v1/completions, or raise BadAnswer or OtherWeights."""
    if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
        raise BadResponse("it has no choices")
    if answer.get("model") != model:
        raise OtherWeights
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    if [choice["index"] for choice in choices] != list(range(count)):
        raise BadResponse(f"it has {len(choices)} completions, {count} were asked for")
    return [_completion(choice, policy, prompt, sampling, version=version) for choice in choices]


def _completion(
    choice: Any, policy: Policy, prompt: Sequence[int], sampling: SamplingLike, *, version: int
) -> Completion:
    _check_prompt(choice.get("prompt_token_ids"), prompt)
    ids = _ids(choice.get("token_ids"), policy, limit=sampling.max_new_tokens)
    logprobs = _logprobs((choice.get("logprobs") or {}).get("token_logprobs"), count=len(ids))
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise BadResponse(f"a completion was ended by {str(reason)[:40]!r}")
    _check_end(ids, reason, policy, sampling)
    completion = make_completion(
        policy,
        np.array(ids, dtype=np.int64),
        np.minimum(np.array(logprobs, dtype=np.float32), 0),
        stopped=reason == "stop",
    )
    return replace(completion, prompt_tokens=len(prompt), version=version)


def _check_prompt(prompt_ids: Any, prompt: Sequence[int]) -> None:
    if prompt_ids is not None and prompt_ids != list(prompt):
        raise BadResponse("it continues other tokens than the prompt's")


def _ids(ids: Any, policy: Policy, *, limit: int) -> list[int]:
    if not isinstance(ids, list) or not ids:
        raise BadResponse("it has no token ids (return_token_ids needs vLLM 0.10.2 or later)")
    size = policy.model.get_input_embeddings().weight.shape[0]
    if not all(type(index) is int and 0 <= index < size for index in ids):
        raise BadResponse(f"it has token ids that the policy's vocabulary of {size} lacks")
    if len(ids) > limit:
        raise BadResponse(f"it has {len(ids)} tokens, at most {limit} were asked for")
    return ids


def _logprobs(logprobs: Any, *, count: int) -> list[float]:
    if not isinstance(logprobs, list) or len(logprobs) != count:
        raise BadResponse("it has not one log-probability for each token")
    if not all(
        type(value) in (int, float) and MIN_LOGPROB_NATS < value < MAX_LOGPROB_NATS for value in logprobs
    ):
        raise BadResponse("it has log-probabilities that are none")
    return logprobs


def _check_end(ids: Sequence[int], reason: str, policy: Policy, sampling: SamplingLike) -> None:
    """Check that a stop token occurs only at a completion's end, and that a cut completion has full
    length.
    """
    stops = [position for position, index in enumerate(ids) if index in policy.stop_ids]
    if reason == "stop" and stops != [len(ids) - 1]:
        raise BadResponse(
            "a completion ended without one of the policy's stop tokens at its end (the server may add some "
            "of its own: start it with --generation-config vllm)"
        )
    if reason == "length" and (stops or len(ids) < sampling.max_new_tokens):
        raise BadResponse("a completion was cut before its length cap: the server's context is too short")


def read_models(answer: Any) -> list[dict[str, Any]]:
    """Return the models that a server lists."""
    try:
        return [dict(model, id=str(model["id"])) for model in answer["data"]]
    except (KeyError, TypeError, ValueError):
        raise BadResponse("it is not a list of models") from None


def read_tokens(answer: Any) -> list[Any]:
    """Return the tokens of a text."""
    try:
        return list(answer["tokens"])
    except (KeyError, TypeError):
        raise BadResponse("it has no tokens") from None


def check_emptied(answer: Any) -> None:
    """Check that the keys and values of the old weights are gone. Older versions return no confirmation."""
    if isinstance(answer, dict) and answer.get("success") is False:
        raise BadResponse("it still holds keys and values of old weights: is another client using it?")


def read_version(answer: Any) -> str:
    """Return the name of the weights that a server holds, or "" if it does not report one."""
    return str(answer.get("weight_version", "")) if isinstance(answer, dict) else ""
