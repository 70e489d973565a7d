"""Limit the size of token values per run and per installation by removing those of the oldest steps.

The alternatives of tokens are removed first, from the oldest step on, and then the values that are only used
to color tokens (those not in `token_values.COMPUTED_FROM`). If that is not enough, the tokens are removed.
The newest step of a run stays unchanged, and so do completions, rewards and tallies. If the installation
exceeds its budget, the run with the most bytes is reduced first, down to its newest step, and then the next
run. A damaged frame is reported once and stays until the tokens of its step are removed. Each step is changed
in its own transaction, and repeating a removal is safe.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, select, update
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.rollouts.packing import PackedDamaged, Tokens, pack_tokens, unpack_tokens
from backend.rollouts.token_values import ALTERNATIVE_PREFIX, COMPUTED_FROM
from backend.runs.events import add_event
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import BEFORE_ALL_STEPS, Event, RolloutGroup, RolloutTokens, Run

KIND = "tokens"
"""Kind of the event that reports removed values."""
MEGABYTE = 1_000_000
GROUPS_AT_ONCE = 64
LATE_STEPS = 100
"""Number of newest steps that are counted again, because completions may be stored after their step."""

RunProgress = tuple[int, int]
"""Attempt and last step of a run; the size of its values only changes with them."""


@dataclass(slots=True)
class _CountedBytes:
    """Size of a run's token values, in bytes."""

    progress: RunProgress
    """Stamp of the run when its bytes were counted."""
    end: int
    """Last step that is not counted again within the attempt."""
    settled_bytes: int
    """Bytes up to the step `end`."""
    unsettled: int
    """Bytes after the step `end`."""
    event: int
    """Id of the newest removal event, which shows whether another process has removed values since."""

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return self.settled_bytes + self.unsettled

    def subtract(self, step: int, size: int) -> None:
        """Subtract the removed bytes of a step."""
        if step <= self.end:
            self.settled_bytes -= size
        else:
            self.unsettled -= size


