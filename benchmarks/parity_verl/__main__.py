"""Advantages, losses and gradients against verl's own functions, on the same random batches.

    python -m benchmarks.parity_verl        exits with 1 when a pair does not agree

verl lives in an environment of its own, `.venv-verl`, which is made on the first run. Writes results.md
beside this file.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from benchmarks.common.peers import python_of_verl, run
from benchmarks.parity.batches import GROUP_SIZE, PROMPTS
from benchmarks.parity.cases import MAX_NEW_TOKENS
from benchmarks.parity_verl.cases import VERL_CASES, VerlCase, batch_for_verl
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import estimate_advantages, estimate_against_tokens, whiten
from worker.objective.policy_loss import denominators, policy_loss
from worker.objective.token_choice import with_covariance_choice

HERE = Path(__file__).parent
RESULTS = HERE / "results.md"
TOLERANCE = 1e-6


def rows_of(batch: dict[str, Any], objective: Objective) -> PolicyBatch:
    """Our batch with the advantages of an objective."""
    old = _exact(batch["old"])
    mask = torch.arange(old.shape[1]) < torch.tensor(batch["lengths"]).unsqueeze(1)
    if isinstance(objective.advantage, knobs.Critic):
        raise TypeError("there is no critic to compare with")
    rewards = _exact(batch["rewards"][0]).view(PROMPTS, GROUP_SIZE)
    lengths = mask.sum(dim=1).view(rewards.shape)
    scored = torch.ones_like(rewards, dtype=torch.bool)
    if isinstance(objective.advantage, knobs.OptimalTokenBaseline):
        energies = (1 - 2 * old.exp() + _exact(batch["squares"])).where(mask, 0.0)
        found = estimate_against_tokens(rewards, scored, mask, energies)
    else:
        greedy = _exact(batch["greedy"])
        found = estimate_advantages(
            rewards, scored, objective.advantage, lengths=lengths, greedy=greedy
        ).advantages.flatten()
    rows = PolicyBatch(
        mask=mask,
        advantages=found,
        group_index=torch.arange(PROMPTS).repeat_interleave(GROUP_SIZE),
        old_logprobs=old,
    )
    return whiten(rows, objective.advantage, over="step")


def by_token(advantages: Tensor) -> Tensor:
    """(B, T), or (B, 1) where all tokens of a completion have one advantage."""
    return advantages if advantages.ndim == 2 else advantages.unsqueeze(1)


def gap(case: VerlCase, batch: dict[str, Any], theirs: dict[str, Any]) -> tuple[float, int]:
    """The largest difference of any value, and how many values were compared."""
    objective = Objective.model_validate(case.ours)
    rows = rows_of(batch, objective)
    if case.is_advantage:
        ours = by_token(rows.advantages) * rows.mask
        return _largest(ours, _exact(theirs["advantages"])), int(rows.mask.sum())
    policy = _exact(batch["new"]).requires_grad_()
    present = replace(rows, old_logprobs=policy.detach())  # verl chooses tokens by the present ones
    chosen = with_covariance_choice(present, objective.surrogate, torch.Generator()).covariant
    rows = replace(rows, covariant=chosen)
    weights = denominators(rows.mask, rows.group_index, objective, max_new_tokens=MAX_NEW_TOKENS)
    loss = policy_loss(policy, rows, objective, weights).loss
    (gradient,) = torch.autograd.grad(loss, policy)
    largest = max(
        abs(loss.item() - theirs["loss"]), _largest(gradient, _exact(theirs["gradient"]) * rows.mask)
    )
    return largest, 1 + int(rows.mask.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description="advantages and losses, GRPO Lab against verl")
    parser.add_argument("--batches", type=int, default=20)
    batches = [batch_for_verl(seed) for seed in range(parser.parse_args().batches)]
    given = [rows_of(batch, Objective()) for batch in batches]
    advantages = [(rows.advantages.unsqueeze(1) * rows.mask).tolist() for rows in given]
    job = {"seeds": list(range(len(batches))), "advantages": advantages, "threads": 1}
    answer = run(python_of_verl(), HERE / "verl_side.py", job)
    lines, worst = [], 0.0
    for case, found in zip(VERL_CASES, answer["found"], strict=True):
        pairs = [gap(case, batch, theirs) for batch, theirs in zip(batches, found, strict=True)]
        largest, count = max(one for one, _ in pairs), sum(values for _, values in pairs)
        worst = max(worst, largest)
        kind = "advantages" if case.is_advantage else "loss and gradient"
        lines.append(f"| `{case.name}` | {kind} | {count:,} | {largest:.0e} | {case.note} |")
    text = report(lines, answer["versions"], len(batches))
    print(text)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    if worst > TOLERANCE:
        sys.exit(f"these should agree with verl and do not: the largest difference is {worst:.0e}")


def report(lines: list[str], versions: dict[str, str], batches: int) -> str:
    """Everything in Markdown."""
    setting = ", ".join(f"{name} {version}" for name, version in versions.items())
    lead = (
        f"{batches} random batches as above, log-probabilities below 0, in double precision; verl's side is "
        f"its own functions of `core_algos`; {setting}. `make bench-parity-verl` repeats it."
    )
    head = ["| verl's name | what | values | largest difference | note |", "|---|---|---|---|---|"]
    return "\n".join([lead, "", *head, *lines])


def _largest(ours: Tensor, theirs: Tensor) -> float:
    return (ours - theirs).abs().max().item()


def _exact(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


if __name__ == "__main__":
    main()
