"""Call and watch the nodes of a run from its trainer, which is rank 0 on the first node.

All communication goes through SQL. The leader writes its order into its row, and the other nodes answer in
their rows. If a node cannot join or fails, the attempt ends with the node's reason.
"""

import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.redaction import redact
from backend.runs.leases import fence
from backend.runs.workers.addresses import listen
from backend.runs.workers.nodes import (
    BEAT_SECONDS,
    Order,
    OrderReply,
    Seat,
    difference_sentence,
    load_seats,
    nonce_file,
    write_message,
)
from backend.storage.engine import Sessions, open_read_session
from backend.storage.live_workers import MAX_SILENT_SECONDS
from worker.db_retry import first_line, retry_query, retry_transaction
from worker.outcome import EXIT_FAILED, REASON_CHARACTERS, NodeLost
from worker.policy.ranks import Meeting, UnlikeRanks

logger = logging.getLogger(__name__)

JOIN_SECONDS = 120.0
"""Seconds that called nodes get to join."""

POLL_SECONDS = 0.5
"""Seconds between two reads of the other nodes' rows by the leader."""

BROKEN_SECONDS = 3 * BEAT_SECONDS
"""Seconds of silence after which a node counts as lost once the connection to a rank has broken."""

LINGER_SECONDS = BROKEN_SECONDS + 2.0
"""Seconds that a leader waits for the reason after it has lost a rank."""

REPORT_GRACE_SECONDS = 2.0
"""Seconds that the leader gets to report its own failure after another node has failed."""


