"""Tests of groups of nodes in SQL: who is present, who may claim, and the rank that a cluster assigns."""

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from backend.base.errors import GrpoLabError, InvalidConfig
from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.runs.rows import run_row
from backend.runs.workers.arguments import arguments_as_settings, cluster_place
from backend.runs.workers.nodes import (
    Order,
    OrderReply,
    complete_groups,
    count_usable_devices,
    find_order,
    is_complete,
    leave_seat,
    load_seats,
    record_heartbeat,
    take_seat,
    waiting_reason,
    write_message,
)
from backend.storage.models import Node

TRAITS = {"device": "cpu", "torch": "2.13.0", "grpolab": "sources 0123456789ab"}


def register_node(session, rank, *, group="pair", nodes=2, devices=4, worker=None, **traits):
    node_facts = {"host": f"host{rank}", "address": f"10.0.0.{rank}", "traits": TRAITS | traits}
    take_seat(session, group, rank, worker or f"w{rank}", nodes=nodes, devices=devices, **node_facts)


def test_a_group_is_complete_while_all_of_its_nodes_are_seen(session):
    register_node(session, 0)
    assert not is_complete(load_seats(session, "pair"))
    register_node(session, 1, devices=2)
    register_node(session, 0, group="other", nodes=3)
    assert [[node.title for node in group] for group in complete_groups(session)] == [
        ["node 0 (host0)", "node 1 (host1)"]
    ]
    assert count_usable_devices(load_seats(session, "pair")) == 2
    session.execute(update(Node).where(Node.rank == 1).values(seen_at=Node.seen_at - 40))
    session.expire_all()
    assert count_usable_devices(load_seats(session, "pair")) == 0
    assert record_heartbeat(session, "pair", 1, "w1")
    session.expire_all()
    assert is_complete(load_seats(session, "pair"))
    assert write_message(session, "pair", 1, "w1", OrderReply("run", 1, "leaving"))
    session.expire_all()
    assert not is_complete(load_seats(session, "pair"))
    assert write_message(session, "pair", 1, "w1", None)
    session.expire_all()
    assert is_complete(load_seats(session, "pair"))
    leave_seat(session, "pair", 1, "w1")
    assert not is_complete(load_seats(session, "pair"))


def test_a_worker_that_takes_a_seat_invalidates_the_previous_one(session):
    register_node(session, 0)
    order = Order("r", 1, "10.0.0.0", 4000, "nonce", ("w0", "w1"))
    assert write_message(session, "pair", 0, "w0", order)
    session.expire_all()
    node_order = find_order(load_seats(session, "pair"))
    assert node_order is not None
    assert node_order._replace(workers=tuple(node_order.workers)) == order
    register_node(session, 0, worker="later")
    assert not record_heartbeat(session, "pair", 0, "w0")
    assert not write_message(session, "pair", 0, "w0", order)
    session.expire_all()
    assert find_order(load_seats(session, "pair")) is None


def test_an_answer_counts_only_for_its_attempt(session):
    register_node(session, 0)
    register_node(session, 1)
    write_message(session, "pair", 1, "w1", OrderReply("r", 2, "ended", "it broke", is_own_fault=True))
    session.expire_all()
    follower = load_seats(session, "pair")[1]
    assert follower.answer_to("r", 2) == OrderReply("r", 2, "ended", "it broke", is_own_fault=True)
    assert follower.answer_to("r", 3) is None
    assert follower.answer_to("other", 2) is None


def test_the_config_counts_ranks_and_refuses_single_device_features():
    config = resolve({"resources": {"nodes": 2, "devices": 4}})
    assert config.resources.ranks == 8
    assert (run_row("r", "v", config)["nodes"], run_row("r", "v", config)["devices"]) == (2, 4)
    with pytest.raises(InvalidConfig, match=r"resources\.nodes is 2, and pages cannot be sharded"):
        resolve({"resources": {"nodes": 2}, "optimizer": {"paged": True}})


def test_the_queue_reports_what_a_run_on_several_nodes_waits_for(session):
    assert waiting_reason([], 2, 1) == "a group of 2 nodes (none is complete)"
    register_node(session, 0)
    register_node(session, 1)
    groups = complete_groups(session)
    assert waiting_reason(groups, 3, 1) == "a group of 3 nodes (none is complete)"
    assert waiting_reason(groups, 2, 4) == "a group of 2 nodes that is free"
    assert waiting_reason(groups, 2, 8) == (
        "a group of 2 nodes with 8 devices each (the largest one running has 4)"
    )


def test_a_cluster_assigns_a_worker_its_rank():
    slurm = {"SLURM_NODEID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_NUM_NODES": "2"}
    assert cluster_place(2, slurm) == {"WORKER_NODE_RANK": "1", "WORKER_GROUP": "77"}
    with pytest.raises(GrpoLabError, match="--nodes is 4, but Slurm has started this worker on 2 nodes"):
        cluster_place(4, slurm)
    assert cluster_place(2, {"JOB_COMPLETION_INDEX": "0", "WORKER_GROUP": "job"}) == {
        "WORKER_NODE_RANK": "0",
        "WORKER_GROUP": "job",
    }
    sky = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_TASK_ID": "t", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    assert cluster_place(2, sky)["NODE_ADDRESS"] == "10.0.0.2"


def test_invalid_rank_arguments_are_refused(monkeypatch):
    for name in ("SLURM_NODEID", "JOB_COMPLETION_INDEX", "SKYPILOT_NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(GrpoLabError, match="--nodes is 2: --node-rank is missing"):
        arguments_as_settings(None, None, None, None, 2)
    with pytest.raises(GrpoLabError, match="--nodes is 2: --group is missing"):
        arguments_as_settings(None, None, None, None, 2, 0)
    variables = arguments_as_settings(None, None, None, None, 2, 1, "pair")
    assert variables == {"WORKER_NODES": "2", "WORKER_NODE_RANK": "1", "WORKER_GROUP": "pair"}
    with pytest.raises(ValidationError, match="WORKER_NODE_RANK is 2: a group of 2 has the ranks 0 to 1"):
        Settings(worker_nodes=2, worker_node_rank=2, worker_group="g")
    with pytest.raises(ValidationError, match="WORKER_GROUP must name the group"):
        Settings(worker_nodes=2)
