"""Command-line arguments that limit a worker or make it a member of a group of nodes."""

import argparse
import os
from collections.abc import Mapping
from datetime import datetime

from backend.base.errors import GrpoLabError
from backend.runs.workers.deadline import parse_deadline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the limits of a worker and for its membership in a group of nodes."""
    parser.add_argument("--runs", type=int, metavar="N", help="exit after N runs")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="exit after this time without a run")
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="exit at this time of this machine's clock, such as 03:55 or 2026-11-24T03:55; running runs "
        "save a checkpoint and go back to the queue",
    )
    parser.add_argument("--devices", type=int, metavar="N", help="use N GPUs, or CPU slots")
    nodes = parser.add_argument_group(
        "several nodes", "Slurm, Kubernetes and SkyPilot tell a worker its rank and its group."
    )
    nodes.add_argument("--nodes", type=int, metavar="N", help="train on N nodes together")
    nodes.add_argument("--node-rank", type=int, metavar="R", help="number of this node, from 0, the leader")
    nodes.add_argument("--group", metavar="NAME", help="name that all workers of these nodes share")


def arguments_as_settings(
    runs: int | None,
    idle: float | None,
    until: str | None,
    devices: int | None,
    nodes: int | None = None,
    node_rank: int | None = None,
    group: str | None = None,
) -> Mapping[str, str]:
    """Return the environment variables for the arguments; raise GrpoLabError if an argument has no effect."""
    arguments = {
        "WORKER_RUNS": runs,
        "WORKER_IDLE_SECONDS": idle,
        "WORKER_SLOTS": devices,
        "WORKER_NODES": nodes,
        "WORKER_NODE_RANK": node_rank,
        "WORKER_GROUP": group,
    }
    variables = {name: str(value) for name, value in arguments.items() if value is not None}
    if until is not None:
        variables["WORKER_UNTIL"] = str(_deadline(until).timestamp())
    if nodes is None or nodes == 1:
        return variables
    variables = cluster_place(nodes, os.environ) | variables
    for name, option in (("WORKER_NODE_RANK", "--node-rank"), ("WORKER_GROUP", "--group")):
        if name not in variables and name not in os.environ:
            explanation = "no Slurm, Kubernetes or SkyPilot sets it here"
            raise GrpoLabError(f"--nodes is {nodes}: {option} is missing, and {explanation}")
    return variables


def _deadline(until: str) -> datetime:
    now = datetime.now()  # noqa: DTZ005 - an offset would be that of today, not of the deadline
    try:
        moment = parse_deadline(until, now)
    except ValueError as error:
        raise GrpoLabError(f"--until {error}") from None
    if moment <= now:
        explanation = f"{moment:%Y-%m-%d %H:%M}, and it is {now:%H:%M} on {os.uname().nodename}"
        raise GrpoLabError(f"--until {until} has passed: it means {explanation}. The worker starts nothing.")
    return moment


CLUSTERS = (
    ("Slurm", "SLURM_NODEID", "SLURM_JOB_ID", "SLURM_STEP_NUM_NODES"),
    ("Kubernetes", "JOB_COMPLETION_INDEX", "WORKER_GROUP", ""),
    ("SkyPilot", "SKYPILOT_NODE_RANK", "SKYPILOT_TASK_ID", "SKYPILOT_NUM_NODES"),
)
"""Environment variables with which a cluster passes a process its rank, its job and the number of nodes."""


def cluster_place(nodes: int, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the rank, group and address that the cluster assigns; raise GrpoLabError if they conflict."""
    for cluster, rank, group, number in CLUSTERS:
        if rank not in variables:
            continue
        cluster_nodes = variables.get(number, "")
        if cluster_nodes and cluster_nodes != str(nodes):
            raise GrpoLabError(
                f"--nodes is {nodes}, but {cluster} has started this worker on {cluster_nodes} nodes"
            )
        position = {"WORKER_NODE_RANK": variables[rank]}
        if name := variables.get(group, ""):
            position["WORKER_GROUP"] = name[-128:]
        ips = variables.get("SKYPILOT_NODE_IPS", "").split() if cluster == "SkyPilot" else []
        if ips and "NODE_ADDRESS" not in variables and variables[rank].isdecimal():
            position["NODE_ADDRESS"] = ips[int(variables[rank]) % len(ips)]
        return position
    return {}
