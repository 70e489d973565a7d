"""Prompts over time: the pass rate of each training prompt, and the results of each evaluation prompt."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
from sqlalchemy import BigInteger, Text, case, cast, func, literal, select
from sqlalchemy.orm import Session

from backend.rollouts.counting import count_completions, mark_condition, valid_tally_conditions
from backend.rollouts.marks import BIT_BY_MARK
from backend.rollouts.packing import try_unpack_text
from backend.storage.engine import is_postgres
from backend.storage.models import GroupTally, RunPrompt

WINDOW_COUNT = 8
"""Number of windows of equal length into which the steps of a run are divided."""

MAX_PROBES = 512
MAX_CELLS = 100_000
EXCERPT_CHARS = 300

State = Literal["never", "always", "lost", "learned", "mixed", "ungraded"]
Order = Literal["drift", "-drift", "rate", "-rate", "visits", "-visits", "first", "-first", "last", "-last"]

COUNT_BITS = 20
"""Number of bits that store a count of completions; a group has fewer completions than fit."""
MAX_COUNT = (1 << COUNT_BITS) - 1

RIGHT_CONDITION, WRONG_CONDITION = mark_condition(BIT_BY_MARK["right"]), mark_condition(BIT_BY_MARK["wrong"])


class PromptHistory(NamedTuple):
    """The right and graded completions of a prompt, and its pass rates."""

    id: str
    right: int
    graded: int
    groups: int
    windows: list[float | None]
    """Pass rate in each window; None if the prompt was not sampled or none of its completions was graded."""
    rate: float | None
    """Pass rate over all completions."""
    first: float | None
    """Pass rate in the first window that has one."""
    last: float | None
    """Pass rate in the last window that has one."""
    drift: float | None
    """Change of the pass rate from the first to the last window that has one; None if only one has."""
    state: State
    """Never or always solved; lost: solved earlier but not in the last window; learned: the reverse."""


def make_history(
    id_: str, right_counts: Sequence[int], graded_counts: Sequence[int], groups: int
) -> PromptHistory:
    """Return the history of a prompt from the numbers of right and graded completions in each window."""
    windows = [r / g if g else None for r, g in zip(right_counts, graded_counts, strict=True)]
    rates = [rate for rate in windows if rate is not None]
    total = sum(graded_counts)
    if not rates:
        return PromptHistory(id_, 0, 0, groups, windows, None, None, None, None, "ungraded")
    rate, first, last = sum(right_counts) / total, rates[0], rates[-1]
    state: State = "mixed"
    if rate in (0, 1):
        state = "always" if rate else "never"
    elif last == 0:
        state = "lost"
    elif first == 0:
        state = "learned"
    drift = last - first if len(rates) > 1 else None
    return PromptHistory(id_, sum(right_counts), total, groups, windows, rate, first, last, drift, state)


@dataclass(frozen=True, slots=True)
class Atlas:
    """The sorted prompts of a run, and the first and last step of its windows."""

    prompts: list[PromptHistory]
    counts: dict[str, int]
    """Number of prompts in each state, before filtering."""
    first_step: int
    last_step: int


def load_atlas(session: Session, run_id: str, *, state: State | None, sort: Order) -> Atlas:
    """Return the training prompts in a state, sorted."""
    valid = valid_tally_conditions(session, run_id, "train")
    # Two queries, so that each can use the index of the primary key.
    first, last = (session.scalar(select(end(GroupTally.step)).where(*valid)) for end in (func.min, func.max))
    if first is None or last is None:
        return Atlas([], {}, 0, 0)
    histories = list(_histories(session, valid, first, last))
    counts: dict[str, int] = {}
    for prompt in histories:
        counts[prompt.state] = counts.get(prompt.state, 0) + 1
    selected_prompts = [prompt for prompt in histories if state is None or prompt.state == state]
    return Atlas(_sort_prompts(selected_prompts, sort), counts, first, last)


def _histories(session: Session, valid: Sequence[Any], first: int, last: int) -> Iterable[PromptHistory]:
    """Return the histories of all prompts, which are read window by window."""
    index_by_prompt: dict[str, int] = {}
    window_sums = []
    for start, end in pairwise(
        -(-indices * (last - first + 1) // WINDOW_COUNT) for indices in range(WINDOW_COUNT + 1)
    ):
        names, packed_tallies = _load_tallies(
            session, [*valid, GroupTally.step.between(first + start, first + end - 1)]
        )
        indices = np.array(
            [index_by_prompt.setdefault(name, len(index_by_prompt)) for name in names], np.int64
        )
        numbers = np.array(packed_tallies, np.int64)
        counts_by_kind = (numbers >> COUNT_BITS & MAX_COUNT, numbers >> 2 * COUNT_BITS, numbers & MAX_COUNT)
        window_sums.append([np.bincount(indices, counts, len(index_by_prompt)) for counts in counts_by_kind])
    tallies = np.zeros((3, len(index_by_prompt), WINDOW_COUNT), np.int64)
    for window, columns in enumerate(window_sums):
        for column, values in enumerate(columns):
            tallies[column, : len(values), window] = values
    right_counts, wrong_counts, groups = tallies
    return map(
        make_history,
        index_by_prompt,
        right_counts.tolist(),
        (right_counts + wrong_counts).tolist(),
        groups.sum(axis=1).tolist(),
    )


def _load_tallies(session: Session, conditions: Sequence[Any]) -> tuple[list[str], list[int]]:
    """Return the prompt id of each tally, and its numbers of wrong and right completions and groups in one
    integer.

    The database returns both lists as JSON texts, which is four times as fast as sorting the rows by prompt
    and creating an object for each of them.
    """
    count = GroupTally.completions
    packed_tallies = (
        case((RIGHT_CONDITION, count), else_=0) * literal(1 << COUNT_BITS, BigInteger)
        + case((WRONG_CONDITION, count), else_=0) * literal(1 << 2 * COUNT_BITS, BigInteger)
        + case((GroupTally.number == 0, 1), else_=0)
    )
    gather = func.json_agg if is_postgres(session) else func.json_group_array
    texts = [cast(gather(column), Text) for column in (GroupTally.prompt_id, packed_tallies)]
    row = session.execute(select(*texts).where(*conditions)).one()
    return orjson.loads(row[0] or "[]"), orjson.loads(row[1] or "[]")


def _sort_prompts(prompts: list[PromptHistory], sort: Order) -> list[PromptHistory]:
    """Sort prompts by a number, and equal ones by id; prompts without the number come last."""
    name = sort.removeprefix("-")
    sign = -1 if sort.startswith("-") else 1

    def key(prompt: PromptHistory) -> tuple[bool, float, str]:
        value = prompt.groups if name == "visits" else getattr(prompt, name)
        return value is None, 0.0 if value is None else sign * value, prompt.id

    return sorted(prompts, key=key)


def prompts_json(session: Session, run_id: str, prompts: Sequence[PromptHistory]) -> list[dict[str, Any]]:
    """Return prompts with the beginnings of their texts, as described by `schemas.PromptItem`."""
    texts = load_prompts(session, run_id, [prompt.id for prompt in prompts])
    return [
        {
            "id": prompt.id,
            **_excerpt(texts.get(prompt.id)),
            "groups": prompt.groups,
            "graded": prompt.graded,
            "right": prompt.right,
            "state": prompt.state,
            "windows": prompt.windows,
            **{name: getattr(prompt, name) for name in ("rate", "first", "last", "drift")},
        }
        for prompt in prompts
    ]


def load_prompts(session: Session, run_id: str, ids: Sequence[str]) -> dict[str, RunPrompt]:
    """Return the stored prompts of a run by id, without those that are not stored."""
    prompts: dict[str, RunPrompt] = {}
    for start in range(0, len(ids), 500):
        page_ids = ids[start : start + 500]
        query = select(RunPrompt).where(RunPrompt.run_id == run_id, RunPrompt.id.in_(page_ids))
        prompts.update((row.id, row) for row in session.scalars(query))
    return prompts


def prompt_lines(session: Session, run_id: str, prompts: Sequence[PromptHistory]) -> str:
    """Return the prompts with stored and undamaged texts as JSONL, with their run and id."""
    texts = load_prompts(session, run_id, [prompt.id for prompt in prompts])
    lines = []
    for prompt in prompts:
        if (stored_text := texts.get(prompt.id)) is None:
            continue
        (text, text_damage), (answer, answer_damage) = map(
            try_unpack_text, (stored_text.prompt, stored_text.answer)
        )
        if not text_damage and not answer_damage:
            row = {"prompt": text, "answer": answer, "source_run": run_id, "source_prompt": stored_text.id}
            lines.append(json.dumps(row) + "\n")
    return "".join(lines)


def _excerpt(prompt: RunPrompt | None) -> dict[str, str]:
    if prompt is None:
        return {"prompt": "", "answer": "", "problem": "", "domain": ""}
    texts = {"prompt": try_unpack_text(prompt.prompt)[0], "answer": try_unpack_text(prompt.answer)[0]}
    return {
        **{name: text[:EXCERPT_CHARS] for name, text in texts.items()},
        "problem": prompt.problem,
        "domain": prompt.domain,
    }


def load_probes(session: Session, runs: Sequence[str], kind: str) -> dict[str, Any]:
    """Return the results of an evaluation by prompt, step and run as `schemas.ProbeMatrix`, with limited
    size.
    """
    cells: dict[str, dict[str, dict[int, tuple[float | None, bool]]]] = {}
    steps: dict[str, list[int]] = {}
    for run in runs:
        query = (
            select(
                GroupTally.prompt_id,
                GroupTally.step,
                count_completions(RIGHT_CONDITION),
                count_completions(WRONG_CONDITION),
                count_completions(mark_condition(BIT_BY_MARK["stored"])),
            )
            .where(*valid_tally_conditions(session, run, kind))
            .group_by(GroupTally.prompt_id, GroupTally.step)
        )
        for prompt, step, right_count, wrong_count, is_stored in session.execute(query):
            graded_count = right_count + wrong_count
            rates = cells.setdefault(prompt, {}).setdefault(run, {})
            rates[step] = (right_count / graded_count if graded_count else None, bool(is_stored))
        steps[run] = sorted({step for by_run in cells.values() for step in by_run.get(run, ())})
    width = sum(map(len, steps.values()))
    limit = min(MAX_PROBES, max(1, MAX_CELLS // max(1, width)))
    stored_first = sorted(cells, key=lambda prompt: (not _is_stored(cells[prompt]), prompt))[:limit]
    texts: dict[str, RunPrompt] = {}
    for run in runs:
        missing_prompts = [prompt for prompt in stored_first if prompt not in texts]
        texts |= load_prompts(session, run, missing_prompts)
    items = [
        {
            "id": prompt,
            **_excerpt(texts.get(prompt)),
            "runs": [_probe_row(cells[prompt].get(run, {}), steps[run]) for run in runs],
        }
        for prompt in stored_first
    ]
    rows = [{"id": run, "steps": steps[run]} for run in runs]
    return {"runs": rows, "items": items, "prompts": len(cells)}


def _is_stored(cells_by_run: dict[str, dict[int, tuple[float | None, bool]]]) -> bool:
    return any(has_rollouts for cells in cells_by_run.values() for _, has_rollouts in cells.values())


def _probe_row(cells: dict[int, tuple[float | None, bool]], steps: Sequence[int]) -> dict[str, Any]:
    """Return the results of a prompt in a run; it is solved if at least half of the graded completions are
    right.
    """
    rates = [cells[step][0] if step in cells else None for step in steps]
    solved_at = [(step, rate >= 1 / 2) for step, rate in zip(steps, rates, strict=True) if rate is not None]
    first_solved = next((step for step, is_solved in solved_at if is_solved), None)
    first_lost = next(
        (
            step
            for step, is_solved in solved_at
            if first_solved is not None and step > first_solved and not is_solved
        ),
        None,
    )
    return {
        "rates": rates,
        "stored": [step in cells and cells[step][1] for step in steps],
        "first_solved": first_solved,
        "first_lost": first_lost,
        "forgotten": first_solved is not None and not solved_at[-1][1],
    }
