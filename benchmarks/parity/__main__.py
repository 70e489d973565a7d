"""Compare policy loss and gradient with TRL's GRPOTrainer, on the same random batches.

    python -m benchmarks.parity        exits with 1 if a pair that should agree does not

TRL is installed in a separate environment, `.venv-trl`, on the first run. The results are written to
results.md in this directory; `make docs` copies them into docs/.
"""

import argparse
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError

from backend.config.objective import Objective
from benchmarks.common.peers import ensure_python, run
from benchmarks.parity.batches import GROUP_SIZE, PROMPTS, random_batch
from benchmarks.parity.cases import (
    DIFFERENT_CASES,
    EQUAL_CASES,
    MAX_NEW_TOKENS,
    ONLY_OURS,
    ONLY_TRL,
    Case,
    every_combination,
)
from benchmarks.parity.our_side import loss_and_gradient

HERE = Path(__file__).parent
TOLERANCE = 1e-5
"""Absolute tolerance of loss and gradient."""


SETTING_TEXT = (
    "{batches} random batches of "
    f"{PROMPTS} x {GROUP_SIZE} completions of 1 to {MAX_NEW_TOKENS} tokens with garbage in the padding, in "
    "double precision; gradients with respect to the log-probability and the entropy of every token. TRL's "
    "side is its own trainer's advantages, corrections, masks and loss; {versions}, "
    f"Python {platform.python_version()}. `make bench-parity` repeats it."
)
CAVEAT_TEXT = (
    "Beyond these batches: our log-ratios end at 20 nats, where k3 goes on along its tangent; "
    "TRL's overflow. Standard deviations are the same: G - 1 and eps 1e-4 are TRL's and our defaults."
)


class Comparison(NamedTuple):
    """One case over all batches."""

    case: Case
    our_loss: float
    """Loss of the first batch."""
    trl: float
    loss_gap: float
    """Largest difference of the loss over the batches."""
    gradient_gap: float
    """Largest difference of any token's gradient over the batches."""

    @property
    def agrees(self) -> bool:
        """Return True if both sides agree within the tolerance."""
        return max(self.loss_gap, self.gradient_gap) <= TOLERANCE


def main() -> None:
    parser = argparse.ArgumentParser(description="policy loss and gradient, GRPO Lab against TRL")
    parser.add_argument("--batches", type=int, default=5)
    batches = parser.parse_args().batches
    answer = run(ensure_python("trl"), HERE / "trl_side.py", {"seeds": list(range(batches)), "threads": 1})
    cases = [*EQUAL_CASES, *DIFFERENT_CASES, *every_combination()]  # in the order of trl_side.py
    compared = []
    for case, trl_answers in zip(cases, answer["answers"], strict=True):
        try:
            compared.append(compare(case, trl_answers))
        except ValidationError as refusal:
            print(f"left out, our config refuses it: {case.name}: {refusal.errors()[0]['msg']}")
    text = report(compared, answer["versions"], batches)
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")
    disagreeing_names = [
        comparison.case.name
        for comparison in compared
        if not comparison.case.differs and not comparison.agrees
    ]
    if disagreeing_names:
        sys.exit("these should agree with TRL and do not: " + "; ".join(disagreeing_names))


def compare(case: Case, trl_answers: list[dict[str, Any]]) -> Comparison:
    """Compare our side of a case with TRL's answer for each batch."""
    objective = Objective.model_validate(case.our_settings)
    our_answers = [loss_and_gradient(case, objective, random_batch(seed)) for seed in range(len(trl_answers))]
    pairs = list(zip(our_answers, trl_answers, strict=True))
    return Comparison(
        case,
        our_answers[0]["loss"],
        trl_answers[0]["loss"],
        max(abs(our_answer["loss"] - trl_answer["loss"]) for our_answer, trl_answer in pairs),
        max(_largest_gap(our_answer["gradient"], trl_answer["gradient"]) for our_answer, trl_answer in pairs),
    )


def _largest_gap(our_gradient: Any, trl_gradient: Any) -> float:
    gap = torch.tensor(our_gradient, dtype=torch.float64) - torch.tensor(trl_gradient, dtype=torch.float64)
    return gap.abs().max().item()


def report(comparisons: list[Comparison], versions: dict[str, str], batches: int) -> str:
    """Return the report in Markdown."""
    case_names = [case.name for case in EQUAL_CASES]
    different = [comparison for comparison in comparisons if comparison.case.differs]
    alike = {
        comparison.case.name: comparison
        for comparison in reversed(comparisons)
        if not comparison.case.differs
    }
    equal = [alike[name] for name in case_names if name in alike]
    same_meaning = list(alike.values())
    setting = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        SETTING_TEXT.format(batches=batches, versions=setting),
        "",
        _verdict(same_meaning),
        "",
        "| TRL's settings | our loss | TRL's loss | loss differs by | gradient by | note |",
        "|---|---|---|---|---|---|",
        *(_row(comparison) for comparison in equal),
        "",
        "The same idea with another meaning:",
        "",
        "| TRL's settings | our loss | TRL's loss | loss differs by | gradient by | why, where they agree |",
        "|---|---|---|---|---|---|",
        *(_row(comparison) for comparison in different),
        "",
        CAVEAT_TEXT,
        "",
        *_one_sided("TRL", ONLY_TRL),
        "",
        *_one_sided("GRPO Lab", ONLY_OURS),
    ]
    return "\n".join(lines)


def _verdict(comparisons: list[Comparison]) -> str:
    if not all(comparison.agrees for comparison in comparisons):
        return "**Not all cases agree.**"
    loss, gradient = (max(gaps) for gaps in zip(*(comparison[3:] for comparison in comparisons), strict=True))
    return (
        f"All {len(comparisons)} cases agree: the lines below and the whole cross product of `loss_type`, "
        f"`importance_sampling_level`, `scale_rewards` and correction. The largest difference of a loss is "
        f"{loss:.0e}, of a gradient {gradient:.0e}."
    )


def _row(comparison: Comparison) -> str:
    return (
        f"| {comparison.case.name} | {comparison.our_loss:.6f} | {comparison.trl:.6f} "
        f"| {comparison.loss_gap:.0e} | {comparison.gradient_gap:.0e} | {comparison.case.note} |"
    )


def _one_sided(side: str, entries: dict[str, str]) -> list[str]:
    items = (f"`{name}`" + (f" ({reason})" if reason else "") for name, reason in entries.items())
    return [f"Only {side} has: " + "; ".join(items) + "."]


if __name__ == "__main__":
    main()
