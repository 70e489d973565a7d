"""The ranks of a run: processes that share its forward and backward passes, one for each device.

Rank 0 is the trainer. On one node the ranks meet through a file in a directory that only their user may open,
and gloo uses the loopback interface, so no port is exposed. On several nodes they meet at an address of the
first node.
"""

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore, TCPStore
from torch.distributed.device_mesh import DeviceMesh

from worker.objective.metric_sums import MetricSums

PASS_SECONDS = 600.0
"""Seconds after which a rank that waits for another rank within a step aborts the attempt."""

ORDER_SECONDS = 7 * 86_400.0
"""Seconds that a rank waits for its next order while rank 0 samples, grades and evaluates."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The group of ranks from the view of one rank. A run on one device has a group of one."""

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None
    orders: Any = None
    """Process group in which rank 0 sends its orders."""
    nodes: int = 1
    """Number of nodes. Each has the same number of ranks."""

    @property
    def is_alone(self) -> bool:
        """True if there is only one rank."""
        return self.size == 1

    def local_rows(self, tokens: Tensor) -> Tensor:
        """Return this rank's part of rows (B,) with `tokens` tokens each: adjacent rows with about equal
        work.
        """
        if self.is_alone:
            return torch.arange(len(tokens))
        middle = tokens.cumsum(0) - tokens / 2
        owner = (middle * self.size / tokens.sum().clamp(min=1)).long().clamp(max=self.size - 1)
        return (owner == self.rank).nonzero().flatten()

    def limit(self, number: int) -> int:
        """Return the largest number of any rank."""
        return number if self.is_alone else max(self.gathered(number))

    def gathered(self, value: Any, *, is_patient: bool = False) -> list[Any]:
        """Return the values of all ranks, by rank. They are sent by gloo, so tensors must be on the CPU.

        If it `is_patient`, the rank waits for the time limit of an order.
        """
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.orders if is_patient else None)
        return values

    def merged(self, sums: MetricSums) -> MetricSums:
        """Return the sums over all ranks, on the CPU."""
        return MetricSums.merged(self.gathered(sums.to("cpu")))

    def total(self, value: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place, and return it."""
        if not self.is_alone:
            dist.all_reduce(value)
        return value

    def order(self, order: Any = None) -> Any:
        """Broadcast an order from rank 0, or wait for it on another rank, and return it."""
        if self.is_alone:
            return order
        box = [order]
        dist.broadcast_object_list(box, src=0, group=self.orders)
        return box[0]


ALONE = Ranks()


LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
"""Network interface that reaches only this machine."""


class Meeting(NamedTuple):
    """The address at which ranks meet: a file on one node, or a network address of the first of several
    nodes.
    """

    file: str = ""
    address: str = ""
    port: int = 0
    nonce: str = ""
    """Prefix of all keys that the ranks store at the address."""
    nodes: int = 1
    interface: str = LOOPBACK
    """Network interface of this node that leads to the other nodes."""

    def store(self, rank: int, size: int, listener: socket.socket | None = None) -> Any:
        """Return the store through which ranks find each other.

        At a network address, rank 0 serves the store on its `listener`.
        """
        if self.file:
            return FileStore(self.file, size)
        store = TCPStore(
            self.address,
            self.port,
            is_master=rank == 0,
            timeout=timedelta(seconds=PASS_SECONDS),
            wait_for_workers=False,
            master_listen_fd=None if listener is None else listener.detach(),
        )
        return PrefixStore(self.nonce, store)

    def mesh(self, kind: str, size: int) -> DeviceMesh:
        """Return the ranks in one row, or in one row per node.

        Weights are sharded along a row and replicated along a column.
        """
        if self.nodes == 1:
            return DeviceMesh(kind, torch.arange(size))
        rows = torch.arange(size).view(self.nodes, size // self.nodes)
        return DeviceMesh(kind, rows, mesh_dim_names=("replicate", "shard"))


class UnlikeRanks(RuntimeError):
    """Raised for ranks that cannot work together."""


def join(
    meeting: Meeting,
    rank: int,
    size: int,
    *,
    device: str,
    seconds: float = PASS_SECONDS,
    listener: socket.socket | None = None,
) -> Ranks:
    """Join the other ranks. Raise UnlikeRanks if their versions or devices differ."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", meeting.interface)
    kind = torch.device(device).type
    if kind == "cuda":
        os.environ.setdefault("NCCL_SOCKET_IFNAME", meeting.interface)
        torch.cuda.set_device(device)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo",
        store=meeting.store(rank, size, listener),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=seconds),
    )
    orders = dist.new_group(backend="gloo", timeout=timedelta(seconds=ORDER_SECONDS))
    ranks = Ranks(rank, size, meeting.mesh(kind, size), orders, meeting.nodes)
    check_alike(ranks.gathered(rank_traits(kind)))
    return ranks


def is_lost_peer(error: BaseException) -> bool:
    """Return whether an error means that another rank has ended or is silent. That rank reports the
    reason.
    """
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


def leave() -> None:
    """Leave the group after the other ranks have ended."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank_traits(kind: str) -> dict[str, str]:
    """Return the versions and the device that must be equal on all ranks."""
    packages = {name: version(name) for name in ("torch", "transformers")}
    name = torch.cuda.get_device_name() if kind == "cuda" else kind
    return {"python": sys.version.split()[0], **packages, "device": name}


def check_alike(properties_by_rank: Sequence[dict[str, str]]) -> None:
    """Raise UnlikeRanks with the difference unless all ranks have the same properties."""
    for rank, properties in enumerate(properties_by_rank):
        for name, value in properties.items():
            if value != properties_by_rank[0][name]:
                raise UnlikeRanks(
                    f"rank {rank} has {name} {value}, rank 0 has {properties_by_rank[0][name]}: "
                    "all ranks of a run need the same versions and devices"
                )
