"""Advantages, losses and gradients by verl's own functions. Runs in an environment of its own."""

import json
import logging
import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo import core_algos

from benchmarks.parity.batches import GROUP_SIZE, PROMPTS, ROWS
from benchmarks.parity_verl.cases import VERL_CASES, VerlCase, batch_for_verl


class Settings(dict[str, Any]):
    """A config whose values are attributes too, as verl's are."""

    def __getattr__(self, name: str) -> Any:
        value = self.get(name)
        return Settings(value) if isinstance(value, dict) else value


def exact(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def mask_of(batch: dict[str, Any]) -> Tensor:
    width = len(batch["old"][0])
    return (torch.arange(width) < torch.tensor(batch["lengths"]).unsqueeze(1)).double()


def estimate(name: str, settings: dict[str, Any], batch: dict[str, Any]) -> Tensor:
    """Advantages (B, T) of an estimator, from rewards on the last token."""
    mask = mask_of(batch)
    rewards = torch.zeros_like(mask)
    rewards[torch.arange(ROWS), torch.tensor(batch["lengths"]) - 1] = exact(batch["rewards"][0])
    index = np.repeat(np.arange(PROMPTS), GROUP_SIZE)
    function = core_algos.get_adv_estimator_fn(name)
    advantages, _ = function(
        token_level_rewards=rewards,
        response_mask=mask,
        index=index,
        old_log_probs=exact(batch["old"]),
        sum_pi_squared=exact(batch["squares"]),
        reward_baselines=exact(batch["greedy"]).repeat_interleave(GROUP_SIZE),
        config=Settings(settings),
    )
    return advantages


def answer(case: VerlCase, batch: dict[str, Any]) -> dict[str, Any]:
    """Advantages of an estimator; loss and gradient of a loss."""
    if case.is_advantage:
        return {"advantages": estimate(case.name, case.settings, batch).tolist()}
    policy = exact(batch["new"]).requires_grad_()
    config = Settings({"policy_loss": {}, "global_batch_info": {}} | case.settings)
    loss, _ = core_algos.get_policy_loss_fn(case.name)(
        old_log_prob=exact(batch["old"]),
        log_prob=policy,
        advantages=exact(batch["advantages"]),
        response_mask=mask_of(batch),
        loss_agg_mode="token-mean",
        config=config,
    )
    (gradient,) = torch.autograd.grad(loss, policy)
    return {"loss": loss.item(), "gradient": gradient.tolist()}


def main(seeds: Iterable[int], advantages: list[list[list[float]]]) -> None:
    logging.disable(logging.WARNING)
    pairs = zip(seeds, advantages, strict=True)
    batches = [batch_for_verl(seed) | {"advantages": given} for seed, given in pairs]
    found = [[answer(case, batch) for batch in batches] for case in VERL_CASES]
    print(json.dumps({"found": found, "versions": {"verl": version("verl"), "torch": torch.__version__}}))


if __name__ == "__main__":
    job = json.load(sys.stdin)
    main(job["seeds"], job["advantages"])
