"""Register a worker in a group of nodes, and lead the other nodes or follow the leader."""

import logging
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from backend.base.locations import CODE_ROOT
from backend.base.settings import Settings
from backend.runs.workers.addresses import node_address
from backend.runs.workers.devices import CPU, MAX_CPU_RANKS, Slot
from backend.runs.workers.nodes import (
    BEAT_SECONDS,
    Order,
    OrderReply,
    Seat,
    State,
    count_usable_devices,
    find_order,
    is_current_attempt,
    leave_seat,
    load_seats,
    nonce_file,
    record_heartbeat,
    take_seat,
    write_message,
)
from backend.storage.engine import Sessions, open_read_session
from backend.storage.live_workers import MAX_SILENT_SECONDS
from backend.storage.models import Run
from worker.db_retry import first_line, left_for_later
from worker.host.supervisor import GRACE_SECONDS, Supervisor
from worker.host.trainer_logs import LastLines
from worker.host.trainer_process import TrainerProcess
from worker.outcome import EXIT_FENCED, EXIT_ORPHANED

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between two checks of a node for its leader's order."""

SHARED_FILE_SECONDS = 10.0
"""Seconds until a shared file system must show a file of another node."""

CONNECT_SECONDS = 10.0
"""Seconds in which the leader's port must answer."""


class NodeSeat:
    """The row of this worker in its group, which a thread renews."""

    def __init__(self, settings: Settings, sessions: Sessions, worker_id: str, slots: Sequence[Slot]) -> None:
        """Create the seat. Raise GrpoLabError if the other nodes could not reach this one."""
        self.group, self.rank, self.nodes = (
            settings.worker_group,
            settings.worker_node_rank,
            settings.worker_nodes,
        )
        self.worker_id = worker_id
        self.address = node_address(settings)
        self._sessions, self._slots = sessions, slots
        self._seat_key = (self.group, self.rank, worker_id)
        self._is_left = threading.Event()
        self._thread: threading.Thread | None = None

    def node_fields(self, port: int) -> dict[str, Any]:
        """Return the fields that the trainer needs to call the other nodes, see NodeGroup."""
        return {
            "rank": self.rank,
            "group": self.group,
            "nodes": self.nodes,
            "worker_id": self.worker_id,
            "ip": self.address.ip,
            "interface": self.address.interface,
            "port": port,
        }

    def _take(self) -> None:
        slot = self._slots[0]
        seat_fields: dict[str, Any] = {
            "nodes": self.nodes,
            "host": platform.node(),
            "address": self.address.ip,
            "devices": len(self._slots) if slot.gpu else MAX_CPU_RANKS,
            "traits": node_traits(slot),
        }
        with self._sessions.begin() as session:
            take_seat(session, *self._seat_key, **seat_fields)

    def open(self, stopping: threading.Event) -> None:
        """Take the seat and keep it until `leave`. A worker that loses its seat must end."""
        self._thread = threading.Thread(target=self._keep, args=(stopping,), name="keep seat", daemon=True)
        self._thread.start()

    def _keep(self, stopping: threading.Event) -> None:
        is_taken = False
        while not self._is_left.is_set():
            with left_for_later("show that this node is there"):
                if not is_taken:
                    self._take()
                    is_taken = True
                elif not self._renew() and not stopping.is_set():
                    logger.error(
                        "another worker is node %d of group %s now: this one ends", self.rank, self.group
                    )
                    os.kill(os.getpid(), signal.SIGTERM)
            self._is_left.wait(BEAT_SECONDS)

    def _renew(self) -> bool:
        with self._sessions.begin() as session:
            if record_heartbeat(session, *self._seat_key):
                return True
            rank_seats = [seat for seat in load_seats(session, self.group) if seat.rank == self.rank]
        if rank_seats and rank_seats[0].silent_seconds < MAX_SILENT_SECONDS:
            return False
        self._take()  # the row was removed during a long outage
        return True

    def leave(self) -> None:
        """Release the seat."""
        self._is_left.set()
        if self._thread is not None:
            self._thread.join()
        with left_for_later("leave the group"), self._sessions.begin() as session:
            leave_seat(session, *self._seat_key)

    def seats(self) -> list[Seat]:
        """Return the nodes of the group, or none while the database is unavailable."""
        try:
            with open_read_session(self._sessions) as session:
                return load_seats(session, self.group)
        except SQLAlchemyError as error:
            logger.warning("cannot see the group now: %s", first_line(error))
            return []

    def room(self) -> int:
        """Return the number of devices that a run can use per node. It is 0 on a follower, or if a node is
        missing.
        """
        return 0 if self.rank else count_usable_devices(self.seats())

    def say(self, answer: OrderReply) -> None:
        """Send an answer to the leader."""
        with left_for_later("answer the leader"), self._sessions.begin() as session:
            write_message(session, *self._seat_key, answer)


def node_traits(slot: Slot) -> dict[str, str]:
    """Return the device and the versions that must be equal on all nodes of a group."""
    packages = {name: version(name) for name in ("torch", "transformers")}
    device = CPU if slot.device == CPU else slot.device_name
    return {"device": device, "python": platform.python_version(), **packages, "grpolab": code_digest()}


def code_digest() -> str:
    """Return a digest of this program's Python files, which is equal in a checkout and an installed
    package.
    """
    digest = sha256()
    files = (path for folder in ("backend", "worker") for path in (CODE_ROOT / folder).rglob("*.py"))
    for path in sorted(files):
        if not path.is_relative_to(CODE_ROOT / "backend" / "files"):
            digest.update(f"{path.relative_to(CODE_ROOT)}\0".encode() + path.read_bytes())
    return f"sources {digest.hexdigest()[:12]}"


