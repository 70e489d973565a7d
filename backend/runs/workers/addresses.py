"""The address at which a node of a group is reached, and the interface that it belongs to."""

import ipaddress
import os
import platform
import socket
from typing import NamedTuple

import psutil

from backend.base.errors import GrpoLabError
from backend.base.settings import Settings

PORTS = 32
"""Ports that are tried from NODE_PORT on."""


class NodeAddress(NamedTuple):
    """The address at which the ranks of this node listen, and its interface."""

    ip: str
    interface: str


def node_address(settings: Settings) -> NodeAddress:
    """Return NODE_ADDRESS's address, else the host's. Raises GrpoLabError if it is not this machine's."""
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
    """Return a socket that listens at this address alone, at the first port from `port` on that is free; 0:
    at any.

    Raises OSError where none of PORTS is.
    """
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    last = min(65535, port + PORTS - 1) if port else 0
    for number in range(port, last + 1):
        try:
            return socket.create_server((ip, number), family=family, backlog=512)
        except OSError as error:
            if number == last:
                tried = f"port {port} to {last} (NODE_PORT)" if port else "any port"
                reason = f"the ranks cannot meet at {ip}, {tried}: {os.strerror(error.errno or 0)}"
                raise OSError(error.errno, reason) from None
    raise AssertionError
