"""Tests of the messages between a leader and a follower in SQL, without the ranks."""

import platform
import socket
import sys
import threading

import pytest
from sqlalchemy import select

from backend.base.settings import Settings
from backend.runs import lifecycle
from backend.runs.workers.devices import Slot
from backend.runs.workers.nodes import Order, OrderReply, nonce_file, take_seat, write_message
from backend.storage.models import Node, Run
from tests.factories import make_run
from worker.host.nodes import NodeFollower, NodeSeat
from worker.host.slots import SlotPool
from worker.host.spares import Spare
from worker.host.supervisor import Supervisor
from worker.outcome import NodeLost
from worker.policy.ranks import UnlikeRanks
from worker.training.node_group import NodeGroup

CPU_SLOT = Slot(0, "cpu", "CPU", 1)


@pytest.fixture
def pair(state_dir, sqlite_url):
    """The settings of the two nodes of a group."""
    knobs = {"state_dir": state_dir, "database_url": sqlite_url, "node_address": "127.0.0.1"}
    return [Settings(**knobs, worker_nodes=2, worker_node_rank=rank, worker_group="g") for rank in (0, 1)]


@pytest.fixture
def claim(sessions):
    with sessions.begin() as session:
        make_run(session, nodes=2, config={"resources": {"nodes": 2}})
        return lifecycle.claim_run(session, "leader-0", "host", nodes=2)


@pytest.fixture
def follower(pair, sessions):
    seat = NodeSeat(pair[1], sessions, "follower", [CPU_SLOT])
    seat._take()
    stopping, hurrying = threading.Event(), threading.Event()
    supervisor = Supervisor(pair[1], sessions, CPU_SLOT, stopping)
    return NodeFollower(pair[1], sessions, seat, supervisor, stopping, hurrying)


@pytest.fixture
def group(pair, sessions, claim):
    """The leader's side of an attempt, without waits."""
    seat = NodeSeat(pair[0], sessions, "leader", [CPU_SLOT])
    seat._take()
    owner_seat = seat.node_fields(0)
    owner = (claim.run_id, claim.attempt)
    group = NodeGroup(sessions, *owner, pair[0].state, owner_seat, threading.Event(), come_seconds=0.0)
    yield group
    group.close()


def load_answer(sessions):
    with sessions() as session:
        return OrderReply(**session.scalars(select(Node.work).where(Node.rank == 1)).one())


def test_a_leader_claims_only_while_its_group_is_complete_and_idle(pair, sessions):
    with sessions.begin() as session:
        make_run(session, nodes=2, config={"resources": {"nodes": 2}})
    leader, other_pool = (SlotPool(node, sessions, [CPU_SLOT, Slot(1, "cpu", "CPU", 1)]) for node in pair)
    leader._seat._take()
    assert leader._claim(leader._worker_slots[0]) is None
    other_pool._seat._take()
    assert leader._claim(leader._worker_slots[0]).nodes == 2
    with sessions.begin() as session:
        make_run(session, nodes=2, config={"resources": {"nodes": 2}})
    assert leader._claim(leader._worker_slots[1]) is None


def test_a_follower_accepts_only_orders_that_name_it(follower, group, claim, sessions):
    assert follower.next_order() is None
    for workers, is_taken in ((("leader", "another"), False), (("leader", "follower"), True)):
        order = Order(claim.run_id, claim.attempt, "127.0.0.1", 1, "n", workers)
        with sessions.begin() as session:
            write_message(session, "g", 0, "leader", order)
        assert (follower.next_order() is not None) == is_taken
    with sessions.begin() as session:
        lifecycle.release_run(session, claim.run_id, claim.attempt)
    assert follower.next_order() is None


def test_a_follower_without_the_shared_directory_reports_it(
    follower, group, claim, pair, sessions, monkeypatch
):
    monkeypatch.setattr("worker.host.nodes.SHARED_FILE_SECONDS", 0.2)
    order = Order(claim.run_id, claim.attempt, "127.0.0.1", 1, "secret", ("leader", "follower"))
    file = nonce_file(pair[1].state, claim.run_id, claim.attempt)
    follower.serve(order, [CPU_SLOT])
    assert load_answer(sessions).state == "refused"
    assert load_answer(sessions).reason == (
        f"does not see {file}: STATE_DIR must be one directory for all nodes"
    )
    file.parent.mkdir()
    file.write_text("of another leader")
    follower.serve(order, [CPU_SLOT])
    assert "sees another file than the leader" in load_answer(sessions).reason
    with pytest.raises(UnlikeRanks, match=r"^node 1 \(.*\) sees another file than the leader"):
        group._missing()


CRASH_SCRIPT = """
import sys
sys.stdin.readline()
print("\\033[31mrank 3: layer 7 is NaN\\033[0m")
print("token hf_" + "a" * 34, flush=True)
print('{"failed": {"reason": "layer 7 is NaN", "kind": "exception"}}')
sys.exit(1)
"""


def test_the_last_lines_of_a_failed_node_reach_the_leaders_output(pair, sessions, claim, group, capsys):
    seat = NodeSeat(pair[1], sessions, "follower", [CPU_SLOT])
    seat._take()
    events = threading.Event(), threading.Event()
    spare = Spare(pair[1], CPU_SLOT, (sys.executable, "-c", CRASH_SCRIPT))
    supervisor = Supervisor(pair[1], sessions, CPU_SLOT, events[0], spare=spare)
    follower = NodeFollower(pair[1], sessions, seat, supervisor, *events)
    file = nonce_file(pair[1].state, claim.run_id, claim.attempt)
    file.parent.mkdir()
    file.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as leader:
        port = leader.getsockname()[1]
        order = Order(claim.run_id, claim.attempt, "127.0.0.1", port, "secret", ("leader", "follower"))
        follower.serve(order, [CPU_SLOT])
    with pytest.raises(RuntimeError, match=r"^node 1 \(.*\): layer 7 is NaN"):
        group._missing()
    title = f"node 1 ({platform.node()})"
    assert capsys.readouterr().out == f"{title}: rank 3: layer 7 is NaN\n{title}: token [secret]\n"


def test_a_missing_follower_returns_the_run_to_the_queue(group, claim, pair, sessions):
    with pytest.raises(NodeLost, match=r"^node 1 did not join within 0 s$"):
        group.call()
    follower = NodeSeat(pair[1], sessions, "follower", [CPU_SLOT])
    follower._take()
    follower.say(OrderReply(claim.run_id, claim.attempt, "leaving"))
    with pytest.raises(NodeLost, match="was asked to end"):
        group._missing()
    follower.say(OrderReply(claim.run_id, claim.attempt, "ended", "no room", is_own_fault=True))
    with pytest.raises(RuntimeError, match=r"^node 1 \(.*\): no room"):
        group._missing()
    with sessions() as session:
        assert session.get_one(Run, claim.run_id).status == "running"


def test_nodes_with_other_versions_are_refused_before_any_rank_starts(group, sessions):
    node_facts = {"nodes": 2, "host": "b", "address": "127.0.0.1", "devices": 8, "traits": {"torch": "1.0"}}
    with sessions.begin() as session:
        take_seat(session, "g", 1, "old", **node_facts)
    with pytest.raises(UnlikeRanks, match=r"^node 1 \(b\) has torch 1\.0, node 0 .* has .*: all nodes"):
        group.call()