class TokenBudget:
    """Enforce the budgets, and cache the sizes of unchanged runs."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._sessions = sessions
        self._of_run = settings.token_mb_per_run * MEGABYTE
        self._of_all = settings.token_mb * MEGABYTE
        self._known: dict[str, _CountedBytes] = {}

    def sweep(self) -> Iterator[None]:
        """Check all runs once, yielding after each piece of work."""
        if not self._of_run and not self._of_all:
            return
        with open_read_session(self._sessions) as session:
            query = select(Run.id, Run.attempt, Run.last_step).where(Run.deleting_at.is_(None))
            runs: dict[str, RunProgress] = {row[0]: (row[1], row[2]) for row in session.execute(query)}
        self._known = {run: usage for run, usage in self._known.items() if run in runs}
        for run, progress in runs.items():
            usage = self._known.get(run)
            if usage is None or usage.progress != progress:
                with open_read_session(self._sessions) as session:
                    self._known[run] = _count_bytes(session, run, progress, usage)
                yield
            if self._of_run and self._known[run].size > self._of_run:
                self._count_again([run], runs)
                yield from self._shrink(run, self._of_run, "the run")
        if self._of_all and sum(usage.size for usage in self._known.values()) > self._of_all:
            self._count_again(runs, runs)
        can_shrink = {run for run, usage in self._known.items() if usage.size}
        while self._of_all and can_shrink:
            if (excess := sum(usage.size for usage in self._known.values()) - self._of_all) <= 0:
                return
            largest = max(can_shrink, key=lambda run: self._known[run].size)
            size_before = self._known[largest].size
            yield from self._shrink(largest, max(0, size_before - excess), "the installation")
            if self._known[largest].size >= size_before:  # only its newest step is left
                can_shrink.discard(largest)
                yield

    def _count_again(self, run_ids: Iterable[str], stamps: Mapping[str, RunProgress]) -> None:
        """Count the bytes again for runs from which another process has removed values."""
        with open_read_session(self._sessions) as session:
            for run in run_ids:
                if _newest_event(session, run) != self._known[run].event:
                    self._known[run] = _count_bytes(session, run, stamps[run], None)

    def _shrink(self, run: str, limit: int, whose: str) -> Iterator[None]:
        usage = self._known[run]
        megabytes = (self._of_run if whose == "the run" else self._of_all) / MEGABYTE
        step_by_name = {}
        for name, remove in REMOVER_BY_PIECE.items():
            with open_read_session(self._sessions) as session:
                if name == "alternatives" and not has_alternatives(session, run):
                    continue
                steps = _steps(session, run)
                removed_before = removed_steps(session, run)
                first = 0 if name == "tokens" else removed_before.get(name, -1) + 1
            for step in steps[:-1]:
                if usage.size <= limit:
                    break
                if step >= first:
                    with self._sessions.begin() as session:
                        freed_bytes = remove(session, run, step)
                    usage.subtract(step, freed_bytes)
                    step_by_name[name] = step
                    yield
        if step_by_name:
            with self._sessions.begin() as session:
                add_event(
                    session,
                    KIND,
                    _removal_sentence(step_by_name, megabytes, whose),
                    run_id=run,
                    data=step_by_name,
                )
                usage.event = _newest_event(session, run)


def _removal_sentence(step_by_name: dict[str, int], megabytes: float, whose: str) -> str:
    values = (
        f"values that colour tokens up to step {step_by_name['values']}" if "values" in step_by_name else ""
    )
    alternatives = (
        f"alternatives up to step {step_by_name['alternatives']}" if "alternatives" in step_by_name else ""
    )
    tokens = f"all tokens up to step {step_by_name['tokens']}" if "tokens" in step_by_name else ""
    removed_values = " and ".join(filter(None, (alternatives, values, tokens)))
    return f"removed {removed_values} to keep the token values of {whose} within {megabytes:,g} MB"


def _count_bytes(
    session: Session, run_id: str, progress: RunProgress, previous: _CountedBytes | None
) -> _CountedBytes:
    """Count the bytes of a run; within the same attempt, only those of the newest steps are counted again."""
    attempt, last_step = progress
    end, settled_bytes = BEFORE_ALL_STEPS, 0
    if previous is not None and previous.progress[0] == attempt:
        end, settled_bytes = previous.end, previous.settled_bytes
    new_end = max(end, last_step - LATE_STEPS)
    # The event is read before the values are counted.
    event = _newest_event(session, run_id) if previous is None else previous.event
    settled_bytes += _sum_bytes(session, run_id, end, new_end)
    return _CountedBytes(progress, new_end, settled_bytes, _sum_bytes(session, run_id, new_end, None), event)


def _newest_event(session: Session, run_id: str) -> int:
    """Return the id of the newest event about removed values; 0 if there is none."""
    query = select(func.max(Event.id)).where(Event.run_id == run_id, Event.kind == KIND)
    return session.scalar(query) or 0


def _sum_bytes(session: Session, run_id: str, after_step: int, last: int | None) -> int:
    """Return the bytes of a run's token values after one step and up to another.

    The query does not group by step, because SQLite would then read all values instead of only their lengths.
    """
    query = (
        select(func.sum(func.length(RolloutTokens.data)))
        .join(RolloutGroup, RolloutTokens.group_id == RolloutGroup.id)
        .where(RolloutGroup.run_id == run_id, RolloutGroup.step > after_step)
    )
    return int(session.scalar(query if last is None else query.where(RolloutGroup.step <= last)) or 0)


def _steps(session: Session, run_id: str) -> list[int]:
    """Return the steps of a run that have token values."""
    has_any = exists().where(RolloutTokens.group_id == RolloutGroup.id)
    steps = select(RolloutGroup.step).where(RolloutGroup.run_id == run_id, has_any).distinct()
    return list(session.scalars(steps.order_by(RolloutGroup.step)))


def removed_steps(session: Session, run_id: str) -> dict[str, int]:
    """Return the last step whose `alternatives`, `values` and `tokens` were removed because of a budget."""
    last_step_by_name: dict[str, int] = {}
    query = select(Event.data).where(Event.run_id == run_id, Event.kind == KIND)
    for data in session.scalars(query):
        for name in ("alternatives", "values", "tokens"):
            if isinstance(step := data.get(name), int):
                last_step_by_name[name] = max(step, last_step_by_name.get(name, -1))
    return last_step_by_name


def removal_reason(session: Session, run_id: str, step: int, name: str = "tokens") -> str:
    """Return the message about the removal of a step's `values` or `tokens`, or an empty string."""
    query = select(Event.message, Event.data).where(Event.run_id == run_id, Event.kind == KIND)
    for message, data in session.execute(query.order_by(Event.id.desc())):
        if isinstance(last := data.get(name), int) and step <= last:
            return str(message)
    return ""


