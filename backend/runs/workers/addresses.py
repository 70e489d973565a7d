"""The network address and interface of a node in a group."""

import ipaddress
import os
import platform
import socket
from typing import NamedTuple

import psutil

from backend.base.errors import GrpoLabError
from backend.base.settings import Settings

MAX_PORTS = 32
"""Number of ports that are tried, starting at NODE_PORT."""


class NodeAddress(NamedTuple):
    """The address at which the ranks of this node listen, and its interface."""

    ip: str
    interface: str


def node_address(settings: Settings) -> NodeAddress:
    """Return the address of this node; raise GrpoLabError if no interface of this machine has it."""
    name = settings.node_address or platform.node()
    name_source = (
        f"NODE_ADDRESS is {name!r}" if settings.node_address else f"the name of this host is {name!r}"
    )
    try:
        infos = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise GrpoLabError(f"{name_source}, which leads to no address: {error}") from None
    interface_by_ip = {
        entry.address: interface for interface, entries in psutil.net_if_addrs().items() for entry in entries
    }
    ips = [str(entry[4][0]) for entry in infos]
    for ip in ips:
        if ip in interface_by_ip and (settings.node_address or not ipaddress.ip_address(ip).is_loopback):
            return NodeAddress(ip, interface_by_ip[ip])
    if not settings.node_address and all(ipaddress.ip_address(ip).is_loopback for ip in ips):
        reason = f"{name_source}, which leads to {ips[0]}, where no other node reaches it"
        raise GrpoLabError(f"{reason}: NODE_ADDRESS must name the address in the cluster's network")
    raise GrpoLabError(
        f"{name_source}, which leads to {', '.join(sorted(set(ips)))}: no interface of this machine has it"
    )


def listen(ip: str, port: int) -> socket.socket:
    """Return a socket that listens at this address, at the first free port from `port` on.

    If `port` is 0, the system chooses a port. Raise OSError if none of the MAX_PORTS ports is free.
    """
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    last = min(65535, port + MAX_PORTS - 1) if port else 0
    for candidate_port in range(port, last + 1):
        try:
            return socket.create_server((ip, candidate_port), family=family, backlog=512)
        except OSError as error:
            if candidate_port == last:
                port_range = f"port {port} to {last} (NODE_PORT)" if port else "any port"
                reason = f"the ranks cannot meet at {ip}, {port_range}: {os.strerror(error.errno or 0)}"
                raise OSError(error.errno, reason) from None
    raise AssertionError
