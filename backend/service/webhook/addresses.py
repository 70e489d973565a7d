"""Addresses that a webhook may be sent to: of the outside, resolved once and connected to as resolved."""

import ipaddress
import socket
import threading
from concurrent.futures import Future
from typing import NamedTuple
from urllib.parse import urlsplit

from backend.base.errors import GrpoLabError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

SECONDS = 10.0
"""Deadline of a request, from looking the host up to the status of its answer."""

NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments, and the metadata of Oracle Cloud
        "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",  # AS112, AMT, 6to4
        "168.63.129.16/32",  # metadata of Azure
        "2001::/23", "2620:4f:8000::/48", "3fff::/20",  # protocol assignments, AS112, documentation
    )
)  # fmt: skip
"""Networks of IANA's registries of special-purpose addresses that some version of `ipaddress` takes for
global, and addresses at which clouds answer from the inside."""


class Unreachable(GrpoLabError):
    """A webhook cannot be delivered, for now or for good."""


class Target(NamedTuple):
    """An address of a webhook, resolved."""

    is_tls: bool
    host: str
    port: int
    path: str
    """Path of the address, with its query."""
    addresses: tuple[str, ...]
    """IP addresses to connect to, in this order; the name is not resolved again."""


def resolve(url: str, *, private: bool, seconds: float = SECONDS) -> Target:
    """Look the host up and refuse one with any internal address, unless `private` allows them.

    Raises Unreachable, also for a look-up that takes longer than `seconds`.
    """
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    if not is_tls and not private:
        raise Unreachable("the webhook's address must begin with https://")
    port = parts.port or (443 if is_tls else 80)
    addresses = _look_up(host, port, seconds)
    if not private and any(not is_outside(ipaddress.ip_address(address)) for address in addresses):
        raise Unreachable(
            f"the webhook's host {host} has an internal address ({', '.join(addresses)}); "
            "GRPOLAB_WEBHOOK_PRIVATE=true allows it"
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(is_tls, host, port, path, tuple(addresses))


def _look_up(host: str, port: int, seconds: float) -> list[str]:
    """Resolve a host's addresses in a thread, which is abandoned if it takes too long."""
    future: Future[list[str]] = Future()

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            future.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except (OSError, ValueError) as error:
            future.set_exception(error)

    threading.Thread(target=ask, name="webhook-lookup", daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        raise Unreachable(f"the webhook's host {host} is not found within {seconds:g} s") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"the webhook's host {host} is not found: {error}") from None


def is_outside(address: Address) -> bool:
    """Return whether an address is one of the public internet, also behind the ways to write IPv4 as IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_outside(inner)
        if address.is_site_local:
            return False
    if any(address in network for network in SPECIAL):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)
