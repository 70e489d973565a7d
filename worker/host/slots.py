"""The slots of one worker process, which claim runs after a broker message and every few seconds."""

import logging
import os
import platform
import signal
import threading
import uuid
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from backend.base.sandbox.layers import layer_names, program_refusal
from backend.base.settings import Settings
from backend.runs import lifecycle
from backend.runs.leases import Lease, LostRuns
from backend.runs.lifecycle import Claim
from backend.runs.workers.devices import MAX_CPU_RANKS, Slot
from backend.runs.workers.load import GpuLoad, MachineLoad
from backend.runs.workers.store import forget_silent, register_slot, remove_slot, report_slot
from backend.storage.engine import Sessions, open_read_session
from worker.db_retry import first_line, left_for_later
from worker.host.nodes import LOOK_SECONDS, NodeFollower, NodeSeat
from worker.host.pilot import Pilot, PilotLimits
from worker.host.spares import Spare, WarmParent
from worker.host.supervisor import Supervisor
from worker.host.trainer_process import TRAINER

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
"""Seconds between two heartbeats of a slot."""

PILOT_SECONDS = 0.5
"""Seconds between two checks of a pilot's limits."""


class WorkerSlot:
    """A slot, its supervisor, and its current run."""

    def __init__(self, worker_id: str, slot: Slot, supervisor: Supervisor) -> None:
        self.worker_id = worker_id
        self.slot = slot
        self.supervisor = supervisor
        self.busy = threading.Lock()
        self.run_id: str | None = None
        """Id of the run that uses this slot. Another slot of the worker may have claimed it."""
        self._gpu = GpuLoad(slot.gpu) if slot.gpu else None

    def gpu_load(self) -> dict[str, float]:
        """Return the load of the slot's GPU since the last call, or nothing on a CPU."""
        return self._gpu.read() if self._gpu else {}

    @property
    def status(self) -> str:
        """Status of the slot: `busy`, `idle` (starts a run immediately) or `starting` (has to import
        first).
        """
        if self.run_id:
            return "busy"
        return "idle" if self.supervisor.spare_is_ready else "starting"


