"""Resolve the address of a webhook once, and check that it is on the public internet."""

import ipaddress
import socket
import threading
from concurrent.futures import Future
from typing import NamedTuple
from urllib.parse import urlsplit

from backend.base.errors import GrpoLabError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

TIMEOUT_SECONDS = 10.0
"""Time limit of a request in seconds, from resolving the host to the status of the response."""

NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

SPECIAL_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments, and the metadata of Oracle Cloud
        "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",  # AS112, AMT, 6to4
        "168.63.129.16/32",  # metadata of Azure
        "2001::/23", "2620:4f:8000::/48", "3fff::/20",  # protocol assignments, AS112, documentation
    )
)  # fmt: skip
"""Networks in IANA's registries of special-purpose addresses that some versions of `ipaddress` consider
global, and internal addresses of clouds.
"""


class Unreachable(GrpoLabError):
    """A webhook cannot be delivered, temporarily or permanently."""


class Target(NamedTuple):
    """A resolved address of a webhook."""

    is_tls: bool
    host: str
    port: int
    path: str
    """Path of the URL, with its query."""
    addresses: tuple[str, ...]
    """IP addresses to connect to, in this order; the name is not resolved again."""


def resolve(url: str, *, private: bool, seconds: float = TIMEOUT_SECONDS) -> Target:
    """Resolve the host, and refuse it if any of its addresses is internal, unless `private` allows them.

    Raise Unreachable, also if resolving takes longer than `seconds`.
    """
    url_parts = urlsplit(url)
    host, is_tls = url_parts.hostname or "", url_parts.scheme == "https"
    if not is_tls and not private:
        raise Unreachable("the webhook's address must begin with https://")
    port = url_parts.port or (443 if is_tls else 80)
    addresses = _look_up(host, port, seconds)
    if not private and any(not is_outside(ipaddress.ip_address(address)) for address in addresses):
        raise Unreachable(
            f"the webhook's host {host} has an internal address ({', '.join(addresses)}); "
            "GRPOLAB_WEBHOOK_PRIVATE=true allows it"
        )
    path = (url_parts.path or "/") + (f"?{url_parts.query}" if url_parts.query else "")
    return Target(is_tls, host, port, path, tuple(addresses))


def _look_up(host: str, port: int, seconds: float) -> list[str]:
    """Resolve the addresses of a host in a thread, which is abandoned if it takes too long."""
    future: Future[list[str]] = Future()

    def find_addresses() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            future.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except (OSError, ValueError) as error:
            future.set_exception(error)

    threading.Thread(target=find_addresses, name="webhook-lookup", daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        raise Unreachable(f"the webhook's host {host} is not found within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"the webhook's host {host} is not found: {error}") from None


def is_outside(address: Address) -> bool:
    """Return whether an address is on the public internet, including IPv4 addresses embedded in IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return is_outside(embedded)
        if address.is_site_local:
            return False
    if any(address in network for network in SPECIAL_NETWORKS):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)
