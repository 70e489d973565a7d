"""Load the completions behind a metric in two windows, from tallies if they suffice, else from rollouts."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, FieldError, InvalidRequest
from backend.rollouts.breakdown.tokens import load_token_values
from backend.rollouts.counting import mark_condition, valid_tally_conditions
from backend.rollouts.marks import BIT_BY_MARK, FLAGS, completion_marks
from backend.rollouts.reading import valid_group_conditions
from backend.rollouts.repetition import distinct_gram_share
from backend.storage.completions import iterate_completions
from backend.storage.models import GroupTally, RolloutGroup

MAX_CELLS = 200_000
"""Maximum number of rows that are read for both windows together."""

MAX_TEXTS = 20_000
"""Maximum number of rows for both windows together if texts are read."""

By = Literal["prompt", "group", "flag", "length", "term"]
GroupPlace = tuple[int, int]
"""Step and prompt_index of a group."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Completions of a group with the same marks and reward, or a single completion if rollouts are read."""

    step: int
    prompt_index: int
    prompt_id: str
    domain: str
    marks: int
    reward: float | None
    tokens: int
    """Total number of tokens of the completions."""
    count: int = 1
    rewards: dict[str, Any] = field(default_factory=dict)
    """Reward terms of a single completion; empty for several."""
    repetition: float | None = None
    """Share of the end of the completion that repeats earlier text; None if texts are not read."""
    token_value: float | None = None
    """Mean or sum over the tokens; None if they are not read, not stored or did not train."""

    def has(self, mark: str) -> bool:
        """Return whether the completions have a mark."""
        return bool(self.marks & BIT_BY_MARK[mark])

    @property
    def flags(self) -> list[str]:
        """The marks `right` or `wrong`, and the flags of the trainer."""
        return [name for name in ("right", "wrong", *FLAGS) if self.has(name)]


@dataclass(frozen=True, slots=True)
class Mean:
    """A metric that is a mean over the completions of a step."""

    name: str
    kind: str
    """Kind of the completions: `train`, `eval` or `eval/<suite>`."""
    quantity: str
    """Value to average: `reward`, `accuracy`, `length`, `truncated`, `repetition`, `same_reward`, the name of
    a reward term, or a token value (`entropy`, `kl` or `loss`).
    """
    is_term: bool = False
    by_prompt: bool = False
    """Whether all prompts have the same weight, regardless of their number of graded completions."""

    @property
    def is_of_tokens(self) -> bool:
        """Whether the metric is computed from the recorded values of tokens."""
        return self.quantity in TOKEN_METRICS and not self.is_term

    @property
    def is_sum(self) -> bool:
        """Whether the metric is a sum over completions."""
        return self.quantity == "loss" and not self.is_term

    def value(self, cell: Cell) -> float | None:
        """Return the value of each completion of a cell; None if the completion does not count."""
        if self.is_term:
            value = cell.rewards.get(self.quantity)
            return None if value is None or isinstance(value, str) else float(value)
        match self.quantity:
            case "reward":
                return cell.reward
            case "accuracy":
                return float(cell.has("right")) if cell.has("right") or cell.has("wrong") else None
            case "length":
                return cell.tokens / cell.count
            case "repetition":
                return cell.repetition
            case "entropy" | "kl" | "loss":
                return cell.token_value
            case "same_reward":
                return None if cell.reward is None else float(cell.has("same_reward"))
            case _:
                return float(cell.has("truncated"))


_TRAIN = {
    "reward/mean": "reward",
    "reward/accuracy": "accuracy",
    "length/mean": "length",
    "length/truncated_frac": "truncated",
    "text/repetition": "repetition",
}
_TOKENS = {"policy/entropy": "entropy", "kl/k3": "kl", "loss/total": "loss"}
TOKEN_METRICS = frozenset(_TOKENS.values())
_EVAL = {"accuracy": "accuracy", "length_mean": "length", "truncated_frac": "truncated"}
_TERM = re.compile(r"reward/([^/]+)/mean")
_SUITE = re.compile(r"(eval(?:/[^/]+)?)/(accuracy|length_mean|truncated_frac)")


