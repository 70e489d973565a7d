"""Rollouts out of SQL: of each step the newest attempt's groups, with their completions."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sqlalchemy import Text, case, cast, exists, func, select, tuple_
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from backend.db.engine import Sessions, reading
from backend.db.models import Rollout, RolloutGroup, RolloutTokens
from backend.db.numbers import spell
from backend.errors import FieldError, InvalidRequest, NotFound
from backend.http.paging import read_cursor
from backend.metrics.attempts import counts, limits_of
from backend.rollouts.alternatives import alternatives_of
from backend.rollouts.packing import unpack_text, unpack_tokens
from backend.rollouts.token_budget import why_removed
from backend.rollouts.token_values import ALTERNATIVE
from backend.rollouts.turns import blocks, observed

PAGE_TOKENS = 2_000_000
"""Of all completions of a page together: some ten megabytes of text."""

STEPS_AT_ONCE = 5_000

NO_REWARD = -1e308
"""Sorts groups without a reward below all others."""

_REWARD = func.coalesce(RolloutGroup.reward_mean, NO_REWARD)
_PLACE = (RolloutGroup.step, RolloutGroup.kind, RolloutGroup.prompt_index, RolloutGroup.id)
_PLACE_KINDS = (int, str, int, str)

_LENGTH = case((Rollout.tokens > 0, Rollout.tokens), else_=func.length(Rollout.clean_text) / 4)
"""Tokens of a completion, or an estimate where the trainer that pushed it has not counted them."""

ORDERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "step": (_PLACE, _PLACE_KINDS),
    "reward": ((_REWARD, *_PLACE), ((int, float), *_PLACE_KINDS)),
}
"""For each word after the optional `-`: the columns that are sorted by, and the types of a cursor."""


@dataclass(frozen=True, slots=True)
class RolloutFilter:
    """The filter of a list of groups: those with at least one completion that fits."""

    run: str
    step: int | None = None
    kind: str = ""
    prompt: str = ""
    min_reward: float | None = None
    max_reward: float | None = None
    flag: str = ""
    correct: bool | None = None
    q: str = ""
    """Part of the text, in any case of letters."""


def list_groups(
    session: Session, wanted: RolloutFilter, *, sort: str, limit: int, cursor: str
) -> Sequence[RolloutGroup]:
    """One page of groups and one more."""
    columns, kinds = _order(sort)
    is_descending = sort.startswith("-")
    query = select(RolloutGroup).where(*_conditions(session, wanted))
    if place := read_cursor(cursor, *kinds, order=sort):
        here = tuple_(*columns)
        query = query.where(here < tuple(place) if is_descending else here > tuple(place))
    ways = [column.desc() if is_descending else column.asc() for column in columns]
    return session.scalars(query.order_by(*ways).limit(limit + 1)).all()


def group_place(group: RolloutGroup, sort: str) -> tuple[Any, ...]:
    """A group's place in a list, for the cursor."""
    place = (group.step, group.kind, group.prompt_index, group.id)
    if sort.removeprefix("-") == "step":
        return place
    return (NO_REWARD if group.reward_mean is None else group.reward_mean, *place)


def _order(sort: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if sort.removeprefix("-") not in ORDERS:
        reason = f"is {sort!r}; step, -step, reward or -reward are expected"
        raise InvalidRequest([FieldError("sort", reason)])
    return ORDERS[sort.removeprefix("-")]


def _conditions(session: Session, wanted: RolloutFilter) -> list[ColumnElement[bool]]:
    found = valid_groups(session, wanted.run)
    if wanted.step is not None:
        found.append(RolloutGroup.step == wanted.step)
    if wanted.kind:
        found.append(RolloutGroup.kind == wanted.kind)
    if wanted.prompt:
        found.append(RolloutGroup.prompt_id == wanted.prompt)
    if of_completion := completion_conditions(wanted):
        found.append(exists().where(Rollout.group_id == RolloutGroup.id, *of_completion))
    return found


def completion_conditions(wanted: RolloutFilter) -> list[ColumnElement[bool]]:
    """SQL conditions on a completion itself."""
    found: list[ColumnElement[bool]] = []
    if wanted.min_reward is not None:
        found.append(Rollout.reward >= wanted.min_reward)
    if wanted.max_reward is not None:
        found.append(Rollout.reward <= wanted.max_reward)
    if wanted.flag:
        found.append(cast(Rollout.flags, Text).contains(json.dumps(wanted.flag), autoescape=True))
    if wanted.correct is not None:
        found.append(Rollout.correct.is_(wanted.correct))
    if wanted.q:
        found.append(Rollout.clean_text.icontains(wanted.q, autoescape=True))
    return found


def valid_groups(session: Session, run_id: str) -> list[ColumnElement[bool]]:
    """SQL conditions: groups of this run that no later attempt hides."""
    limits = limits_of(session, [run_id]).get(run_id, ())
    return [RolloutGroup.run_id == run_id, counts(RolloutGroup, limits)]


def completions_of(session: Session, group_ids: Sequence[str]) -> dict[str, list[Rollout]]:
    """The completions of some groups, in order."""
    query = (
        select(Rollout).where(Rollout.group_id.in_(group_ids)).order_by(Rollout.group_id, Rollout.position)
    )
    found: dict[str, list[Rollout]] = {}
    for rollout in session.scalars(query):
        found.setdefault(rollout.group_id, []).append(rollout)
    return found


def shown_group(group: RolloutGroup, completions: Sequence[Rollout]) -> dict[str, Any]:
    """A group as the HTTP interface shows it: schemas.GroupItem."""
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
        "prompt": unpack_text(group.prompt),
        "answer": unpack_text(group.answer),
        "reward_mean": group.reward_mean,
        "reward_std": group.reward_std,
        "left_out": group.left_out,
        "completions": [_shown_completion(rollout) for rollout in completions],
    }


