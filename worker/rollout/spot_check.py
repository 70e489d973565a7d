"""Check an engine's log-probabilities of a few completions against the actual weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from worker.policy.model import Policy
from worker.rollout.engine import SamplingLike
from worker.rollout.sampler import next_token_logprobs
from worker.types import Completion

MAX_COMPLETIONS = 4
MAX_TOKENS = 256
"""Maximum number of tokens checked per completion, because their distributions have to fit in memory."""

MAX_LOG_RATIO_NATS = 20.0
"""Maximum difference in nats counted for one token, for example if one log-probability is -inf."""


@torch.inference_mode()
def mismatch(
    policy: Policy,
    prompt_ids: Sequence[Sequence[int]],
    groups: Sequence[Sequence[Completion]],
    sampling: SamplingLike,
) -> float:
    """Return the mean k3 of `policy` against the engine's reported log-probabilities, in nats per token.

        k3 = rho - 1 - log rho    with rho = p_policy / p_engine

    Both probabilities are after temperature, top-k and top-p. The first completions of evenly spaced groups
    are checked.
    """
    step = max(1, len(groups) // MAX_COMPLETIONS)
    indices = list(range(0, len(groups), step))[:MAX_COMPLETIONS]
    values = [_k3(policy, prompt_ids[index], groups[index][0], sampling) for index in indices]
    return torch.cat(values).mean().item() if values else 0.0


def _k3(policy: Policy, prompt: Sequence[int], completion: Completion, sampling: SamplingLike) -> Tensor:
    count = min(len(completion), MAX_TOKENS)
    ids = torch.tensor([[*prompt, *completion.ids[:count].tolist()]], device=policy.model.device)
    logits = policy.model(input_ids=ids[:, :-1], logits_to_keep=count).logits[0].float()  # (T, V)
    computed_logprobs = (
        next_token_logprobs(logits, sampling).gather(1, ids[0, -count:, None]).squeeze(1).cpu()
    )
    reported_logprobs = torch.from_numpy(completion.sampler_logprobs[:count].copy())
    log_rho = (
        (computed_logprobs - reported_logprobs)
        .nan_to_num(nan=MAX_LOG_RATIO_NATS)
        .clamp(-MAX_LOG_RATIO_NATS, MAX_LOG_RATIO_NATS)
        .double()
    )
    return log_rho.expm1() - log_rho
