"""Read rollouts from the database: the newest attempt's groups of each step, with their completions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, func, select, tuple_
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from backend.base.errors import FieldError, InvalidRequest, NotFound
from backend.http.paging import read_cursor
from backend.metrics.attempts import load_limits, valid_row_condition
from backend.rollouts.alternatives import read_alternatives
from backend.rollouts.marks import BIT_BY_MARK, FLAGS
from backend.rollouts.packing import PackedDamaged, text_bytes, try_unpack_text, unpack_tokens
from backend.rollouts.token_budget import removal_reason
from backend.rollouts.token_values import ALTERNATIVE_PREFIX
from backend.rollouts.turns import observation_mask, split_into_blocks
from backend.storage.completion import Completion
from backend.storage.completion_codec import CompletionSelection
from backend.storage.completions import damage_reason, find_completion, iterate_completions
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import GroupTally, RolloutGroup, RolloutTokens
from backend.storage.numbers import spell

MAX_PAGE_TOKENS = 2_000_000
"""Maximum number of tokens in all prompts and completions of a page, about ten megabytes of text."""

STEPS_AT_ONCE = 5_000

NO_REWARD = -1e308
"""Sort key of groups without a reward, below all rewards."""

_REWARD = func.coalesce(RolloutGroup.reward_mean, NO_REWARD)
_PLACE = (RolloutGroup.step, RolloutGroup.kind, RolloutGroup.prompt_index, RolloutGroup.id)
_PLACE_KINDS = (int, str, int, str)

GROUPS_AT_ONCE = 64
"""Initial number of groups whose completions are searched; each following query reads four times as many."""
MAX_AT_ONCE = 1_024

ORDERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "step": (_PLACE, _PLACE_KINDS),
    "reward": ((_REWARD, *_PLACE), ((int, float), *_PLACE_KINDS)),
}
"""Sort columns and cursor types by sort name, without the optional `-`."""


@dataclass(frozen=True, slots=True)
class RolloutFilter:
    """Filter for a list of groups with at least one matching completion."""

    run: str
    step: int | None = None
    kind: str = ""
    prompt: str = ""
    min_reward: float | None = None
    max_reward: float | None = None
    flag: str = ""
    correct: bool | None = None
    q: str = ""
    """Substring of the text, ignoring case."""

    @property
    def is_of_completions(self) -> bool:
        """Whether the completions must be checked one by one."""
        values = (self.min_reward, self.max_reward, self.correct)
        return bool(self.flag or self.q) or any(value is not None for value in values)

    def passes(self, completion: Completion) -> bool:
        """Return whether a completion matches the filter."""
        return (
            (
                self.min_reward is None
                or (completion.reward is not None and completion.reward >= self.min_reward)
            )
            and (
                self.max_reward is None
                or (completion.reward is not None and completion.reward <= self.max_reward)
            )
            and (not self.flag or self.flag in completion.flags)
            and (self.correct is None or completion.correct is self.correct)
            and (not self.q or self.q.lower() in completion.clean_text.lower())
        )

    def tally_conditions(self) -> list[ColumnElement[bool]]:
        """Return SQL conditions that the tallies of all matching completions meet."""
        marks = 0 if self.correct is None else BIT_BY_MARK["right" if self.correct else "wrong"]
        if self.flag in FLAGS and self.flag != "unscored":  # `rewarded` does not imply a reward
            marks |= BIT_BY_MARK[self.flag]
        return [
            *([GroupTally.reward >= self.min_reward] if self.min_reward is not None else []),
            *([GroupTally.reward <= self.max_reward] if self.max_reward is not None else []),
            *([GroupTally.marks.bitwise_and(marks) == marks] if marks else []),
        ]


def has_tally(conditions: Sequence[ColumnElement[bool]]) -> list[ColumnElement[bool]]:
    """Return the SQL condition that a group has a tally that meets `conditions`; empty without conditions."""
    names = ("run_id", "kind", "step", "prompt_index", "attempt")
    same_group = [getattr(GroupTally, name) == getattr(RolloutGroup, name) for name in names]
    return [exists().where(*same_group, *conditions)] if conditions else []


def list_groups(
    session: Session, rollout_filter: RolloutFilter, *, sort: str, limit: int, cursor: str
) -> Sequence[RolloutGroup]:
    """Return a page of groups and one additional group."""
    columns, kinds = _sort_order(sort)
    is_descending = sort.startswith("-")
    sort_key = tuple_(*columns)
    order = [column.desc() if is_descending else column.asc() for column in columns]
    conditions, last_key = _conditions(session, rollout_filter), read_cursor(cursor, *kinds, order=sort)

    def behind(key: Sequence[Any] | None) -> list[ColumnElement[bool]]:
        return [] if key is None else [sort_key < tuple(key) if is_descending else sort_key > tuple(key)]

    if not rollout_filter.is_of_completions:
        query = select(RolloutGroup).where(*conditions, *behind(last_key)).order_by(*order)
        return session.scalars(query.limit(limit + 1)).all()
    ids: list[str] = []
    size = max(limit + 1, GROUPS_AT_ONCE)
    while True:
        query = select(RolloutGroup.id.label("group"), *columns).where(*conditions, *behind(last_key))
        rows = session.execute(query.order_by(*order).limit(size)).all()
        ids += _matching_groups(session, rollout_filter, [row.group for row in rows])
        if len(rows) < size or len(ids) > limit:
            break
        last_key, size = list(rows[-1])[1:], min(4 * size, MAX_AT_ONCE)
    matching_groups = select(RolloutGroup).where(RolloutGroup.id.in_(ids[: limit + 1])).order_by(*order)
    return session.scalars(matching_groups).all()


def _matching_groups(session: Session, rollout_filter: RolloutFilter, ids: Sequence[str]) -> Iterator[str]:
    selection = CompletionSelection(texts=bool(rollout_filter.q), substring=rollout_filter.q.lower())
    for group, completions in iterate_completions(session, ids, selection):
        if any(map(rollout_filter.passes, completions)):
            yield group


def cursor_key(group: RolloutGroup, sort: str) -> tuple[Any, ...]:
    """Return the position of a group in a list, for the cursor."""
    key = (group.step, group.kind, group.prompt_index, group.id)
    if sort.removeprefix("-") == "step":
        return key
    return (NO_REWARD if group.reward_mean is None else group.reward_mean, *key)


def _sort_order(sort: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if sort.removeprefix("-") not in ORDERS:
        reason = f"is {sort!r}; expected step, -step, reward or -reward"
        raise InvalidRequest([FieldError("sort", reason)])
    return ORDERS[sort.removeprefix("-")]


def _conditions(session: Session, rollout_filter: RolloutFilter) -> list[ColumnElement[bool]]:
    conditions = valid_group_conditions(session, rollout_filter.run)
    if rollout_filter.step is not None:
        conditions.append(RolloutGroup.step == rollout_filter.step)
    if rollout_filter.kind:
        conditions.append(RolloutGroup.kind == rollout_filter.kind)
    if rollout_filter.prompt:
        conditions.append(RolloutGroup.prompt_id == rollout_filter.prompt)
    return [*conditions, *has_tally(rollout_filter.tally_conditions())]


def valid_group_conditions(session: Session, run_id: str) -> list[ColumnElement[bool]]:
    """Return SQL conditions for groups of this run that no later attempt hides."""
    limits = load_limits(session, [run_id]).get(run_id, ())
    return [RolloutGroup.run_id == run_id, valid_row_condition(RolloutGroup, limits)]


def group_json(group: RolloutGroup, completions: Sequence[Completion]) -> dict[str, Any]:
    """Return a group as the HTTP API shows it, as described by `schemas.GroupItem`."""
    (prompt, prompt_damage), (answer, answer_damage) = map(try_unpack_text, (group.prompt, group.answer))
    damage = [
        damage_reason(group.id),
        f"its prompt: {prompt_damage}" if prompt_damage else "",
        f"its answer: {answer_damage}" if answer_damage else "",
    ]
    return {
        "id": group.id,
        "run": group.run_id,
        "step": group.step,
        "attempt": group.attempt,
        "kind": group.kind,
        "prompt_index": group.prompt_index,
        "prompt_id": group.prompt_id,
        "problem": group.problem,
        "domain": group.domain,
        "prompt": prompt,
        "answer": answer,
        "reward_mean": group.reward_mean,
        "reward_std": group.reward_std,
        "left_out": group.left_out,
        "damage": "; ".join(filter(None, damage)),
        "completions": [_completion_json(rollout) for rollout in completions],
    }


def _completion_json(rollout: Completion) -> dict[str, Any]:
    return {
        "id": rollout.id,
        "text": rollout.text,
        "blocks": split_into_blocks(rollout.text, rollout.turns),
        "reward": rollout.spell("reward"),
        "rewards": rollout.rewards,
        "advantage": rollout.spell("advantage"),
        "tokens": rollout.tokens,
        "finish_reason": rollout.finish_reason,
        "correct": rollout.correct,
        "flags": rollout.flags,
    }


def load_page_completions(session: Session, groups: Sequence[RolloutGroup]) -> dict[str, list[Completion]]:
    """Return the completions of as many groups as fit in one response, but of at least one group."""
    page_completions: dict[str, list[Completion]] = {}
    total = 0
    prompts = {group.id: (text_bytes(group.prompt) + text_bytes(group.answer)) // 4 for group in groups}
    for group, completions in iterate_completions(session, [group.id for group in groups]):
        total += sum(map(_length, completions)) + prompts[group]
        if page_completions and total > MAX_PAGE_TOKENS:
            break
        page_completions[group] = completions
    return page_completions


def _length(completion: Completion) -> int:
    """Return the number of tokens of a completion, or an estimate if the pushing trainer reported too few."""
    return max(completion.tokens, len(completion.text) // 4)


def step_counts(sessions: Sessions, run_id: str, prompt_id: str = "") -> Iterator[dict[str, Any]]:
    """Yield the number and mean reward of the stored groups of each step and kind, reading them in batches.

    With a prompt id, only groups of this prompt are counted.
    """
    prompt_condition = [RolloutGroup.prompt_id == prompt_id] if prompt_id else []
    columns = (RolloutGroup.step, RolloutGroup.kind)
    mean_columns = (func.count().label("groups"), func.avg(RolloutGroup.reward_mean).label("reward_mean"))
    query = select(*columns, *mean_columns).group_by(*columns).order_by(*columns).limit(STEPS_AT_ONCE)
    last_key: tuple[Any, ...] = (-1, "")
    while True:
        with open_read_session(sessions) as session:
            is_after = tuple_(*columns) > last_key
            rows = session.execute(
                query.where(*valid_group_conditions(session, run_id), *prompt_condition, is_after)
            ).all()
        yield from (dict(row._mapping) for row in rows)  # noqa: SLF001 - a Row's public dict
        if len(rows) < STEPS_AT_ONCE:
            return
        last_key = (rows[-1].step, rows[-1].kind)


def load_tokens(session: Session, rollout_id: str) -> dict[str, Any]:
    """Return the tokens of a completion with their values, as `schemas.TokensAnswer`."""
    rollout = find_completion(session, rollout_id)
    if rollout is None:
        raise NotFound(f"there is no completion {rollout_id!r}")
    group = session.get_one(RolloutGroup, rollout.group_id)
    packed_tokens = session.get(RolloutTokens, rollout.group_id)
    shared_fields = {"id": rollout.id, "advantage": rollout.spell("advantage")}
    if packed_tokens is None:
        if note := removal_reason(session, group.run_id, group.step):
            return shared_fields | _missing_tokens(note=note)
        raise NotFound(f"the tokens of completion {rollout_id!r} were not recorded (recording.tokens)")
    try:
        group_tokens = unpack_tokens(packed_tokens.data)
        tokens = group_tokens[rollout.position]
    except PackedDamaged as error:
        return shared_fields | _missing_tokens(damage=str(error))
    except IndexError:
        return shared_fields | _missing_tokens(
            damage=f"it holds tokens of {len(group_tokens)} completions alone"
        )
    arrays = {
        name: [spell(value) for value in values.tolist()]
        for name, values in tokens.arrays.items()
        if name != "mask" and not name.startswith(ALTERNATIVE_PREFIX)
    }
    alternatives = read_alternatives(tokens, group_tokens)
    removal_reasons = [
        removal_reason(session, group.run_id, group.step, name)
        for name in ("values", *(["alternatives"] if alternatives is None else []))
    ]
    mask = tokens.arrays.get("mask")
    return {
        **shared_fields,
        "tokens": list(tokens.strings),
        "token_ids": tokens.ids.tolist(),
        "arrays": arrays,
        "note": next(filter(None, removal_reasons), ""),
        "damage": "",
        "alternatives": alternatives,
        "observed": observation_mask(rollout.turns, len(tokens.strings)) if rollout.turns else [],
        "mask": [1] * len(tokens.strings) if mask is None else mask.astype(int).tolist(),
    }


def _missing_tokens(*, note: str = "", damage: str = "") -> dict[str, Any]:
    """Return the response for a completion whose tokens cannot be shown."""
    empty_lists: dict[str, Any] = {name: [] for name in ("tokens", "token_ids", "mask", "observed")}
    return empty_lists | {"arrays": {}, "alternatives": None, "note": note, "damage": damage}
