"""Compute a stored step under other objectives by running the trainer's code in a child process."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, NotFound, Unavailable
from backend.config.filters import NoRefill
from backend.config.formula.loss import formula
from backend.config.length import MaskTruncated
from backend.config.merge import resolve
from backend.config.run import RunConfig
from backend.rollouts.contributions import UNSTORED, load_logged_loss
from backend.rollouts.counting import mark_condition, valid_tally_conditions
from backend.rollouts.marks import BIT_BY_MARK
from backend.rollouts.packing import try_unpack_arrays
from backend.rollouts.reading import valid_group_conditions
from backend.rollouts.schemas import WhatIfChange, WhatIfOrder
from backend.rollouts.token_budget import removal_reason
from backend.rollouts.token_values import ALTERNATIVE_PREFIX
from backend.runs.origin import has_run_config
from backend.storage.completion import Completion
from backend.storage.completions import load_completions
from backend.storage.models import GroupTally, RolloutGroup, RolloutTokens, Run

MAX_VALUES = 4_000_000
"""Maximum number of completions times tokens of the longest, which takes about a gigabyte of memory."""

TIMEOUT_SECONDS = 60.0
MAX_WAIT_SECONDS = 5.0
"""Maximum number of seconds that a computation waits for the one before it."""

MEMORY_ERROR_WORDS = ("MemoryError", "memory", "ENOMEM")
"""Substrings in the last output line of a process that ran out of memory."""


class Allowance(NamedTuple):
    """Limits on the processes that the callers of a role start."""

    turn: threading.Lock
    """Lock that allows one process at a time."""
    max_bytes: int
    """Maximum memory of the process in bytes; beyond it, allocations fail."""


OPERATOR_ALLOWANCE = Allowance(threading.Lock(), 6_000_000_000)
VIEWER_ALLOWANCE = Allowance(threading.Lock(), 3_000_000_000)

Arrays = dict[str, NDArray[np.float32]]


def compute_what_if(
    session: Session, order: WhatIfOrder, allowance: Allowance = OPERATOR_ALLOWANCE
) -> dict[str, Any]:
    """Return the loss of a step's stored groups under its own and other objectives, as `schemas.WhatIf`.

    Raise InvalidConfig for an invalid objective, NotFound if the step has no recorded contributions, Conflict
    if the step is too large, and Unavailable if the process fails.
    """
    run = session.get_one(Run, order.run)
    if not has_run_config(run):
        raise NotFound("the run was trained elsewhere: what its loss is computed from was not recorded")
    config, step = RunConfig.model_validate(run.config), order.step
    variant_configs = [_variant_config(run, change) for change in order.variants]
    _check_size(session, run.id, step)
    groups, total, damaged_count = _trained_groups(session, run.id, step)
    if not groups:
        reason = (
            removal_reason(session, run.id, step) or "they were not recorded, or its groups did not train"
        )
        raise NotFound(
            f"step {step} has no stored tokens with the values that its loss is computed from: {reason}"
        )
    size = len(groups[0][1])
    complete = [(group, rows, arrays) for group, rows, arrays in groups if len(rows) == size]
    rows = [row for _, completions, _ in complete for row in completions]
    arrays = [arrays_of_one for _, _, values in complete for arrays_of_one in values]
    longest = max(len(completion["policy_logprob"]) for completion in arrays)
    if len(rows) * longest > MAX_VALUES:
        raise _too_large(f"{len(rows):,} completions of up to {longest:,} tokens")
    request = {
        "run_objective": config.objective.model_dump(mode="json"),
        "objectives": [
            objective.model_dump(mode="json")
            for objective in (config.objective, *(variant.objective for variant in variant_configs))
        ],
        "group_index": np.repeat(np.arange(len(complete)), size).tolist(),
        "group_size": size,
        "rewards": [row.reward for row in rows],
        "advantages": [row.advantage or 0.0 for row in rows],
        "correct": [bool(row.correct) for row in rows],
        "max_new_tokens": config.sampling.max_new_tokens,
        "loss_share": _loss_share(config, trained_count=len(groups), total=total - damaged_count),
        "token_share": _token_share(session, config, run.id, step),
    }
    return {
        "run": run.id,
        "step": step,
        "groups": [group for group, _, _ in complete],
        "group_size": size,
        "of_groups": total,
        "notes": [
            *([f"Groups left out because they are damaged: {damaged_count}."] if damaged_count else []),
            *_notes(
                config,
                stored_count=len(complete),
                total=total - damaged_count,
                is_part=UNSTORED in load_logged_loss(session, run.id, step),
            ),
        ],
        "variants": [
            {"name": name, **_formula_texts(config_), **losses}
            for name, config_, losses in zip(
                ["this run", *(change.preset or "changed" for change in order.variants)],
                [config, *variant_configs],
                _run_process(request, _pad_arrays(arrays, longest), allowance),
                strict=True,
            )
        ],
    }


def _formula_texts(config: RunConfig) -> dict[str, str]:
    """Return the objective as text and as MathML."""
    formulas = formula(config)
    return {"formula": formulas["text"], "formula_mathml": formulas["mathml"]}


def _variant_config(run: Run, change: WhatIfChange) -> RunConfig:
    """Return the config of a variant: that of a preset or of the run, with the requested changes."""
    base = {"preset": change.preset} if change.preset else run.config
    return resolve(base, {"objective": change.objective})


def _trained_groups(
    session: Session, run_id: str, step: int
) -> tuple[list[tuple[str, list[Completion], list[Arrays]]], int, int]:
    """Return the groups that trained and have all values, and the numbers of stored and of damaged groups."""
    query = (
        select(RolloutGroup.id, RolloutTokens.data)
        .outerjoin(RolloutTokens, RolloutTokens.group_id == RolloutGroup.id)
        .where(
            *valid_group_conditions(session, run_id), RolloutGroup.step == step, RolloutGroup.kind == "train"
        )
        .order_by(RolloutGroup.prompt_index)
    )
    stored_groups = session.execute(query).all()
    rows = load_completions(session, [row.id for row in stored_groups])
    trained_groups, damaged_count = [], 0
    for row in stored_groups:
        arrays, damage = try_unpack_arrays(row.data)
        if damage or (arrays and len(rows.get(row.id, [])) != len(arrays)):
            damaged_count += 1
        elif arrays and all("loss" in values and "policy_logprob" in values for values in arrays):
            trained_groups.append((row.id, rows[row.id], arrays))
    return trained_groups, len(stored_groups), damaged_count


def _check_size(session: Session, run_id: str, step: int) -> None:
    """Raise Conflict for a step that is too large, before any of its values are read."""
    query = (
        select(func.sum(GroupTally.completions), func.sum(GroupTally.tokens))
        .where(
            *valid_tally_conditions(session, run_id, "train"),
            GroupTally.step == step,
            mark_condition(BIT_BY_MARK["stored"]),
        )
        .where(GroupTally.marks.bitwise_and(BIT_BY_MARK["left_out"]) == 0)
    )
    count, tokens = session.execute(query).one()
    if (tokens or 0) > MAX_VALUES:
        raise _too_large(f"{count:,} completions of {tokens:,} tokens together")


def _too_large(size: str) -> Conflict:
    return Conflict(
        f"{size} are too many to compute again here: at most {MAX_VALUES:,} tokens, each completion counted "
        "as the longest one"
    )


def _loss_share(config: RunConfig, *, trained_count: int, total: int) -> float:
    """Return `worker.objective.filters.loss_share` for the stored groups."""
    if not isinstance(config.filters.refill, NoRefill) or config.filters.upweight or not total:
        return 1.0
    return trained_count / total


def _token_share(session: Session, config: RunConfig, run_id: str, step: int) -> float:
    """Return the factor on a mean over sampled tokens for groups that were left out, stored or not."""
    if not isinstance(config.filters.refill, NoRefill):
        return 1.0
    is_trained = GroupTally.marks.bitwise_and(BIT_BY_MARK["left_out"]) == 0
    tally_columns = (func.sum(GroupTally.tokens), func.count(GroupTally.prompt_index.distinct()))
    query = select(*tally_columns).where(
        *valid_tally_conditions(session, run_id, "train"), GroupTally.step == step
    )
    if isinstance(config.length.truncated, MaskTruncated):
        query = query.where(GroupTally.marks.bitwise_and(BIT_BY_MARK["truncated"]) == 0)
    tokens, groups = session.execute(query).one()
    trained_tokens, trained_groups = session.execute(query.where(is_trained)).one()
    if not trained_tokens:
        return 1.0
    factor = groups / trained_groups if config.filters.upweight else 1.0
    return int(trained_tokens) / int(tokens) * factor


def _pad_arrays(arrays: Sequence[Arrays], longest: int) -> dict[str, NDArray[np.float32]]:
    """Return the values that every completion has, padded to (B, T), and the mask."""
    names = {
        name
        for name in set.intersection(*(set(values) for values in arrays)) - {"mask"}
        if not name.startswith(ALTERNATIVE_PREFIX)
    }
    padded_arrays = {name: np.zeros((len(arrays), longest), np.float32) for name in (*names, "mask")}
    for row, values in enumerate(arrays):
        length = len(values["policy_logprob"])
        padded_arrays["mask"][row, :length] = values.get("mask", np.ones(length, np.float32))
        for name in names:
            padded_arrays[name][row, :length] = values[name]
    return padded_arrays


def _notes(config: RunConfig, *, stored_count: int, total: int, is_part: bool) -> list[str]:
    """Return notes on differences between this computation and the step as it was trained."""
    updates = config.updates
    has_several_updates = (
        updates.epochs * updates.minibatches > 1 or config.objective.token_weight.type == "lopti"
    )
    return [
        *(
            ["Only groups that trained and whose tokens are stored take part."]
            if stored_count < total
            else []
        ),
        *(["Selected groups alone are stored: the batch is a part of the step."] if is_part else []),
        *(
            [
                (
                    "The step made several updates. All groups are one optimizer batch here, at the "
                    "log-probabilities of each token's last update: the loss differs from the logged mean."
                )
            ]
            if has_several_updates
            else []
        ),
    ]


def _run_process(
    request: dict[str, Any], values: dict[str, NDArray[np.float32]], allowance: Allowance
) -> list[dict[str, Any]]:
    """Return the result of the process for each objective; raise Unavailable if it fails."""
    buffer = io.BytesIO()
    np.savez(buffer, request=np.array(json.dumps(request)), **values)  # type: ignore[arg-type]
    if not allowance.turn.acquire(timeout=MAX_WAIT_SECONDS):
        raise Unavailable("another step is being computed: try again in a moment")
    try:
        process = subprocess.run(
            [sys.executable, "-m", "worker.training.what_if", str(allowance.max_bytes)],
            input=buffer.getvalue(),
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"computing the step again took longer than {TIMEOUT_SECONDS:g} seconds") from None
    finally:
        allowance.turn.release()
    if process.returncode:
        message = (process.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        if "No module named 'torch'" in message:
            message = "the packages of the trainer are not installed beside the service"
        if any(word in message for word in MEMORY_ERROR_WORDS):
            message = "the step needs more memory than the process that computes may have"
        raise Unavailable(f"the step was not computed: {message[:300]}")
    return [json.loads(line) for line in process.stdout.splitlines()]
