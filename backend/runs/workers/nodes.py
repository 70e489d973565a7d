"""Groups of nodes that train a run together: their members, the attempt that they train, and their answers.

The worker of each node renews the row of the node. The leader, rank 0, stores in its row which attempt it
trains and the address where the ranks meet. The other nodes store whether they join, and why their part
ended.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from backend.runs.workers.store import FORGOTTEN_SECONDS
from backend.storage.engine import db_now
from backend.storage.live_workers import MAX_SILENT_SECONDS
from backend.storage.models import Node, Run

BEAT_SECONDS = 2.0
"""Seconds between two heartbeats of a node."""

State = Literal["ready", "refused", "ended", "leaving"]


class Order(NamedTuple):
    """An order of the leader to its group: the attempt to train, and the address where the ranks meet."""

    run_id: str
    attempt: int
    address: str
    port: int
    nonce: str
    """Secret of this attempt, which is also in a file in the shared state directory."""
    workers: Sequence[str]
    """Worker of each node, by rank; no other worker may join."""


class OrderReply(NamedTuple):
    """The answer of another node to the leader."""

    run_id: str
    attempt: int
    state: State
    reason: str = ""
    is_own_fault: bool = False
    """Whether the failure counts against the retries of the run."""
    output: str = ""
    """The last lines of output of its ranks."""


class Seat(NamedTuple):
    """The row of a node, with the time since its last heartbeat."""

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
    """Seconds since the last heartbeat."""

    @property
    def title(self) -> str:
        """Name of the node in messages, such as "node 1 (gpu-07)"."""
        return f"node {self.rank} ({self.host})"

    @property
    def is_leaving(self) -> bool:
        """Whether the worker is ending; its seat is removed shortly after its last answer."""
        return self.work.get("state") == "leaving"

    def answer_to(self, run_id: str, attempt: int) -> OrderReply | None:
        """Return the answer of this node for an attempt, or None if there is none."""
        if (self.work.get("run_id"), self.work.get("attempt")) != (run_id, attempt):
            return None
        return OrderReply(**self.work) if "state" in self.work else None


def take_seat(session: Session, group: str, rank: int, worker_id: str, **facts: Any) -> None:
    """Join a group, replacing an earlier worker of this rank, and remove the rows of lost nodes."""
    session.execute(delete(Node).where(Node.seen_at < db_now() - FORGOTTEN_SECONDS))
    row = Node(group_name=group, rank=rank, worker_id=worker_id, work={}, **facts)
    session.merge(row)
    session.flush()
    record_heartbeat(session, group, rank, worker_id)


def record_heartbeat(session: Session, group: str, rank: int, worker_id: str) -> bool:
    """Record a heartbeat; return False if another worker has taken the seat or the row is gone."""
    return _change(session, group, rank, worker_id, seen_at=db_now())


def write_message(
    session: Session, group: str, rank: int, worker_id: str, message: Order | OrderReply | None
) -> bool:
    """Store the leader's order or another node's answer; None removes it."""
    document = {} if message is None else message._asdict()
    return _change(session, group, rank, worker_id, work=document, seen_at=db_now())


def leave_seat(session: Session, group: str, rank: int, worker_id: str) -> None:
    """Remove the seat of a worker."""
    conditions = (Node.group_name == group, Node.rank == rank, Node.worker_id == worker_id)
    session.execute(delete(Node).where(*conditions))


def load_seats(session: Session, group: str) -> list[Seat]:
    """Return the nodes of a group, by rank."""
    return [_seat(*row) for row in session.execute(_seats().where(Node.group_name == group)).all()]


def complete_groups(session: Session) -> list[list[Seat]]:
    """Return the groups whose nodes all have a recent heartbeat."""
    groups: dict[str, list[Seat]] = {}
    for node, now in session.execute(_seats()).all():
        groups.setdefault(node.group_name, []).append(_seat(node, now))
    return [seats for seats in groups.values() if is_complete(seats)]


def is_complete(seats: Sequence[Seat]) -> bool:
    """Return whether all nodes of a group have a recent heartbeat and none of them is leaving."""
    ranks = [seat.rank for seat in seats if seat.silent_seconds < MAX_SILENT_SECONDS and not seat.is_leaving]
    return bool(seats) and ranks == list(range(seats[0].nodes))


def count_usable_devices(seats: Sequence[Seat]) -> int:
    """Return the number of devices that a run can use on every node; 0 if the group is not complete."""
    return min(seat.devices for seat in seats) if is_complete(seats) else 0


def waiting_reason(groups: Sequence[Sequence[Seat]], nodes: int, devices: int) -> str:
    """Return a description of the group that a run on several nodes waits for, given the complete groups."""
    group_needed = f"a group of {nodes} nodes"
    largest = max((count_usable_devices(seats) for seats in groups if len(seats) == nodes), default=0)
    if not largest:
        return f"{group_needed} (none is complete)"
    if devices > largest:
        return f"{group_needed} with {devices} devices each (the largest one running has {largest})"
    return f"{group_needed} that is free"


def find_order(seats: Sequence[Seat]) -> Order | None:
    """Return the leader's order, or None if there is none."""
    document = seats[0].work if seats and seats[0].rank == 0 else {}
    return Order(**document) if "port" in document else None


def is_current_attempt(session: Session, run_id: str, attempt: int) -> bool:
    """Return whether this attempt still owns its run."""
    owned_query = select(Run.id).where(Run.id == run_id, Run.attempt == attempt, Run.status == "running")
    return session.scalar(owned_query) is not None


def difference_sentence(seats: Sequence[Seat]) -> str:
    """Return a sentence about the difference that prevents joint training; empty if there is none."""
    for seat in seats[1:]:
        for trait, value in seat.traits.items():
            if value != (leader_value := seats[0].traits.get(trait)):
                difference = f"{seat.title} has {trait} {value}, {seats[0].title} has {leader_value}"
                return f"{difference}: all nodes of a run need the same versions and devices"
    return ""


def nonce_file(state: Path, run_id: str, attempt: int) -> Path:
    """Return the file of an attempt that proves that a node shares the state directory."""
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
