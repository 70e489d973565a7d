"""Compute the loss of a stored step under other objectives with the code used in training.

    python -m worker.training.what_if BYTES < request.npz

The request holds a JSON text `request` and named values (B, T). The answer is one line of JSON per objective.
All stored groups form one optimizer batch, with the log-probabilities that each token had at its last update.
"""

import io
import json
import resource
import sys
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
import torch
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from backend.storage.numbers import spell_all
from worker.objective.aggregation import Denominators
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import estimate_advantages, whiten
from worker.objective.policy_loss import (
    PolicyLoss,
    accepted_completions,
    denominators,
    kl_reward_penalty,
    policy_loss,
)
from worker.objective.token_choice import choose_covariant_tokens, choose_entropic_tokens, split_updates

Values = dict[str, Tensor]


def compute_answer(request: dict[str, Any], values: Values) -> dict[str, Any]:
    """Return the answer for one objective (schemas.WhatIfVariant), or the reason why it cannot be
    computed.
    """
    objective = Objective.model_validate(request["objective"])
    run_objective = Objective.model_validate(request["run_objective"])
    try:
        batch = _batch(objective, run_objective, request, values)
        total_loss = _loss(objective, batch, request, values)
    except (LookupError, TypeError, ValueError) as error:
        return {"problem": str(error)[:300]}
    advantages = batch.advantages
    if advantages.ndim == 2:
        advantages = (advantages * batch.mask).sum(dim=1) / batch.mask.sum(dim=1).clamp(min=1)
    clipped = total_loss.per_token.get("clipped")
    weight, numbers = _weight_statistics(objective, batch, advantages, clipped, request)
    gradient = total_loss.contributions["gradient"]
    metrics = total_loss.metrics.values()
    return {
        "loss": metrics["loss/total"],
        "terms": {
            name[5:]: value
            for name, value in metrics.items()
            if name.startswith("loss/") and name != "loss/total"
        },
        "metrics": {
            name: value
            for name, value in metrics.items()
            if name.startswith(("clip/", "ratio/", "mismatch/", "kl/k"))
        },
        "weight": weight,
        "numbers": numbers,
        "completions": [
            {"advantage": a, "loss": loss, "gradient": g, "clipped": c}
            for a, loss, g, c in zip(
                advantages.tolist(),
                total_loss.contributions["loss"].double().sum(dim=1).tolist(),
                gradient.double().abs().sum(dim=1).tolist(),
                [None] * len(advantages) if clipped is None else (clipped != 0).sum(dim=1).tolist(),
                strict=True,
            )
        ],
    }


def _weight_statistics(
    objective: Objective,
    batch: PolicyBatch,
    advantages: Tensor,
    clipped: Tensor | None,
    request: dict[str, Any],
) -> tuple[str, dict[str, float]]:
    """Return the formula of a token's weight in the loss of this batch, and statistics of the batch."""
    lengths, weights = batch.mask.sum(dim=1), _weights(objective, batch, request).weights
    completions, prompts = len(lengths), int(batch.group_index.unique().numel())
    tokens = int(lengths.sum())
    match objective.aggregation:
        case knobs.TokenMean(over=scope):
            weight = f"1 / Σ|o| = 1 / {tokens:,}"
            if scope == "sampled" and request["token_share"] != 1:
                weight += f", times {request['token_share']:.4g} for groups that were left out"
        case knobs.SeqMeanTokenMean():
            weight = f"1 / (B |o_i|) = 1 / ({completions:,} |o_i|)"
        case knobs.PromptMean():
            weight = f"1 / (P Σ_j |o_j|) = 1 / ({prompts:,} Σ_j |o_j|), j in the group of i"
        case knobs.SeqMeanTokenSum():
            weight = f"1 / B = 1 / {completions:,}"
        case knobs.SeqMeanTokenSumNorm(l_max=l_max):
            length = request["max_new_tokens"] if l_max == "max_new_tokens" else l_max
            weight = f"1 / (B L_max) = 1 / ({completions:,} · {length:,})"
        case _:
            assert_never(objective.aggregation)
    if request["loss_share"] != 1 and not isinstance(objective.aggregation, knobs.TokenMean):
        weight += f", times the share of groups that trained, {request['loss_share']:.4g}"
    exact_advantages = advantages.double()
    numbers = {
        "completions": completions,
        "prompts": prompts,
        "tokens": tokens,
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "weight_lowest": float(weights.min()),
        "weight_highest": float(weights.max()),
        "advantage_mean": float(exact_advantages.mean()),
        "advantage_std": float(exact_advantages.std(correction=0)),
        "advantage_lowest": float(exact_advantages.min()),
        "advantage_highest": float(exact_advantages.max()),
    }
    if clipped is not None:
        code_by_name = {"clipped_below": -1, "clipped_above": 1, "clipped_dual": 2}
        numbers |= {name: int(clipped.eq(code).sum()) for name, code in code_by_name.items()}
    return weight, numbers


