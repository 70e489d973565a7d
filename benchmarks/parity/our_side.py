"""Compute loss and gradient by GRPO Lab's objective, in double precision."""

from typing import Any

import torch
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from benchmarks.parity.batches import GROUP_SIZE, PROMPTS, ROWS
from benchmarks.parity.cases import MAX_NEW_TOKENS, Case
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import estimate_advantages
from worker.objective.multi_reward import RewardTerms
from worker.objective.policy_loss import denominators, policy_loss
from worker.objective.token_choice import choose_entropic_tokens

TERM_WEIGHTS = (1.0, 0.5)


def loss_and_gradient(case: Case, objective: Objective, batch: dict[str, Any]) -> dict[str, Any]:
    """Return loss and gradient of one optimizer batch, in the micro-batches of the case."""
    rows = _policy_batch(case, objective, batch)
    policy, entropy = (_exact(batch[name]).requires_grad_() for name in ("new", "entropy"))
    weights = denominators(rows.mask, rows.group_index, objective, max_new_tokens=MAX_NEW_TOKENS)
    loss = torch.zeros((), dtype=torch.float64)
    for indices in torch.arange(ROWS).split(ROWS // case.parts):
        microbatch_loss = policy_loss(
            policy[indices], rows.rows(indices), objective, weights.rows(indices), entropy=entropy[indices]
        )
        loss = loss + microbatch_loss.loss
    gradient = torch.autograd.grad(loss, [policy, entropy], allow_unused=True, materialize_grads=True)
    return {"loss": loss.item(), "gradient": [tensor.tolist() for tensor in gradient]}


def _policy_batch(case: Case, objective: Objective, batch: dict[str, Any]) -> PolicyBatch:
    old_logprobs = _exact(batch["old"])
    mask = torch.arange(old_logprobs.shape[1]) < torch.tensor(batch["lengths"]).unsqueeze(1)
    if case.truncated:
        mask = mask & ~torch.tensor(batch["truncated"]).unsqueeze(1)
    if case.holes:
        mask = mask & ~torch.tensor(batch["holes"])
    rows = PolicyBatch(
        mask=mask,
        advantages=_advantages(case, objective, batch),
        group_index=torch.arange(PROMPTS).repeat_interleave(GROUP_SIZE),
        old_logprobs=old_logprobs,
        sampler_logprobs=_exact(batch["sampler"]) if case.with_sampler else None,
        reference_logprobs=_exact(batch["reference"]) if objective.needs_reference else None,
    )
    return choose_entropic_tokens(rows, _exact(batch["entropy"]), objective.token_weight)


def _advantages(case: Case, objective: Objective, batch: dict[str, Any]) -> Tensor:
    values = _exact(batch["rewards"][: case.terms]).view(case.terms, PROMPTS, GROUP_SIZE)
    weights = _exact(TERM_WEIGHTS[: case.terms]).unsqueeze(1).expand(case.terms, PROMPTS)
    terms = RewardTerms(values, torch.ones_like(values, dtype=torch.bool), weights)
    if isinstance(objective.advantage, knobs.Critic | knobs.OptimalTokenBaseline):
        raise TypeError("TRL's GRPOTrainer has no advantages of tokens to compare with")
    return estimate_advantages(
        (values * weights.unsqueeze(2)).sum(dim=0), terms.scored[0], objective.advantage, terms=terms
    ).advantages.flatten()


def _exact(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