def _shown_completion(rollout: Rollout) -> dict[str, Any]:
    text = unpack_text(rollout.text)
    return {
        "id": rollout.id,
        "text": text,
        "blocks": blocks(text, rollout.turns),
        "reward": rollout.non_finite.get("reward", rollout.reward),
        "rewards": rollout.rewards,
        "advantage": rollout.non_finite.get("advantage", rollout.advantage),
        "tokens": rollout.tokens,
        "finish_reason": rollout.finish_reason,
        "correct": rollout.correct,
        "flags": rollout.flags,
    }


def groups_that_fit(session: Session, groups: Sequence[RolloutGroup]) -> Sequence[RolloutGroup]:
    """The groups that fit into one response, at least one: long texts make short pages."""
    query = (
        select(Rollout.group_id, func.sum(_LENGTH))
        .where(Rollout.group_id.in_([group.id for group in groups]))
        .group_by(Rollout.group_id)
    )
    tokens: dict[str, int] = {row[0]: int(row[1] or 0) for row in session.execute(query)}
    sums = accumulate(tokens.get(group.id, 0) for group in groups)
    count = sum(1 for total in sums if total <= PAGE_TOKENS)
    return groups[: max(1, count)]


def step_counts(sessions: Sessions, run_id: str) -> Iterator[dict[str, Any]]:
    """For each step and kind how many groups are kept and their mean reward; some thousand in memory."""
    columns = (RolloutGroup.step, RolloutGroup.kind)
    means = (func.count().label("groups"), func.avg(RolloutGroup.reward_mean).label("reward_mean"))
    query = select(*columns, *means).group_by(*columns).order_by(*columns).limit(STEPS_AT_ONCE)
    place: tuple[Any, ...] = (-1, "")
    while True:
        with reading(sessions) as session:
            behind = tuple_(*columns) > place
            rows = session.execute(query.where(*valid_groups(session, run_id), behind)).all()
        yield from (dict(row._mapping) for row in rows)  # noqa: SLF001 - a Row's public dict
        if len(rows) < STEPS_AT_ONCE:
            return
        place = (rows[-1].step, rows[-1].kind)


def tokens_of(session: Session, rollout_id: str) -> dict[str, Any]:
    """The tokens of one completion with their values: schemas.TokensAnswer."""
    rollout = session.get(Rollout, rollout_id)
    if rollout is None:
        raise NotFound(f"there is no completion {rollout_id!r}")
    group = session.get_one(RolloutGroup, rollout.group_id)
    packed = session.get(RolloutTokens, rollout.group_id)
    advantage = rollout.non_finite.get("advantage", rollout.advantage)
    shared = {"id": rollout.id, "advantage": advantage}
    if packed is None:
        if note := why_removed(session, group.run_id, group.step):
            return {
                **shared,
                "tokens": [],
                "token_ids": [],
                "arrays": {},
                "alternatives": None,
                "mask": [],
                "observed": [],
                "note": note,
            }
        raise NotFound(f"the tokens of completion {rollout_id!r} were not recorded (recording.tokens)")
    of_group = unpack_tokens(packed.data)
    tokens = of_group[rollout.position]
    arrays = {
        name: [spell(value) for value in values.tolist()]
        for name, values in tokens.arrays.items()
        if name != "mask" and not name.startswith(ALTERNATIVE)
    }
    others = alternatives_of(tokens, of_group)
    gone = [
        why_removed(session, group.run_id, group.step, name)
        for name in ("values", *(["alternatives"] if others is None else []))
    ]
    mask = tokens.arrays.get("mask")
    return {
        **shared,
        "tokens": list(tokens.strings),
        "token_ids": tokens.ids.tolist(),
        "arrays": arrays,
        "note": next(filter(None, gone), ""),
        "alternatives": others,
        "observed": observed(rollout.turns, len(tokens.strings)) if rollout.turns else [],
        "mask": [1] * len(tokens.strings) if mask is None else mask.astype(int).tolist(),
    }
