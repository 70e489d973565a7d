"""The ranks of a run: processes that share its forward and backward passes, one for each device.

Rank 0 is the trainer. On one node the ranks find one another through a file in a directory that only their
user may open, and gloo speaks on the loopback interface, so there is no port that anybody else could take. On
several nodes they meet at an address of the first one.
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
"""A rank that waits longer than this for another one within a step gives the attempt up."""

ORDER_SECONDS = 7 * 86_400.0
"""A rank waits for its next order as long as rank 0 samples, grades and evaluates; its lifeline ends it."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The group of ranks as one of them sees it; a run on one device is alone in its own."""

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None
    orders: Any = None
    """The group in which rank 0 gives its orders."""
    nodes: int = 1
    """Nodes that the ranks are on, each with as many."""

    @property
    def is_alone(self) -> bool:
        """Whether there is one rank only."""
        return self.size == 1

    def own(self, tokens: Tensor) -> Tensor:
        """Rows for this rank, of rows (B,) with so many tokens each: neighbours, and about equal work."""
        if self.is_alone:
            return torch.arange(len(tokens))
        middle = tokens.cumsum(0) - tokens / 2
        owner = (middle * self.size / tokens.sum().clamp(min=1)).long().clamp(max=self.size - 1)
        return (owner == self.rank).nonzero().flatten()

    def most(self, number: int) -> int:
        """The largest of what the ranks say."""
        return number if self.is_alone else max(self.gathered(number))

    def gathered(self, value: Any, *, is_patient: bool = False) -> list[Any]:
        """The values of all ranks, by rank, through gloo: tensors have to be on the CPU.

        One who `is_patient` waits for as long as for an order.
        """
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.orders if is_patient else None)
        return values

    def merged(self, sums: MetricSums) -> MetricSums:
        """The sums of all ranks together, on the CPU."""
        return MetricSums.merged(self.gathered(sums.to("cpu")))

    def total(self, value: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if not self.is_alone:
            dist.all_reduce(value)
        return value

    def order(self, order: Any = None) -> Any:
        """The next order: rank 0 gives it, the others wait for it."""
        if self.is_alone:
            return order
        box = [order]
        dist.broadcast_object_list(box, src=0, group=self.orders)
        return box[0]


ALONE = Ranks()


LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
"""Interface that reaches this machine alone."""


class Meeting(NamedTuple):
    """The place where ranks meet: a file of one node, or an address of the first of several."""

    file: str = ""
    address: str = ""
    port: int = 0
    nonce: str = ""
    """Beginning of all that they leave at the address."""
    nodes: int = 1
    interface: str = LOOPBACK
    """Network interface of this node that leads to the others."""

    def store(self, rank: int, size: int, listener: socket.socket | None = None) -> Any:
        """The store by which ranks find one another; at an address rank 0 serves it, by its `listener`."""
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
        """The ranks in a row, or the nodes below one another: shards in a row, their copies in a column."""
        if self.nodes == 1:
            return DeviceMesh(kind, torch.arange(size))
        rows = torch.arange(size).view(self.nodes, size // self.nodes)
        return DeviceMesh(kind, rows, mesh_dim_names=("replicate", "shard"))


class UnlikeRanks(RuntimeError):
    """Ranks that cannot work together."""


def join(
    meeting: Meeting,
    rank: int,
    size: int,
    *,
    device: str,
    seconds: float = PASS_SECONDS,
    listener: socket.socket | None = None,
) -> Ranks:
    """Meet the other ranks; raises UnlikeRanks where their versions or devices differ."""
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
    check_alike(ranks.gathered(itself(kind)))
    return ranks


def is_lost_peer(error: BaseException) -> bool:
    """Whether another rank is gone or silent: its own end says why."""
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


def leave() -> None:
    """Leave the group; the other ranks have ended."""
    if dist.is_initialized():
        dist.destroy_process_group()


def itself(kind: str) -> dict[str, str]:
    """The versions and the device in which all ranks have to agree."""
    packages = {name: version(name) for name in ("torch", "transformers")}
    name = torch.cuda.get_device_name() if kind == "cuda" else kind
    return {"python": sys.version.split()[0], **packages, "device": name}


def check_alike(properties_by_rank: Sequence[dict[str, str]]) -> None:
    """Raise UnlikeRanks, which says what differs, unless all ranks are alike."""
    for rank, properties in enumerate(properties_by_rank):
        for name, value in properties.items():
            if value != properties_by_rank[0][name]:
                raise UnlikeRanks(
                    f"rank {rank} has {name} {value}, rank 0 has {properties_by_rank[0][name]}: "
                    "all ranks of a run need the same versions and devices"
                )