@dataclass(slots=True)
class NodeGroup:
    """The nodes of one attempt."""

    sessions: Sessions
    run_id: str
    attempt: int
    state: Path
    node: Mapping[str, Any]
    """Facts about this node: `group`, `nodes`, `worker_id`, `ip`, `interface`, `port`."""
    stopping: threading.Event
    come_seconds: float = JOIN_SECONDS
    seats: list[Seat] = field(default_factory=list)
    """Nodes that have joined, by rank."""
    listener: socket.socket | None = None
    _nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    _is_over: threading.Event = field(default_factory=threading.Event)
    _is_broken: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def file(self) -> Path:
        """Path of the file by which the other nodes prove that they share the state directory."""
        return nonce_file(self.state, self.run_id, self.attempt)

    def call(self) -> Meeting:
        """Call the other nodes and wait until all have joined. Raise NodeLost, UnlikeRanks or Fenced."""
        self.listener = listen(self.node["ip"], self.node["port"])
        self.file.parent.mkdir(mode=0o700, exist_ok=True)
        self.file.write_text(self._nonce, encoding="ascii")
        ip, port = self.listener.getsockname()[:2]
        self._await(ip, port)
        self.file.unlink(missing_ok=True)
        self._thread = threading.Thread(target=self._watch, name="nodes", daemon=True)
        self._thread.start()
        names = ", ".join(seat.title for seat in self.seats)
        logger.info("%s meet at %s, port %d", names, ip, port)
        return Meeting("", ip, port, self._nonce, self.node["nodes"], self.node["interface"])

    def _await(self, ip: str, port: int) -> None:
        deadline = time.monotonic() + self.come_seconds
        called_workers: Sequence[str] = ()
        while missing_nodes := self._missing():
            if reason := difference_sentence(self.seats):
                raise UnlikeRanks(reason)
            workers = [seat.worker_id for seat in self.seats]
            if workers != called_workers:  # another worker may take a node's seat until all have joined
                self._publish(
                    Order(self.run_id, self.attempt, ip, port, self._nonce, called_workers := workers)
                )
            if self.stopping.wait(POLL_SECONDS):
                raise NodeLost("the worker was asked to end")
            if time.monotonic() > deadline:
                raise NodeLost(f"{missing_nodes} did not join within {self.come_seconds:g} s")

    def _missing(self) -> str:
        """Return the name of the first node that has not joined yet. Raise UnlikeRanks if a node refuses."""
        self.seats = retry_query(self.sessions, lambda session: load_seats(session, self.node["group"]))
        seat_by_rank = {seat.rank: seat for seat in self.seats}
        late_name = ""
        for rank in range(1, self.node["nodes"]):
            seat = seat_by_rank.get(rank)
            answer = seat.answer_to(self.run_id, self.attempt) if seat else None
            if seat and answer:
                _refuse(seat, answer)
            if seat and seat.silent_seconds > MAX_SILENT_SECONDS:
                raise NodeLost(f"{seat.title} was not seen for {seat.silent_seconds:.0f} s")
            if not answer:
                late_name = late_name or (seat.title if seat else f"node {rank}")
        return late_name

    def _publish(self, order: Order) -> None:
        retry_transaction(self.sessions, lambda session: self._say(session, order))

    def _say(self, session: Session, order: Order | None) -> None:
        if order is not None:
            fence(session, self.run_id, self.attempt)
        write_message(session, self.node["group"], 0, self.node["worker_id"], order)

    def _watch(self) -> None:
        """End the attempt as soon as a node reports that its part has ended, or stops reporting."""
        beat_by_rank: dict[int, tuple[float, float]] = {}
        while not self._is_over.wait(POLL_SECONDS):
            try:
                with open_read_session(self.sessions) as session:
                    seat_by_rank = {seat.rank: seat for seat in load_seats(session, self.node["group"])}
            except SQLAlchemyError as error:
                logger.warning("cannot see the other nodes: %s", first_line(error))
                beat_by_rank.clear()  # the nodes cannot write to the database either
                continue
            for seat in self.seats[1:]:
                self._judge(seat, seat_by_rank.get(seat.rank), beat_by_rank)

    def _judge(
        self, seat: Seat, current_seat: Seat | None, beat_by_rank: dict[int, tuple[float, float]]
    ) -> None:
        if current_seat is None or current_seat.worker_id != seat.worker_id:
            self._end(f"{seat.title} was lost", is_own_fault=False)
            return
        answer = current_seat.answer_to(self.run_id, self.attempt)
        if answer and answer.state == "ended":
            self._end(
                f"{seat.title}: {answer.reason}", is_own_fault=answer.is_own_fault, seat_answer=(seat, answer)
            )
        if answer and answer.state == "leaving" and not self.stopping.is_set():
            logger.info("%s was asked to end: the run goes back to the queue", seat.title)
            self.stopping.set()
        beat, beat_at = beat_by_rank.get(seat.rank, (-1.0, 0.0))
        if beat != current_seat.seen_at:
            beat_by_rank[seat.rank] = (current_seat.seen_at, time.monotonic())
            return
        limit = BROKEN_SECONDS if self._is_broken.is_set() else MAX_SILENT_SECONDS
        if time.monotonic() - beat_at > limit:
            self._end(f"{seat.title} was lost", is_own_fault=False)

    def _end(
        self, reason: str, *, is_own_fault: bool, seat_answer: tuple[Seat, OrderReply] | None = None
    ) -> None:
        """End this process, and print the last output of the node's ranks to the run's log."""
        if self._is_over.wait(REPORT_GRACE_SECONDS if is_own_fault else 0):
            return
        if seat_answer is not None:
            repeat_output(*seat_answer)
        failed = {
            "reason": redact(reason)[:REASON_CHARACTERS],
            "kind": "exception" if is_own_fault else "lost",
        }
        sys.stdout.write(json.dumps({"failed": failed}) + "\n")
        sys.stdout.flush()
        os._exit(EXIT_FAILED)

    def linger(self) -> None:
        """Wait for the node of a lost rank to report why; its report ends this process."""
        self._is_broken.set()
        time.sleep(LINGER_SECONDS)

    def close(self) -> None:
        """Release the nodes."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        if self.listener is not None:
            self.listener.close()
        self.file.unlink(missing_ok=True)


def repeat_output(seat: Seat, answer: OrderReply) -> None:
    """Print the last lines of a node whose ranks have failed, so that they appear in the run's log."""
    for line in answer.output.splitlines():
        sys.stdout.write(f"{seat.title}: {line}\n")
    sys.stdout.flush()


def _refuse(seat: Seat, answer: OrderReply) -> None:
    """Raise the reason why a node does not join."""
    if answer.state == "refused":
        raise UnlikeRanks(f"{seat.title} {answer.reason}")
    if answer.state == "leaving":
        raise NodeLost(f"{seat.title} was asked to end")
    if answer.state == "ended":
        repeat_output(seat, answer)
        raise (RuntimeError if answer.is_own_fault else NodeLost)(f"{seat.title}: {answer.reason}")