def _batch(
    objective: Objective, run_objective: Objective, request: dict[str, Any], values: Values
) -> PolicyBatch:
    """Return the stored groups as one optimizer batch, with the advantages of an objective."""
    mask = values["mask"] > 0
    is_run_objective = objective == run_objective
    old_logprobs = values.get("old_logprob", values["policy_logprob"])
    batch = PolicyBatch(
        mask=mask,
        advantages=torch.zeros(len(mask)),
        group_index=torch.tensor(request["group_index"]),
        old_logprobs=old_logprobs,
        sampler_logprobs=values.get("logprob"),
        reference_logprobs=values.get("reference_logprob"),
        scored=torch.tensor([reward is not None for reward in request["rewards"]]),
        kl_coef=_first_value(values.get("kl_coef")) if objective.kl == run_objective.kl else None,
        entropy_coef=_first_value(values.get("entropy_coef"))
        if objective.entropy == run_objective.entropy
        else None,
        correct=torch.tensor(request["correct"]),
        router_shift=values.get("router_shift"),
    )
    if is_run_objective or objective.advantage == run_objective.advantage:
        recorded_advantages = values.get(
            "advantage", torch.tensor(request["advantages"], dtype=torch.float32)
        )
        batch = replace(batch, advantages=recorded_advantages)
    else:
        batch = _estimate_advantages(objective, batch, request)
    if isinstance(objective.token_weight, knobs.TopEntropy):
        if is_run_objective and "uncertain" in values:
            batch = replace(batch, uncertain=values["uncertain"] > 0)
        elif "entropy" in values:
            batch = choose_entropic_tokens(batch, values["entropy"], objective.token_weight)
        else:
            raise ValueError("needs the entropy of each token, which is not stored")
    if is_run_objective and "covariant" in values:
        return replace(batch, covariant=values["covariant"] > 0)
    return choose_covariant_tokens(batch, objective.surrogate, torch.Generator().manual_seed(0))


def _estimate_advantages(objective: Objective, batch: PolicyBatch, request: dict[str, Any]) -> PolicyBatch:
    """Return the batch with advantages estimated from the stored rewards."""
    advantage = objective.advantage
    if missing := _missing_inputs(advantage):
        raise ValueError(f"needs {missing}")
    if isinstance(advantage, knobs.Critic | knobs.OptimalTokenBaseline):
        raise TypeError(f"{advantage.type} judges tokens")
    size = request["group_size"]
    rewards = torch.tensor([reward or 0.0 for reward in request["rewards"]], dtype=torch.float64)
    rewards = (rewards - kl_reward_penalty(batch, objective).sum(dim=1).double()).view(-1, size)
    has_reward = torch.tensor([reward is not None for reward in request["rewards"]]).view(-1, size)
    lengths = batch.mask.sum(dim=1).to(rewards).view(rewards.shape)
    advantages = estimate_advantages(rewards, has_reward, advantage, lengths=lengths).advantages
    batch = replace(batch, advantages=advantages.flatten().float())
    for scope in ("step", "minibatch"):
        batch = whiten(batch, advantage, scope=scope)
    return batch


def _missing_inputs(advantage: knobs.Advantage) -> str:
    """Return the inputs other than rewards that the advantage needs and that are not stored, else ""."""
    match advantage:
        case knobs.Critic():
            return "the values of a critic, which this run did not train"
        case knobs.OptimalTokenBaseline():
            return "the lengths of the tokens' scores, which are not recorded"
        case knobs.GreedyBaseline():
            return "the greedy completions of the prompts, which were not sampled"
        case knobs.MovingAverage():
            return "the average reward of earlier steps under that objective"
        case _ if isinstance(advantage.scale, knobs.Sas):
            return "the earlier visits to the same prompts under that objective"
        case knobs.GroupMean(multi_reward="gdpo"):
            return "every reward term with its weight, which are not compared here"
        case _:
            return ""


def _loss(objective: Objective, batch: PolicyBatch, request: dict[str, Any], values: Values) -> PolicyLoss:
    """Return the loss over all updates of the batch, with its gradient with respect to the
    log-probabilities.
    """
    weights = _weights(objective, batch, request)
    policy = values["policy_logprob"].clone().requires_grad_()
    entropy = values.get("policy_entropy", values.get("entropy"))
    total_loss, *other_losses = [
        policy_loss(policy, update, objective, weights, entropy=entropy)
        for update in split_updates(batch, objective.token_weight)
    ]
    for other_loss in other_losses:
        contributions = {
            name: total_loss.contributions[name] + value for name, value in other_loss.contributions.items()
        }
        total_loss = total_loss._replace(
            metrics=total_loss.metrics + other_loss.metrics, contributions=contributions
        )
    return total_loss


def _weights(objective: Objective, batch: PolicyBatch, request: dict[str, Any]) -> Denominators:
    return denominators(
        batch.mask,
        batch.group_index,
        objective,
        max_new_tokens=request["max_new_tokens"],
        loss_share=request["loss_share"],
        token_share=request["token_share"],
        correct=batch.correct,
        is_accepted=accepted_completions(batch, objective),
    )


def _first_value(values: Tensor | None) -> Tensor | None:
    return None if values is None else values[:, 0]


def main() -> None:
    """Answer the request on standard input within a memory limit given in bytes."""
    max_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))
    torch.set_num_threads(1)
    arrays = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
    request = json.loads(str(arrays["request"]))
    values = {name: torch.from_numpy(arrays[name]) for name in arrays.files if name != "request"}
    for objective in request.pop("objectives"):
        answer = compute_answer(request | {"objective": objective}, values)
        sys.stdout.write(json.dumps(spell_all(answer)) + "\n")


if __name__ == "__main__":
    main()