def parse_metric(metric: str) -> Mean:
    """Return the mean behind a metric; raise InvalidRequest if the metric is not a mean over completions."""
    if metric in _TRAIN:
        return Mean(metric, "train", _TRAIN[metric])
    if metric in _TOKENS:
        return Mean(metric, "train", _TOKENS[metric])
    if metric == "groups/zero_variance_frac":
        return Mean(metric, "train", "same_reward", by_prompt=True)
    if match := _TERM.fullmatch(metric):
        return Mean(metric, "train", match[1], is_term=True)
    if (match := _SUITE.fullmatch(metric)) and match[1] != "eval/accuracy":
        return Mean(metric, match[1], _EVAL[match[2]], by_prompt=match[2] == "accuracy")
    reason = (
        f"is {metric[:64]!r}, which is not a sum over completions; {', '.join([*_TRAIN, *_TOKENS])}, "
        "groups/zero_variance_frac, reward/<term>/mean, eval/accuracy, and accuracy, length_mean and "
        "truncated_frac of evaluations are"
    )
    raise InvalidRequest([FieldError("metric", reason)])


@dataclass(frozen=True, slots=True)
class Cells:
    """The completions that can be distinguished, and the totals of each step."""

    cells: Sequence[Cell]
    sampled: dict[int, int]
    """Number of completions of each step, including those not stored."""
    trained: dict[int, int]
    """Number of tokens of each step that trained, including those of completions not stored."""
    stored: dict[GroupPlace, str]
    """Ids of the groups whose completions are stored."""


def load_cells(session: Session, run_id: str, mean: Mean, by: By, steps: Sequence[int]) -> Cells:
    """Return the completions at some steps; raise Conflict if there are too many."""
    carried_counts = count_carried_groups(session, run_id, mean.kind, steps)
    tallied_cells = [
        cell
        for cell in _read_tally_cells(session, run_id, mean.kind, steps)
        if _is_not_carried(cell, carried_counts)
    ]
    sampled_counts: Counter[int] = Counter()
    trained_counts: Counter[int] = Counter()
    for cell in tallied_cells:
        sampled_counts[cell.step] += cell.count
        trained_counts[cell.step] += 0 if cell.has("left_out") else cell.tokens
    cells = tallied_cells
    if mean.is_of_tokens or (mean.quantity == "same_reward" and by in {"length", "term"}):
        cells = _read_marked_cells(session, run_id, mean, by, steps, tallied_cells)
        cells = [cell for cell in cells if _is_not_carried(cell, carried_counts)]
    elif mean.is_term or mean.quantity == "repetition" or by in {"length", "term"}:
        cells = [
            cell
            for cell in _read_completion_cells(session, run_id, mean, by, steps)
            if _is_not_carried(cell, carried_counts)
        ]
    return Cells(cells, sampled_counts, trained_counts, _stored_groups(session, run_id, mean.kind, steps))


def _read_marked_cells(
    session: Session, run_id: str, mean: Mean, by: By, steps: Sequence[int], tallied_cells: Sequence[Cell]
) -> list[Cell]:
    """Return one cell for each stored completion, with the marks of its group and its token value."""
    group_marks = BIT_BY_MARK["same_reward"] | BIT_BY_MARK["left_out"]
    marks_by_group = {(cell.step, cell.prompt_index): cell.marks & group_marks for cell in tallied_cells}
    cells = [
        replace(cell, marks=cell.marks | marks_by_group.get((cell.step, cell.prompt_index), 0))
        for cell in _read_completion_cells(session, run_id, mean, by, steps)
    ]
    if not mean.is_of_tokens:
        return cells
    values = load_token_values(session, run_id, mean.quantity, steps)
    next_position: Counter[GroupPlace] = Counter()
    cells_with_values = []
    for cell in cells:  # in the order of their positions in the group
        group_key = (cell.step, cell.prompt_index)
        token_value = values.get((*group_key, next_position[group_key]))
        if token_value is None and mean.quantity == "loss" and cell.has("left_out"):
            token_value = 0.0
        cells_with_values.append(replace(cell, token_value=token_value))
        next_position[group_key] += 1
    return cells_with_values


def _is_not_carried(cell: Cell, carried_counts: dict[int, int]) -> bool:
    return cell.prompt_index >= carried_counts.get(cell.step, 0)