class NodeFollower:
    """Trains the ranks of this node on the leader's orders, one attempt after another."""

    def __init__(
        self,
        settings: Settings,
        sessions: Sessions,
        seat: NodeSeat,
        supervisor: Supervisor,
        stopping: threading.Event,
        hurrying: threading.Event,
    ) -> None:
        self._settings, self._sessions, self._seat, self._supervisor = settings, sessions, seat, supervisor
        self._stopping, self._hurrying = stopping, hurrying
        self._last_order: tuple[str, int] | None = None

    def next_order(self) -> Order | None:
        """Return an order of the leader that names this worker and has not been executed yet."""
        order = find_order(self._seat.seats())
        if order is None or (order.run_id, order.attempt) == self._last_order:
            return None
        if list(order.workers[self._seat.rank :][:1]) != [self._seat.worker_id] or self._is_over(order):
            return None
        return order

    def serve(self, order: Order, slots: Sequence[Slot]) -> None:
        """Train this node's ranks of an attempt until they end, and report a failure to the leader."""
        self._last_order = (order.run_id, order.attempt)
        reason = self._joining_obstacle(order)
        if self._stopping.is_set():
            self._answer(order, "leaving")
            return
        if reason:
            logger.warning("run %s, attempt %d: this node %s", order.run_id, order.attempt, reason)
            self._answer(order, "refused", reason)
            return
        node = self._place(order)
        if node is None:
            return
        try:
            trainer = self._supervisor.take_trainer()
        except OSError as error:
            self._answer(order, "ended", f"no trainer could be started: {error}")
            return
        self._answer(order, "ready")
        self._see_through(trainer, order, node, slots)

    def _joining_obstacle(self, order: Order) -> str:
        """Return the reason why this node cannot join, to complete a sentence, or "" if there is none."""
        return self._shared_directory_error(order) or self._address_error(order)

    def _shared_directory_error(self, order: Order) -> str:
        file = nonce_file(self._settings.state, order.run_id, order.attempt)
        deadline, nonce = time.monotonic() + SHARED_FILE_SECONDS, ""
        while nonce != order.nonce and time.monotonic() < deadline and not self._stopping.wait(0.1):
            try:
                nonce = file.read_text(encoding="ascii")
            except (OSError, ValueError):
                nonce = ""
            if nonce != order.nonce and self._is_over(order):
                break
        fault = "does not see" if not nonce else "sees another file than the leader as"
        return (
            "" if nonce == order.nonce else f"{fault} {file}: STATE_DIR must be one directory for all nodes"
        )

    @staticmethod
    def _address_error(order: Order) -> str:
        try:
            socket.create_connection((order.address, order.port), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            return f"cannot reach the leader at {order.address}, port {order.port}: {error.strerror or error}"
        return ""

    def _place(self, order: Order) -> dict[str, Any] | None:
        with left_for_later("read the run"), open_read_session(self._sessions) as session:
            run = session.get(Run, order.run_id)
            if run is not None:
                meeting = (
                    "",
                    order.address,
                    order.port,
                    order.nonce,
                    self._seat.nodes,
                    self._seat.address.interface,
                )
                return {"rank": self._seat.rank, "config": run.config, "meeting": meeting}
        return None

    def _see_through(
        self, trainer: TrainerProcess, order: Order, node: dict[str, Any], slots: Sequence[Slot]
    ) -> None:
        gpus, output = [slot.gpu for slot in slots if slot.gpu], LastLines()
        trainer.assign(
            order.run_id,
            order.attempt,
            slots[0],
            output.add,
            database_url="",  # the follower records nothing
            gpus=gpus,
            node=node,
        )
        try:
            code = self._watch(trainer, order)
        finally:
            trainer.kill()
        if code in (
            None,
            0,
            EXIT_ORPHANED,
            EXIT_FENCED,
        ):  # released, or the leader ended and reports the reason
            return
        verdict = self._supervisor.judge(trainer, code, is_oom=False)
        self._answer(order, "ended", verdict.reason, is_own_fault=verdict.is_own_fault, output=output.text)

    def _watch(self, trainer: TrainerProcess, order: Order) -> int | None:
        """Return the trainer's exit code, or None if the attempt is over and the trainer was ended."""
        look_at, kill_at = 0.0, float("inf")
        while (code := trainer.wait(0.05)) is None:
            now = time.monotonic()
            if now >= look_at:
                if self._is_over(order):
                    return None
                look_at = now + LOOK_SECONDS
            if self._stopping.is_set() and kill_at == float("inf"):
                self._answer(order, "leaving")  # the leader saves a checkpoint and releases all ranks
                kill_at = now + GRACE_SECONDS
            if now >= kill_at or (self._hurrying.is_set() and kill_at < float("inf")):
                trainer.kill()
        return code

    def _is_over(self, order: Order) -> bool:
        """Return whether the attempt no longer owns its run. It is assumed to own it if the database is
        unavailable.
        """
        is_trained_now = True
        with left_for_later("see whether the attempt goes on"), open_read_session(self._sessions) as session:
            is_trained_now = is_current_attempt(session, order.run_id, order.attempt)
        return not is_trained_now

    def _answer(self, order: Order, state: State, reason: str = "", **details: Any) -> None:
        self._seat.say(OrderReply(order.run_id, order.attempt, state, reason, **details))