class SlotPool:
    """All slots of this process."""

    def __init__(
        self, settings: Settings, sessions: Sessions, slots: list[Slot], *, argv: tuple[str, ...] = TRAINER
    ) -> None:
        self.name = f"gpu{uuid.uuid4().hex[:8]}"
        self.stopping = threading.Event()
        self.hurrying = threading.Event()
        self._settings = settings
        self._sessions = sessions
        self._pilot = Pilot(limits := PilotLimits.from_settings(settings))
        self._ends_by_itself = limits != PilotLimits()
        self._look = threading.Event()
        self._heartbeat = min(HEARTBEAT_SECONDS, settings.lease_seconds / 4)
        self._watch = LostRuns(settings.lease_seconds, look_seconds=self._heartbeat)
        self._lost_leases: list[Lease] = []
        self._claim_lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._seat = NodeSeat(settings, sessions, self.name, slots) if settings.worker_nodes > 1 else None
        lead = self._seat.node_fields(settings.node_port) if self._seat else None
        parent = WarmParent(settings, slots[0]) if WarmParent.suits(slots, argv) else None
        self._worker_slots = [
            WorkerSlot(
                f"{self.name}-{slot.number}",
                slot,
                Supervisor(
                    settings,
                    sessions,
                    slot,
                    self.stopping,
                    spare=parent or Spare(settings, slot, argv),
                    hurrying=self.hurrying,
                    lead=lead,
                ),
            )
            for slot in slots
        ]
        self._follower = self._make_follower()

    def _make_follower(self) -> NodeFollower | None:
        if self._seat is None or self._seat.rank == 0:
            return None
        supervisor, events = self._worker_slots[0].supervisor, (self.stopping, self.hurrying)
        return NodeFollower(self._settings, self._sessions, self._seat, supervisor, *events)

    def open(self) -> None:
        """Register, start the spares and poll for work, whether or not there is a broker."""
        loops = [self._show_life, self._follow if self._follower else self._poll]
        loops += [self._end_in_time] if self._ends_by_itself else []
        if self._seat is not None:
            self._seat.open(self.stopping)
        for loop in loops:
            thread = threading.Thread(target=loop, name=loop.__name__.strip("_"), daemon=True)
            thread.start()
            self._threads.append(thread)

    def serve(self) -> None:
        """Take a free slot and train runs in it until none are queued. Return immediately if no slot is
        free.
        """
        if self._follower is not None:
            return
        free_slots = (
            worker_slot for worker_slot in self._worker_slots if worker_slot.run_id is None
        )  # a multi-GPU run may hold the other slots
        worker_slot = next(
            (worker_slot for worker_slot in free_slots if worker_slot.busy.acquire(blocking=False)), None
        )
        if worker_slot is None:
            return
        try:
            while not self.stopping.is_set() and (claim := self._claim(worker_slot)) is not None:
                self._look.set()  # If one run is queued, there may be more for other slots.
                self._train(worker_slot, claim)
        finally:
            worker_slot.busy.release()

    def _train(self, worker_slot: WorkerSlot, claim: Claim) -> None:
        held_slots = [worker_slot for worker_slot in self._worker_slots if worker_slot.run_id == claim.run_id]
        held_slots.sort(
            key=lambda held_slot: held_slot is not worker_slot
        )  # the GPU of the claiming slot is that of rank 0
        try:
            worker_slot.supervisor.supervise(
                claim, [held_slot.slot.gpu for held_slot in held_slots if held_slot.slot.gpu]
            )
        finally:
            for held_slot in held_slots:
                held_slot.run_id = None

    def _find_free_slots(self, worker_slot: WorkerSlot) -> list[WorkerSlot]:
        """Return the slots without a run, this one first."""
        free_slots = [free_slot for free_slot in self._worker_slots if free_slot.run_id is None]
        return sorted(free_slots, key=lambda free_slot: free_slot is not worker_slot)

    def _count_devices(self, free_count: int) -> dict[str, int]:
        """Return the number of devices that a run may use now, and the number if the worker were idle.

        A group of nodes trains one run at a time.
        """
        if self._seat is not None:
            devices = self._seat.room() if free_count == len(self._worker_slots) else 0
            return {"room": devices, "max_devices": devices, "nodes": self._seat.nodes}
        if self._worker_slots[0].slot.gpu:
            return {"room": free_count, "max_devices": len(self._worker_slots)}
        return {"room": MAX_CPU_RANKS, "max_devices": MAX_CPU_RANKS}

    def _claim(self, worker_slot: WorkerSlot) -> Claim | None:
        """Claim a run in SQL and return it. A claim whose transaction failed does not count."""
        settings = self._settings
        price: dict[str, Any] = {}
        if settings.has_prices:
            price = {"slot_price": settings.slot_price or None, "currency": settings.currency}
        with self._claim_lock:
            if worker_slot.run_id or not self._pilot.may_claim():
                return None
            free_slots = self._find_free_slots(worker_slot)
            try:
                with self._sessions.begin() as session:
                    claim = lifecycle.claim_run(
                        session,
                        worker_slot.worker_id,
                        platform.node(),
                        lease_seconds=settings.lease_seconds,
                        lost_leases=self._lost_leases,
                        **self._count_devices(len(free_slots)),
                        **price,
                    )
            except SQLAlchemyError as error:
                logger.warning("cannot look for runs now: %s", first_line(error))
                return None
            if claim is not None:
                for free_slot in free_slots[: claim.devices if worker_slot.slot.gpu else 1]:
                    free_slot.run_id = claim.run_id
                self._pilot.note_claim()
            return claim

    def _poll(self) -> None:
        while not self.stopping.is_set():
            for worker_slot in self._worker_slots:
                if not worker_slot.busy.locked():
                    thread = threading.Thread(
                        target=self.serve, name=f"poll {worker_slot.worker_id}", daemon=True
                    )
                    thread.start()
                    self._threads.append(thread)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._look.wait(self._settings.poll_seconds)
            self._look.clear()

    def _follow(self) -> None:
        """Train this node's ranks of the runs that the leader claims."""
        if (follower := self._follower) is None:
            return
        while not self.stopping.wait(LOOK_SECONDS):
            order = follower.next_order() if self._pilot.may_claim() else None
            if order is None:
                continue
            for worker_slot in self._worker_slots:
                worker_slot.run_id = order.run_id
            try:
                self._pilot.note_claim()
                follower.serve(order, [worker_slot.slot for worker_slot in self._worker_slots])
            finally:
                for worker_slot in self._worker_slots:
                    worker_slot.run_id = None

    def _end_in_time(self) -> None:
        """End the process like an external signal when its limits are reached."""
        while not self.stopping.wait(PILOT_SECONDS):
            with self._claim_lock:  # no slot is between its claim and its run
                is_busy = any(worker_slot.run_id for worker_slot in self._worker_slots)
                reason = self._pilot.reason_to_end(is_busy=is_busy)
            if reason:
                logger.info("the worker ends: %s", reason)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _show_life(self) -> None:
        self._load = MachineLoad(self._settings.state)
        while not self.stopping.is_set():
            for worker_slot in self._worker_slots:
                if worker_slot.status == "starting":
                    worker_slot.supervisor.keep_spare()
            with left_for_later("show a sign of life"):
                self._report()
            self._look_for_lost()
            self.stopping.wait(self._heartbeat)

    def _look_for_lost(self) -> None:
        """Find runs of lost workers, because the service that requeues them may be lost too."""
        try:
            with open_read_session(self._sessions) as session:
                self._lost_leases = self._watch.find_expired(session)
        except SQLAlchemyError as error:
            logger.warning("cannot look for lost runs now: %s", first_line(error))
            self._watch.forget()
            self._lost_leases = []
        if self._lost_leases:
            self._look.set()

    def _report(self) -> None:
        load = self._load.read()
        sandbox = layer_names() | {"runs_no_programs": program_refusal(self._settings)}
        slot_stats = [
            (worker_slot, {**load, **worker_slot.gpu_load(), "sandbox": sandbox})
            for worker_slot in self._worker_slots
        ]
        with self._sessions.begin() as session:
            for worker_slot, stats in slot_stats:
                if not report_slot(
                    session, worker_slot.worker_id, worker_slot.status, worker_slot.run_id, stats
                ):
                    register_slot(
                        session,
                        worker_slot.worker_id,
                        worker_slot.slot,
                        host=platform.node(),
                        pid=os.getpid(),
                        nodes=self._settings.worker_nodes,
                    )
                    report_slot(session, worker_slot.worker_id, worker_slot.status, worker_slot.run_id, stats)
            forget_silent(session)

    def stop(self) -> None:
        """Ask running trainers to save a checkpoint and end. On a second call, they end immediately.

        It is safe to call this in a signal handler.
        """
        if self.stopping.is_set():
            self.hurrying.set()
        self.stopping.set()
        self._look.set()

    def close(self) -> None:
        """Wait for the running trainers, end the spares, and unregister the slots."""
        self.stopping.set()
        self._look.set()
        for thread in self._threads:
            thread.join()
        if self._seat is not None:
            self._seat.leave()
        for worker_slot in self._worker_slots:
            worker_slot.busy.acquire()
        for (
            worker_slot
        ) in self._worker_slots:  # only now, because one parent may have forked the trainers of all slots
            worker_slot.supervisor.close()
        with left_for_later("leave the record"), self._sessions.begin() as session:
            for worker_slot in self._worker_slots:
                remove_slot(session, worker_slot.worker_id)
