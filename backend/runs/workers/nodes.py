"""Groups of nodes that train a run together: who is there, which attempt they train, what each answers.

Each node has one row, which its worker renews. The leader, rank 0, writes into its own which attempt it
trains and where the ranks meet; the others write into theirs whether they come, and why their part ended.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from backend.runs.workers.store import FORGOTTEN_SECONDS
from backend.storage.engine import db_now
from backend.storage.live_workers import SILENT_SECONDS
from backend.storage.models import Node, Run

BEAT_SECONDS = 2.0
"""Seconds between two heartbeats of a node."""

State = Literal["ready", "refused", "ended", "leaving"]


class Order(NamedTuple):
    """The leader's order to its group: the attempt that it trains, and the address where the ranks meet."""

    run_id: str
    attempt: int
    address: str
    port: int
    nonce: str
    """Secret of this attempt, which a file in the shared state directory holds too."""
    workers: Sequence[str]
    """Worker of each node, by rank: nobody else comes."""


class Answer(NamedTuple):
    """The word of another node to the leader."""

    run_id: str
    attempt: int
    state: State
    reason: str = ""
    is_own_fault: bool = False
    """Whether what ended its part counts against the run's retries."""
    output: str = ""
    """The last lines that its ranks printed before their end."""


class Seat(NamedTuple):
    """A node's row, with the time since its last heartbeat."""

    rank: int
    worker_id: str
    host: str
    address: str
    nodes: int
    devices: int
    traits: Mapping[str, str]
    work: Mapping[str, Any]
    seen_at: float
    silent_seconds: float
    """Since its last sign of life."""

    @property
    def title(self) -> str:
        """The name in a reason, e.g. "node 1 (gpu-07)"."""
        return f"node {self.rank} ({self.host})"

    @property
    def is_leaving(self) -> bool:
        """Whether its worker ends: the seat goes a moment after its last answer."""
        return self.work.get("state") == "leaving"

    def answer_to(self, run_id: str, attempt: int) -> Answer | None:
        """Return the word of this node about that attempt."""
        if (self.work.get("run_id"), self.work.get("attempt")) != (run_id, attempt):
            return None
        return Answer(**self.work) if "state" in self.work else None


def take_seat(session: Session, group: str, rank: int, worker_id: str, **facts: Any) -> None:
    """Claim a place in a group, replacing any earlier owner; remove the rows of lost groups."""
    session.execute(delete(Node).where(Node.seen_at < db_now() - FORGOTTEN_SECONDS))
    row = Node(group_name=group, rank=rank, worker_id=worker_id, work={}, **facts)
    session.merge(row)
    session.flush()
    record_heartbeat(session, group, rank, worker_id)


def record_heartbeat(session: Session, group: str, rank: int, worker_id: str) -> bool:
    """Record a sign of life; return False when another worker has taken the place, or the row is gone."""
    return _change(session, group, rank, worker_id, seen_at=db_now())


def write_word(session: Session, group: str, rank: int, worker_id: str, word: Order | Answer | None) -> bool:
    """Store the leader's order or another node's answer; None removes it."""
    work = {} if word is None else word._asdict()
    return _change(session, group, rank, worker_id, work=work, seen_at=db_now())


def leave_seat(session: Session, group: str, rank: int, worker_id: str) -> None:
    """Release the place."""
    conditions = (Node.group_name == group, Node.rank == rank, Node.worker_id == worker_id)
    session.execute(delete(Node).where(*conditions))


def load_seats(session: Session, group: str) -> list[Seat]:
    """Return the nodes of a group, by rank."""
    return [_seat(*row) for row in session.execute(_seats().where(Node.group_name == group)).all()]


def complete_groups(session: Session) -> list[list[Seat]]:
    """Return the groups whose nodes were all seen lately."""
    groups: dict[str, list[Seat]] = {}
    for node, now in session.execute(_seats()).all():
        groups.setdefault(node.group_name, []).append(_seat(node, now))
    return [seats for seats in groups.values() if is_complete(seats)]


def is_complete(seats: Sequence[Seat]) -> bool:
    """Return whether all nodes of a group were seen lately and none of them is leaving."""
    ranks = [seat.rank for seat in seats if seat.silent_seconds < SILENT_SECONDS and not seat.is_leaving]
    return bool(seats) and ranks == list(range(seats[0].nodes))


def max_devices(seats: Sequence[Seat]) -> int:
    """Return the most devices that a run can have on each node of this group; 0: it is not complete."""
    return min(seat.devices for seat in seats) if is_complete(seats) else 0


def waiting_reason(groups: Sequence[Sequence[Seat]], nodes: int, devices: int) -> str:
    """Return the thing that a run on several nodes waits for, given the groups that are complete."""
    group_needed = f"a group of {nodes} nodes"
    largest = max((max_devices(seats) for seats in groups if len(seats) == nodes), default=0)
    if not largest:
        return f"{group_needed} (none is complete)"
    if devices > largest:
        return f"{group_needed} with {devices} devices each (the largest one running has {largest})"
    return f"{group_needed} that is free"


def find_order(seats: Sequence[Seat]) -> Order | None:
    """Return the leader's order, if there is one."""
    work = seats[0].work if seats and seats[0].rank == 0 else {}
    return Order(**work) if "port" in work else None


def is_current_attempt(session: Session, run_id: str, attempt: int) -> bool:
    """Return whether this attempt still owns its run."""
    owned = select(Run.id).where(Run.id == run_id, Run.attempt == attempt, Run.status == "running")
    return session.scalar(owned) is not None


def difference_sentence(seats: Sequence[Seat]) -> str:
    """Return the difference that keeps these nodes from training together, in a sentence; "": none."""
    for seat in seats[1:]:
        for trait, value in seat.traits.items():
            if value != (first := seats[0].traits.get(trait)):
                both = f"{seat.title} has {trait} {value}, {seats[0].title} has {first}"
                return f"{both}: all nodes of a run need the same versions and devices"
    return ""


def nonce_file(state: Path, run_id: str, attempt: int) -> Path:
    """Return the file of an attempt by which its nodes show that they share the state directory."""
    return state / "nodes" / f"{run_id}-{attempt}"


def _seats() -> Any:
    return select(Node, db_now()).order_by(Node.group_name, Node.rank)


def _seat(node: Node, now: float) -> Seat:
    return Seat(
        node.rank,
        node.worker_id,
        node.host,
        node.address,
        node.nodes,
        node.devices,
        node.traits,
        node.work,
        node.seen_at,
        max(0.0, now - node.seen_at),
    )


def _change(session: Session, group: str, rank: int, worker_id: str, **values: Any) -> bool:
    conditions = (Node.group_name == group, Node.rank == rank, Node.worker_id == worker_id)
    return bool(session.execute(update(Node).where(*conditions).values(**values)).rowcount)  # type: ignore[attr-defined]