def _strip(session: Session, run_id: str, step: int) -> int:
    """Remove the values that are only used to color tokens, and return the freed bytes."""
    return _repack(session, run_id, step, lambda name: name in COMPUTED_FROM)


def _strip_alternatives(session: Session, run_id: str, step: int) -> int:
    """Remove the alternatives of tokens and return the freed bytes."""
    return _repack(session, run_id, step, lambda name: not name.startswith(ALTERNATIVE_PREFIX))


def has_alternatives(session: Session, run_id: str) -> bool:
    """Return whether the config of a run enables the alternatives of tokens."""
    config = session.scalar(select(Run.config).where(Run.id == run_id)) or {}
    recording = config.get("recording")  # the config of another trainer may contain any value
    return isinstance(recording, Mapping) and bool(recording.get("alternatives"))


def _repack(session: Session, run_id: str, step: int, is_retained: Callable[[str], bool]) -> int:
    """Keep only the values of a step whose names satisfy `is_retained`, and return the freed bytes."""
    freed_bytes = 0
    damage: dict[str, str] = {}
    ids = session.scalars(_step_condition(run_id, step)).all()
    for start in range(0, len(ids), GROUPS_AT_ONCE):
        is_in_chunk = RolloutTokens.group_id.in_(ids[start : start + GROUPS_AT_ONCE])
        changed_rows = []
        for group, data in session.execute(
            select(RolloutTokens.group_id, RolloutTokens.data).where(is_in_chunk)
        ):
            try:
                packed_tokens = pack_tokens(
                    [_filter_values(tokens, is_retained) for tokens in unpack_tokens(data)]
                )
            except PackedDamaged as error:
                damage[group] = str(error)
                continue
            if len(packed_tokens) < len(data):
                changed_rows.append({"group": group, "packed": packed_tokens})
                freed_bytes += len(data) - len(packed_tokens)
        if changed_rows:
            table: Any = RolloutTokens.__table__
            statement = update(table).where(table.c.group_id == bindparam("group"))
            session.connection().execute(statement.values(data=bindparam("packed")), changed_rows)
    if damage:
        _report_damage(session, run_id, step, damage)
    return freed_bytes


def _report_damage(session: Session, run_id: str, step: int, damage: Mapping[str, str]) -> None:
    """Report damaged tokens of a step that cannot be repacked, once per group."""
    conditions = (Event.run_id == run_id, Event.kind == KIND, Event.step == step)
    reported_damage = [data.get("damaged") for data in session.scalars(select(Event.data).where(*conditions))]
    reported_groups = [
        group for groups in reported_damage if isinstance(groups, list) for group in groups
    ]  # may be imported
    if not (new_groups := sorted(group for group in damage if group not in reported_groups)):
        return
    groups = f"{len(new_groups)} group" + ("" if len(new_groups) == 1 else "s")
    message = (
        f"the tokens of {groups} at step {step} are damaged and stay until all tokens of the step give way: "
        f"{damage[new_groups[0]]}"
    )
    add_event(session, KIND, message, run_id=run_id, level="warning", step=step, data={"damaged": new_groups})


def _filter_values(tokens: Tokens, is_retained: Callable[[str], bool]) -> Tokens:
    arrays = {name: values for name, values in tokens.arrays.items() if is_retained(name)}
    return Tokens(tokens.strings, tokens.ids, arrays)


def _remove(session: Session, run_id: str, step: int) -> int:
    """Remove the tokens of a step and return the freed bytes."""
    is_of_step = RolloutTokens.group_id.in_(_step_condition(run_id, step))
    freed_bytes = session.scalar(select(func.sum(func.length(RolloutTokens.data))).where(is_of_step)) or 0
    session.execute(delete(RolloutTokens).where(is_of_step), execution_options={"synchronize_session": False})
    return int(freed_bytes)


def _step_condition(run_id: str, step: int) -> Any:
    return select(RolloutGroup.id).where(RolloutGroup.run_id == run_id, RolloutGroup.step == step)


REMOVER_BY_PIECE = {"alternatives": _strip_alternatives, "values": _strip, "tokens": _remove}
"""Functions that remove token values, in the order in which they are applied."""