def count_carried_groups(session: Session, run_id: str, kind: str, steps: Sequence[int]) -> dict[int, int]:
    """Return the number of groups of each step that the previous step sampled; these groups come first."""
    previous_steps = [step - 1 for step in steps]
    carried_counts: dict[int, int] = {}
    for chunk in _chunks(previous_steps):
        query = (
            select(GroupTally.step, func.count(GroupTally.prompt_index.distinct()))
            .where(
                *valid_tally_conditions(session, run_id, kind),
                GroupTally.step.in_(chunk),
                mark_condition(BIT_BY_MARK["waiting"]),
            )
            .group_by(GroupTally.step)
        )
        carried_counts.update((row[0] + 1, row[1]) for row in session.execute(query))
    return carried_counts


def _read_tally_cells(session: Session, run_id: str, kind: str, steps: Sequence[int]) -> list[Cell]:
    table = GroupTally
    columns = (table.step, table.prompt_index, table.prompt_id, table.marks, table.reward, table.tokens)
    cells: list[Cell] = []
    for chunk in _chunks(steps):
        query = select(*columns, table.completions).where(
            *valid_tally_conditions(session, run_id, kind), table.step.in_(chunk)
        )
        for step, index, prompt, marks, reward, tokens, count in _read_limited(session, query, len(cells)):
            cells.append(Cell(step, index, prompt, "", marks, reward, tokens, count))
    return cells


def _read_completion_cells(
    session: Session, run_id: str, mean: Mean, by: By, steps: Sequence[int]
) -> list[Cell]:
    """Return one cell for each stored completion, with the data that the metric and its division need."""
    reads_terms = mean.is_term or by == "term"
    reads_marks = by == "flag" or mean.quantity in {"accuracy", "truncated"}
    reads_texts = mean.quantity == "repetition"
    limit = MAX_TEXTS if reads_texts else MAX_CELLS
    columns = (RolloutGroup.step, RolloutGroup.prompt_index, RolloutGroup.prompt_id, RolloutGroup.domain)
    cells: list[Cell] = []
    for chunk in _chunks(steps):
        query = (
            select(*columns, RolloutGroup.id)
            .where(
                *valid_group_conditions(session, run_id),
                RolloutGroup.kind == mean.kind,
                RolloutGroup.step.in_(chunk),
            )
            .order_by(RolloutGroup.step, RolloutGroup.prompt_index, RolloutGroup.id)
        )
        groups = {row.id: row for row in session.execute(query.limit(limit + 1))}
        for group, completions in iterate_completions(session, list(groups)):
            cells += [
                Cell(
                    *groups[group][:4],
                    marks=completion_marks(completion) if reads_marks else 0,
                    reward=completion.reward,
                    tokens=completion.tokens,
                    rewards=dict(completion.rewards) if reads_terms else {},
                    repetition=1 - distinct_gram_share(completion.text) if reads_texts else None,
                )
                for completion in completions
            ]
            if len(cells) > limit:
                raise _too_many(limit)
    return cells


def _stored_groups(session: Session, run_id: str, kind: str, steps: Sequence[int]) -> dict[GroupPlace, str]:
    group_ids: dict[GroupPlace, str] = {}
    for chunk in _chunks(steps):
        query = select(RolloutGroup.step, RolloutGroup.prompt_index, RolloutGroup.id).where(
            *valid_group_conditions(session, run_id), RolloutGroup.kind == kind, RolloutGroup.step.in_(chunk)
        )
        group_ids.update(((row[0], row[1]), row[2]) for row in session.execute(query))
    return group_ids


def _read_limited(session: Session, query: Any, cell_count: int) -> Iterator[Any]:
    max_rows = MAX_CELLS - cell_count
    rows = session.execute(query.limit(max_rows + 1)).all()
    if len(rows) > max_rows:
        raise _too_many(MAX_CELLS)
    return iter(rows)


def _too_many(limit: int) -> Conflict:
    return Conflict(f"the two windows hold more than {limit:,} completions: choose shorter ones")


def _chunks(steps: Sequence[int]) -> Iterator[Sequence[int]]:
    return (steps[start : start + 500] for start in range(0, len(steps), 500))
